// What the kernel files share, compiled once per target: lane counts and loads that widen to f32.

// Per-target include guard, as Highway's own headers have it.
#if defined(PAGEKV_CPU_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEKV_CPU_VECTOR_INL_H_
#undef PAGEKV_CPU_VECTOR_INL_H_
#else
#define PAGEKV_CPU_VECTOR_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "pagekv/dtype.h"
#include "pagekv/layout.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most one tile of f32 lanes: 16 on AVX-512, 8 on AVX2, 4 on 128-bit targets, 1 on the scalar
// one.
using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
template <class D>
inline constexpr std::int64_t kLanesOf = static_cast<std::int64_t>(hn::MaxLanes(D()));
inline constexpr std::int64_t kLanes = kLanesOf<FloatTag>;
// Every dim is a multiple of 8, not of 16: what is left of a row fits vectors of this tag.
using TailTag = hn::CappedTag<float, 8>;
inline constexpr std::int64_t kTailLanes = kLanesOf<TailTag>;

// Of lanes, by halves: the same tree for every width.
template <class D, typename Reduce>
HWY_INLINE float reduce_lanes(D /* d */, hn::Vec<D> v, [[maybe_unused]] Reduce reduce) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) != 1) {
    const hn::Half<D> half;
    return reduce_lanes(half, reduce(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), reduce);
  }
#endif
  return hn::GetLane(v);
}

inline constexpr std::int64_t kTileVectors = kTileTokens / kLanes;
// Vectors of dims whose sums are held in registers for 4 (few queries) or 6 (many): 16 or 24 of 32
// registers with AVX-512, 8 or 12 of 16 elsewhere.
inline constexpr int kDimVectors = kLanes == 16 ? 4 : 2;
// How many pieces a row of `dims` is taken in: blocks of so many vectors, then vectors.
constexpr std::int64_t dim_blocks(std::int64_t dims) {
  constexpr std::int64_t kBlock = kDimVectors * kLanes;
  return dims / kBlock + (dims % kBlock + kLanes - 1) / kLanes;
}

// Of the vectors of one tile; they are spoiled.
template <typename Reduce>
HWY_INLINE float reduce_tile(FloatVec* partial, Reduce reduce) {
  HWY_UNROLL(4)
  for (std::int64_t half = kTileVectors / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) partial[i] = reduce(partial[i], partial[i + half]);
  }
  return reduce_lanes(FloatTag(), partial[0], reduce);
}

// Lanes(d) elements of type `kType` at `data[index]`, as f32. Exact.
template <DType kType, class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const std::byte* data, std::int64_t index) {
  if constexpr (kType == DType::f32) {
    return hn::LoadU(d, reinterpret_cast<const float*>(data) + index);
  } else if constexpr (kType == DType::bf16) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(data) + index);
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
  } else {
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(data) + index));
  }
}

// kDimVectors * kLanes dims of a row, of which those in lanes are `index`, `index` + 1, and so on;
// of bf16 every second one is in the vector that follows, which halves the work. store_dims() has
// them in order.
template <DType kType>
HWY_INLINE void load_dims(const std::byte* data, std::int64_t index, FloatVec* dims) {
  const FloatTag d;
  if constexpr (kType == DType::bf16) {
    const hn::RebindToUnsigned<FloatTag> d32;
    const auto odd = hn::Set(d32, 0xffff0000u);
    HWY_UNROLL(2)
    for (int j = 0; j < kDimVectors; j += 2) {
      const auto* from = reinterpret_cast<const std::uint32_t*>(data + 2 * (index + j * kLanes));
      const auto both = hn::LoadU(d32, from);
      dims[j] = hn::BitCast(d, hn::ShiftLeft<16>(both));
      dims[j + 1] = hn::BitCast(d, hn::And(both, odd));
    }
  } else {
    HWY_UNROLL(4)
    for (int j = 0; j < kDimVectors; ++j) dims[j] = load_f32<kType>(d, data, index + j * kLanes);
  }
}

template <DType kType>
HWY_INLINE void store_dims(const FloatVec* dims, float* to) {
  const FloatTag d;
  HWY_UNROLL(4)
  for (int j = 0; j < kDimVectors; j += 2) {
    if constexpr (kType == DType::bf16) {
      hn::StoreInterleaved2(dims[j], dims[j + 1], d, to + j * kLanes);
    } else {
      hn::StoreU(dims[j], d, to + j * kLanes);
      hn::StoreU(dims[j + 1], d, to + (j + 1) * kLanes);
    }
  }
}

struct DimPair {
  FloatVec even;
  FloatVec odd;
};

// Dims 2 * pair and 2 * pair + 1 of kLanes tokens from `lane` on, of a key tile in key_tile16 form.
template <DType kType>
HWY_INLINE DimPair load_key_pair(const std::byte* tile, std::int64_t pair, std::int64_t lane) {
  const FloatTag d;
  if constexpr (kType == DType::f32) {
    const float* units = reinterpret_cast<const float*>(tile) + 2 * pair * kTileTokens + lane;
    return {hn::LoadU(d, units), hn::LoadU(d, units + kTileTokens)};
  } else {
    const hn::RebindToUnsigned<FloatTag> d32;
    const auto units =
        hn::LoadU(d32, reinterpret_cast<const std::uint32_t*>(tile) + pair * kTileTokens + lane);
    if constexpr (kType == DType::bf16) {
      const auto high_half = hn::Set(d32, 0xffff0000u);
      return {hn::BitCast(d, hn::ShiftLeft<16>(units)), hn::BitCast(d, hn::And(units, high_half))};
    } else {
      const hn::Rebind<std::uint16_t, FloatTag> d16;
      const hn::Rebind<hwy::float16_t, FloatTag> df16;
      const auto even = hn::BitCast(df16, hn::TruncateTo(d16, units));
      const auto odd = hn::BitCast(df16, hn::TruncateTo(d16, hn::ShiftRight<16>(units)));
      return {hn::PromoteTo(d, even), hn::PromoteTo(d, odd)};
    }
  }
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
