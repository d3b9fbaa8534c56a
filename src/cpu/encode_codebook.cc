// Encoding by codebooks: the arithmetic of codec/codebook.h, its eight partial sums in vector
// lanes.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "codec/codebook.h"
#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/encode_codebook.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/codebook-inl.h"
#include "cpu/encode-inl.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

inline constexpr std::size_t kCandidates = kSearchInverses.size();
static_assert(kSumLanes == 8 && kCandidates == 8);

// Eight partial sums: in one vector, or in several. A vector of 16 lanes has those of two choices.
template <class D>
struct PartialSums {
  static constexpr int kParts = kLanesOf<D> >= 8 ? 1 : static_cast<int>(8 / kLanesOf<D>);
  static constexpr int kChoices = kLanesOf<D> == 16 ? 2 : 1;

  PartialSums() { std::fill_n(parts, kParts, hn::Zero(D())); }

  // sum_lanes() of each choice.
  HWY_INLINE void store(float* sums) const {
    const D d;
    alignas(64) std::array<float, std::max<std::int64_t>(kLanesOf<D>, 8)> lanes;
    if constexpr (kParts == 1) {
      auto sum = hn::Add(parts[0], swap_lanes<4>(parts[0]));
      sum = hn::Add(sum, swap_lanes<2>(sum));
      sum = hn::Add(sum, swap_lanes<1>(sum));
      hn::Store(sum, d, lanes.data());
      for (int i = 0; i < kChoices; ++i) sums[i] = lanes[static_cast<std::size_t>(8 * i)];
    } else {
      for (int i = 0; i < kParts; ++i) hn::Store(parts[i], d, lanes.data() + i * kLanesOf<D>);
      sums[0] = sum_lanes(lanes);
    }
  }

  hn::Vec<D> parts[kParts];
};

// Part `part` of 8 elements, once for each choice.
template <class D>
HWY_INLINE hn::Vec<D> load_part(D d, const float* eight, int part) {
#if HWY_TARGET == HWY_SCALAR
  return hn::LoadU(d, eight + part);
#else
  if constexpr (kLanesOf<D> == 16) {
    const auto half = hn::LoadU(TailTag(), eight);
    return hn::Combine(d, half, half);
  } else {
    return hn::LoadU(d, eight + part * kLanesOf<D>);
  }
#endif
}

// One group, normalised.
struct Group {
  const float* u;
  std::int64_t count;
};

// What a choice of codes c is worth: sums of c * u and of c * c.
struct Sums {
  alignas(64) float dot[kCandidates];
  alignas(64) float squares[kCandidates];
};

// Of kVectors vectors of choices; `inverse_scale` has the scale of each choice in its lanes.
template <int kBits, int kVectors, class D>
HWY_INLINE void sum_choices(D d, const CodeChooser<kBits, D>& choose, const Group& group,
                            const hn::Vec<D>* inverse_scale, float* dots, float* squares) {
  PartialSums<D> dot[kVectors];
  PartialSums<D> square[kVectors];
  for (std::int64_t i = 0; i < group.count; i += 8) {
    HWY_UNROLL(8)
    for (int part = 0; part < PartialSums<D>::kParts; ++part) {
      const auto u = load_part(d, group.u + i, part);
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        const auto c = choose.centroids(hn::Mul(u, inverse_scale[v]));
        dot[v].parts[part] = hn::Add(dot[v].parts[part], hn::Mul(c, u));
        square[v].parts[part] = hn::Add(square[v].parts[part], hn::Mul(c, c));
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    dot[v].store(dots + v * PartialSums<D>::kChoices);
    square[v].store(squares + v * PartialSums<D>::kChoices);
  }
}

// Vectors of choices that are summed at a time: what registers hold.
inline constexpr int kSearchVectors = kLanes == 16 ? 4 : kLanes > 1 ? 2 : 1;

// Index of the candidate whose least-squares scale explains most of the group: of equal ones the
// first.
HWY_INLINE std::size_t best_candidate(const Sums& sums) {
  const TailTag d;
  if constexpr (kTailLanes == 8) {
    const auto dot = hn::Load(d, sums.dot);
    const auto gain = hn::Div(hn::Mul(dot, dot), hn::Load(d, sums.squares));
    return static_cast<std::size_t>(hn::FindFirstTrue(d, hn::Eq(gain, hn::MaxOfLanes(d, gain))));
  } else {
    std::size_t best = 0;
    float best_gain = -1.0f;
    for (std::size_t i = 0; i < kCandidates; ++i) {
      const float gain = sums.dot[i] * sums.dot[i] / sums.squares[i];
      if (!(gain > best_gain)) continue;
      best_gain = gain;
      best = i;
    }
    return best;
  }
}

// Encodes groups of `count` elements each: one step for all of them after the other, so that no
// group waits for another's square roots and divisions.
template <int kBits>
class GroupEncoder {
 public:
  // Codes and scales of the groups at `values`, which are spoiled.
  HWY_INLINE void operator()(float* values, std::int64_t groups, std::int64_t count, ScaleFit fit,
                             std::uint8_t* codes, float* scales) const {
    alignas(64) std::array<std::int32_t, kMaxGroups> exponents;
    alignas(64) std::array<float, kMaxGroups> squares;
    alignas(64) std::array<float, kMaxGroups> inverses;
    std::fill_n(squares.data() + (groups - 1) / 8 * 8, 8, 0.0f);  // what vectors read on
    for (std::int64_t i = 0; i < groups; ++i) {
      squares[i] = normalise(values + i * count, count, exponents[i]);
    }
    find_rms(squares.data(), groups, count, scales, inverses.data());
    for (std::int64_t i = 0; i < groups && fit != ScaleFit::rms; ++i) {
      const Group group{values + i * count, count};
      scales[i] = fit == ScaleFit::search ? search(group, inverses[i])
                                          : std::sqrt(squares[i] / codes_norm(group, inverses[i]));
    }
    for (std::int64_t i = 0; i < groups; ++i) {
      choose_all({values + i * count, count}, inverses[i], codes + i * count);
      scales[i] =
          std::min(scales[i] * power_of_two(exponents[i]), std::numeric_limits<float>::max());
    }
  }

 private:
  static float power_of_two(std::int32_t exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
  }

  // In place, elements times a power of two. Returns the sum of their squares.
  static HWY_INLINE float normalise(float* values, std::int64_t count, std::int32_t& exponent) {
    // The exponent of numbers below 2^-126 counts as -127 here: it is clamped all the same.
    exponent = std::clamp((largest_magnitude(values, count) >> 23) - 127, -126, 126);
    const TailTag d;
    const auto factor = hn::Set(d, power_of_two(-exponent));
    PartialSums<TailTag> squares;
    for (std::int64_t i = 0; i < count; i += 8) {
      HWY_UNROLL(8)
      for (int part = 0; part < PartialSums<TailTag>::kParts; ++part) {
        float* at = values + i + part * kTailLanes;
        const auto u = hn::Mul(hn::LoadU(d, at), factor);
        hn::StoreU(u, d, at);
        squares.parts[part] = hn::Add(squares.parts[part], hn::Mul(u, u));
      }
    }
    float sum;
    squares.store(&sum);
    return sum;
  }

  // Root mean squares and their inverses; of groups of zeros 0 and 1.
  static HWY_INLINE void find_rms(const float* squares, std::int64_t groups, std::int64_t count,
                                  float* rms, float* inverses) {
    const TailTag d;
    const auto one = hn::Set(d, 1.0f);
    for (std::int64_t i = 0; i < groups; i += kTailLanes) {
      const auto sum = hn::Load(d, squares + i);
      const auto root = hn::Sqrt(hn::Div(sum, hn::Set(d, static_cast<float>(count))));
      hn::Store(root, d, rms + i);
      hn::Store(hn::IfThenElse(hn::Eq(sum, hn::Zero(d)), one, hn::Div(one, root)), d, inverses + i);
    }
  }

  // Sum of squares of the centroids chosen.
  HWY_INLINE float codes_norm(const Group& group, float inverse_scale) const {
    const auto inverse = hn::Set(TailTag(), inverse_scale);
    float dot;
    float squares;
    sum_choices<kBits, 1>(TailTag(), tail_choose_, group, &inverse, &dot, &squares);
    return squares;
  }

  // Replaces the inverse of the root mean square by that of the best multiple of it; returns the
  // scale to store.
  HWY_INLINE float search(const Group& group, float& inverse_scale) const {
    const FloatTag d;
    constexpr int kChoices = PartialSums<FloatTag>::kChoices;
    constexpr int kVectors = static_cast<int>(kCandidates) / kChoices;
    FloatVec inverses[kVectors];
    alignas(64) float lanes[8 * kCandidates];
    for (std::size_t i = 0; i < kCandidates; ++i) {
      std::fill_n(lanes + 8 * i, 8, inverse_scale * kSearchInverses[i]);
    }
    for (int v = 0; v < kVectors; ++v) inverses[v] = hn::Load(d, lanes + 8 * v * kChoices);
    Sums sums;
    for (int v = 0; v < kVectors; v += kSearchVectors) {
      sum_choices<kBits, kSearchVectors>(d, choose_, group, inverses + v, sums.dot + v * kChoices,
                                         sums.squares + v * kChoices);
    }
    const std::size_t best = best_candidate(sums);
    inverse_scale = inverse_scale * kSearchInverses[best];
    return sums.dot[best] / sums.squares[best];
  }

  template <class D>
  static HWY_INLINE void choose_run(D d, const CodeChooser<kBits, D>& choose, const float* u,
                                    std::int64_t begin, std::int64_t end, float inverse_scale,
                                    std::uint8_t* codes) {
    const hn::Rebind<std::uint8_t, D> d8;
    for (std::int64_t i = begin; i < end; i += kLanesOf<D>) {
      const auto code = choose(hn::Mul(hn::LoadU(d, u + i), hn::Set(d, inverse_scale)));
      hn::StoreU(hn::DemoteTo(d8, code), d8, codes + i);
    }
  }
  HWY_INLINE void choose_all(const Group& group, float inverse_scale, std::uint8_t* codes) const {
    const std::int64_t whole = group.count / kLanes * kLanes;
    choose_run(FloatTag(), choose_, group.u, 0, whole, inverse_scale, codes);
    choose_run(TailTag(), tail_choose_, group.u, whole, group.count, inverse_scale, codes);
  }

  CodeChooser<kBits, FloatTag> choose_;
  CodeChooser<kBits, TailTag> tail_choose_;
};

template <int kBits>
std::uint32_t encode_codebook(float* values, std::int64_t rows, const SideShape& shape,
                              const PlanePointers& to) {
  const std::uint32_t refused = prepare(shape, rows, values);
  const GroupEncoder<kBits> encode_groups;
  CodeRoom<kBits> room;
  alignas(64) std::array<float, kMaxGroups> scales;
  const std::int64_t groups = rows * shape.groups;
  encode_groups(values, groups, shape.group, shape.fit, room.codes(to[0]), scales.data());
  store_scales(shape.scales, scales.data(), groups, to[1]);
  room.pack(rows, shape.dim, to[0]);
  return refused;
}

template <std::size_t kAt = 0>
void fill_encode_codebook(KernelTable& table) {
  if constexpr (kAt < kCodebookWidths.size()) {
    table.encode[kFirstCodebook + kAt] = encode_codebook<kCodebookWidths[kAt]>;
    fill_encode_codebook<kAt + 1>(table);
  }
}

void export_encode_codebook(KernelTable& table) {
  fill_encode_codebook(table);
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_encode_codebook);

void bind_encode_codebook(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_encode_codebook), table);
}

}  // namespace pagekv::inline v0::internal
#endif
