// Encoding by affine codecs: the arithmetic of codec/affine.h, element by element the same
// operations on every target.
#include <algorithm>
#include <array>
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

// Groups of all vectors, from their ranges to how they are stored.
struct Groups {
  std::int64_t size = 0;   // elements
  std::int64_t count = 0;  // of groups; the arrays are filled up to a multiple of 8
  alignas(64) std::array<float, kMaxGroups> low;
  alignas(64) std::array<float, kMaxGroups> high;
  alignas(64) std::array<float, kMaxGroups> scale;
  alignas(64) std::array<float, kMaxGroups> bias;
  alignas(64) std::array<float, kMaxGroups> inverse;  // of scale, within 2^-23 of it
};

template <class D>
HWY_INLINE void find_ranges(D d, const float* values, Groups& groups) {
  const std::int64_t last = (groups.count - 1) / 8 * 8;
  std::fill_n(groups.low.data() + last, 8, 0.0f);
  std::fill_n(groups.high.data() + last, 8, 0.0f);
  for (std::int64_t group = 0; group < groups.count; ++group) {
    const float* from = values + group * groups.size;
    auto low = hn::LoadU(d, from);
    auto high = low;
    for (std::int64_t i = kLanesOf<D>; i < groups.size; i += kLanesOf<D>) {
      const auto v = hn::LoadU(d, from + i);
      low = hn::Min(low, v);
      high = hn::Max(high, v);
    }
    const auto at = static_cast<std::size_t>(group);
    groups.low[at] = hn::GetLane(hn::MinOfLanes(d, low));
    groups.high[at] = hn::GetLane(hn::MaxOfLanes(d, high));
  }
}

// How codes are found.
enum class Way { product, quotient, reference };

// Scales and biases, groups in lanes.
template <int kBits>
HWY_INLINE Way find_scales(Groups& groups) {
  constexpr float kSmallestStep = 1e-7f;
  const TailTag d;
  const auto most = hn::Set(d, std::numeric_limits<float>::max());
  auto finite = hn::Eq(most, most);
  auto invertible = finite;
  for (std::int64_t i = 0; i < groups.count; i += kTailLanes) {
    const auto low = hn::Load(d, groups.low.data() + i);
    const auto high = hn::Load(d, groups.high.data() + i);
    const auto range = hn::Sub(high, low);
    const auto last = hn::Set(d, static_cast<float>((1 << kBits) - 1));
    const auto step = hn::Max(hn::Div(range, last), hn::Set(d, kSmallestStep));
    const auto low_edge = hn::Gt(hn::Abs(low), hn::Abs(high));
    const auto edge = hn::IfThenElse(low_edge, low, high);
    const auto signed_step = hn::IfThenElse(low_edge, step, hn::Neg(step));
    const auto steps = hn::Div(edge, signed_step);
    const auto whole_steps = hn::Round(steps);
    const auto at_zero = hn::Eq(whole_steps, hn::Zero(d));
    // The scale is a fraction, its inverse that turned over: neither waits for the other.
    const auto above = hn::IfThenElse(at_zero, signed_step, edge);
    const auto below = hn::IfThenElse(at_zero, hn::Set(d, 1.0f), whole_steps);
    const auto scale = hn::Div(above, below);
    hn::Store(scale, d, groups.scale.data() + i);
    hn::Store(hn::Div(below, above), d, groups.inverse.data() + i);
    hn::Store(hn::IfThenElse(at_zero, hn::Zero(d), edge), d, groups.bias.data() + i);
    finite = hn::And(finite, hn::And(hn::Le(range, most), hn::Le(hn::Abs(steps), most)));
    invertible = hn::And(invertible, hn::Lt(hn::Abs(scale), hn::Set(d, 0x1p100f)));
  }
  if (!hn::AllTrue(d, finite)) return Way::reference;
  return hn::AllTrue(d, invertible) ? Way::product : Way::quotient;
}

// How many steps of its scale an element is above the bias; never below 0.
template <bool kDivide, class D>
HWY_INLINE hn::Vec<D> steps_above(hn::Vec<D> above, hn::Vec<D> factor) {
  return kDivide ? hn::Div(above, factor) : hn::Mul(above, factor);
}

// Codes by a product with the inverse of the scale, or by division, which takes three times as
// long. The product is off by less than 2^-22 of the quotient, so both have the same code unless
// the product is that close to the middle between two: then the vector is divided.
template <int kBits, bool kDivide, class D>
HWY_INLINE void choose_codes(D d, const float* values, const Groups& groups, std::int64_t group,
                             std::uint8_t* codes) {
  constexpr float kLast = static_cast<float>((1 << kBits) - 1);
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint8_t, D> d8;
  const auto last = hn::Set(d, kLast);
  const auto clear = hn::Set(d, 0.5f - (kLast + 1) * 0x1p-21f);
  // Adding it rounds to whole numbers, ties to even, and leaves them in the low bits.
  const auto rounder = hn::Set(d, 0x1.8p23f);
  const auto at = static_cast<std::size_t>(group);
  const auto scale = hn::Set(d, groups.scale[at]);
  const auto factor = kDivide ? scale : hn::Set(d, groups.inverse[at]);
  const auto bias = hn::Set(d, groups.bias[at]);
  for (std::int64_t i = group * groups.size; i < (group + 1) * groups.size; i += kLanesOf<D>) {
    const auto above = hn::Sub(hn::LoadU(d, values + i), bias);
    const auto within = hn::Min(steps_above<kDivide, D>(above, factor), last);
    auto rounded = hn::Add(within, rounder);
    if constexpr (!kDivide) {
      const auto off = hn::Abs(hn::Sub(within, hn::Sub(rounded, rounder)));
      if (HWY_UNLIKELY(!hn::AllTrue(d, hn::Le(off, clear)))) {
        rounded = hn::Add(hn::Min(steps_above<true, D>(above, scale), last), rounder);
      }
    }
    hn::StoreU(hn::TruncateTo(d8, hn::BitCast(du, rounded)), d8, codes + i);
  }
}

template <int kBits, class D>
HWY_INLINE void encode_groups(D d, const float* values, Groups& groups, std::uint8_t* codes) {
  find_ranges(d, values, groups);
  const Way way = find_scales<kBits>(groups);
  for (std::int64_t group = 0; group < groups.count; ++group) {
    if (way == Way::product) {
      choose_codes<kBits, false>(d, values, groups, group, codes);
    } else if (way == Way::quotient) {
      choose_codes<kBits, true>(d, values, groups, group, codes);
    } else {
      const std::int64_t first = group * groups.size;
      const AffineGroup made =
          internal::encode_affine(values + first, groups.size, kBits, codes + first);
      groups.scale[static_cast<std::size_t>(group)] = made.scale;
      groups.bias[static_cast<std::size_t>(group)] = made.bias;
    }
  }
}

template <int kBits>
std::uint32_t encode_affine(float* values, std::int64_t rows, const SideShape& shape,
                            const PlanePointers& to) {
  const std::uint32_t refused = prepare(shape, rows, values);
  CodeRoom<kBits> room;
  Groups groups;
  groups.size = shape.group;
  groups.count = rows * shape.groups;
  if (shape.group % kLanes == 0) {
    encode_groups<kBits>(FloatTag(), values, groups, room.codes(to[0]));
  } else {
    encode_groups<kBits>(TailTag(), values, groups, room.codes(to[0]));
  }
  store_scales(shape.scales, groups.scale.data(), groups.count, to[1]);
  store_scales(shape.scales, groups.bias.data(), groups.count, to[2]);
  room.pack(rows, shape.dim, to[0]);
  return refused;
}

template <std::size_t kAt = 0>
void fill_encode_affine(KernelTable& table) {
  if constexpr (kAt < kAffineWidths.size()) {
    table.encode[kFirstAffine + kAt] = encode_affine<kAffineWidths[kAt]>;
    fill_encode_affine<kAt + 1>(table);
  }
}

void export_encode_affine(KernelTable& table) {
  fill_encode_affine(table);
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
