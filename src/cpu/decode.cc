// Decoding single vectors: stored elements widened, rotated back, rounded to the type asked for.
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/decode.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/convert-inl.h"
#include "cpu/elements-inl.h"
#include "cpu/rotate-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

HWY_INLINE bool has_large_scale(const ConstPlanePointers& from, const SideShape& shape) {
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    if (std::fabs(load_one_f32(shape.scales, from[1], group)) > kLarge) return true;
  }
  return false;
}

template <CodecKind kKind, int kBits>
bool decode(const ConstPlanePointers& from, const SideShape& shape, DType type, void* vector) {
  if (has_large_scale(from, shape)) return false;
  const RowWidener<kKind, kBits> widen_row;
  alignas(64) float values[kMaxHeadDim];
  widen_row(from, shape, values);
  if (shape.rotation != nullptr) {
    unrotate_vector(*shape.rotation, largest_magnitude(values, shape.dim), values);
  }
  store_all_saturated(type, values, shape.dim, vector);
  return true;
}

template <DType kType, class DU>
HWY_INLINE void widen_dense(DU du, const void* from, std::int64_t begin, std::int64_t end,
                            float* values) {
  for (std::int64_t i = begin; i < end; i += static_cast<std::int64_t>(hn::MaxLanes(du))) {
    store_bits<DType::f32>(du, convert_bits<kType, DType::f32>(load_bits<kType>(du, from, i)),
                           values, i);
  }
}

// Of a rotated vector: others are converted.
template <DType kType>
bool decode_dense(const ConstPlanePointers& from, const SideShape& shape, DType type,
                  void* vector) {
  alignas(64) float values[kMaxHeadDim];
  const std::int64_t whole = shape.dim / kLanes * kLanes;
  widen_dense<kType>(hn::RebindToUnsigned<FloatTag>(), from[0], 0, whole, values);
  widen_dense<kType>(hn::RebindToUnsigned<TailTag>(), from[0], whole, shape.dim, values);
  const std::int32_t largest = largest_magnitude(values, shape.dim);
  if (largest > kLargeBits) return false;
  unrotate_vector(*shape.rotation, largest, values);
  store_all_saturated(type, values, shape.dim, vector);
  return true;
}

template <CodecKind kKind, std::size_t kFirst, std::size_t kCount, std::size_t kAt = 0>
void fill_decode(const std::array<int, kCount>& widths, KernelTable& table) {
  if constexpr (kAt < kCount) {
    constexpr int kBits = kKind == CodecKind::affine ? kAffineWidths[kAt] : kCodebookWidths[kAt];
    table.decode[kFirst + kAt] = decode<kKind, kBits>;
    fill_decode<kKind, kFirst, kCount, kAt + 1>(widths, table);
  }
}

void export_decode(KernelTable& table) {
  table.decode[dtype_index(DType::f32)] = decode_dense<DType::f32>;
  table.decode[dtype_index(DType::f16)] = decode_dense<DType::f16>;
  table.decode[dtype_index(DType::bf16)] = decode_dense<DType::bf16>;
  fill_decode<CodecKind::affine, kFirstAffine>(kAffineWidths, table);
  fill_decode<CodecKind::codebook, kFirstCodebook>(kCodebookWidths, table);
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_decode);

void bind_decode(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_decode), table);
}

}  // namespace pagekv::inline v0::internal
#endif
