// Encoding by affine codecs: the arithmetic of codec/affine.h, element by element the same
// operations on every target.
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "codec/affine.h"
#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/encode_affine.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/encode-inl.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// A vector's groups, from their ranges to how they are stored. Of groups past the last: zeros.
struct Groups {
  std::int64_t size = 0;   // elements
  std::int64_t count = 0;  // of groups
  alignas(64) float low[kMaxGroups] = {};
  alignas(64) float high[kMaxGroups] = {};
  alignas(64) float scale[kMaxGroups];
  alignas(64) float bias[kMaxGroups];
};

template <class D>
HWY_INLINE void find_ranges(D d, const float* values, Groups& groups) {
  for (std::int64_t group = 0; group < groups.count; ++group) {
    const float* from = values + group * groups.size;
    auto low = hn::LoadU(d, from);
    auto high = low;
    for (std::int64_t i = kLanesOf<D>; i < groups.size; i += kLanesOf<D>) {
      const auto v = hn::LoadU(d, from + i);
      low = hn::Min(low, v);
      high = hn::Max(high, v);
    }
    groups.low[group] = hn::GetLane(hn::MinOfLanes(d, low));
    groups.high[group] = hn::GetLane(hn::MaxOfLanes(d, high));
  }
}

// Scales and biases, groups in lanes. False where one has a range or a number of steps that is not
// finite.
template <int kBits>
HWY_INLINE bool find_scales(Groups& groups) {
  constexpr float kSmallestStep = 1e-7f;
  const TailTag d;
  const auto most = hn::Set(d, std::numeric_limits<float>::max());
  auto finite = hn::Eq(most, most);
  for (std::int64_t i = 0; i < groups.count; i += kTailLanes) {
    const auto low = hn::Load(d, groups.low + i);
    const auto high = hn::Load(d, groups.high + i);
    const auto range = hn::Sub(high, low);
    const auto last = hn::Set(d, static_cast<float>((1 << kBits) - 1));
    const auto step = hn::Max(hn::Div(range, last), hn::Set(d, kSmallestStep));
    const auto low_edge = hn::Gt(hn::Abs(low), hn::Abs(high));
    const auto edge = hn::IfThenElse(low_edge, low, high);
    const auto signed_step = hn::IfThenElse(low_edge, step, hn::Neg(step));
    const auto steps = hn::Div(edge, signed_step);
    const auto whole_steps = hn::Round(steps);
    const auto at_zero = hn::Eq(whole_steps, hn::Zero(d));
    hn::Store(hn::IfThenElse(at_zero, signed_step, hn::Div(edge, whole_steps)), d,
              groups.scale + i);
    hn::Store(hn::IfThenElse(at_zero, hn::Zero(d), edge), d, groups.bias + i);
    finite = hn::And(finite, hn::And(hn::Le(range, most), hn::Le(hn::Abs(steps), most)));
  }
  return hn::AllTrue(d, finite);
}

template <int kBits, class D>
HWY_INLINE void choose_codes(D d, const float* values, const Groups& groups, std::uint8_t* codes) {
  const hn::Rebind<std::uint8_t, D> d8;
  const auto last = hn::Set(d, static_cast<float>((1 << kBits) - 1));
  for (std::int64_t group = 0; group < groups.count; ++group) {
    const auto scale = hn::Set(d, groups.scale[group]);
    const auto bias = hn::Set(d, groups.bias[group]);
    const std::int64_t begin = group * groups.size;
    for (std::int64_t i = begin; i < begin + groups.size; i += kLanesOf<D>) {
      const auto steps = hn::Div(hn::Sub(hn::LoadU(d, values + i), bias), scale);
      const auto code = hn::NearestInt(hn::Min(hn::Max(steps, hn::Zero(d)), last));
      hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
    }
  }
}

template <int kBits>
bool encode_affine(float* values, const SideShape& shape, const PlanePointers& to) {
  if (!prepare(shape, values)) return false;
  alignas(64) std::uint8_t codes[kMaxHeadDim];
  Groups groups;
  groups.size = shape.group;
  groups.count = shape.dim / shape.group;
  const bool wide = shape.group % kLanes == 0;
  if (wide) {
    find_ranges(FloatTag(), values, groups);
  } else {
    find_ranges(TailTag(), values, groups);
  }
  if (!find_scales<kBits>(groups)) {
    for (std::int64_t group = 0; group < groups.count; ++group) {
      const std::int64_t at = group * groups.size;
      const AffineGroup made = internal::encode_affine(values + at, groups.size, kBits, codes + at);
      groups.scale[group] = made.scale;
      groups.bias[group] = made.bias;
    }
  } else if (wide) {
    choose_codes<kBits>(FloatTag(), values, groups, codes);
  } else {
    choose_codes<kBits>(TailTag(), values, groups, codes);
  }
  store_scales(shape.scales, groups.scale, groups.count, to[1]);
  store_scales(shape.scales, groups.bias, groups.count, to[2]);
  pack_codes<kBits>(codes, shape.dim, to[0]);
  return true;
}

template <std::size_t kAt = 0>
void fill(KernelTable& table) {
  if constexpr (kAt < kAffineWidths.size()) {
    table.encode[kFirstAffine + kAt] = encode_affine<kAffineWidths[kAt]>;
    fill<kAt + 1>(table);
  }
}

void export_encode_affine(KernelTable& table) {
  fill(table);
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_encode_affine);

void bind_encode_affine(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_encode_affine), table);
}

}  // namespace pagekv::inline v0::internal
#endif
