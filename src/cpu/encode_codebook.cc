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
inline constexpr int kSearchVectors = kLanes == 16 ? 4 : kLanes == 8 ? 2 : 1;

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

// Encodes groups of one vector.
template <int kBits>
class GroupEncoder {
 public:
  // Codes of the group at `values`, which is spoiled; returns the scale.
  HWY_INLINE float operator()(float* values, std::int64_t count, ScaleFit fit,
                              std::uint8_t* codes) const {
    const std::int32_t largest = largest_magnitude(values, count);
    if (largest == 0) {
      choose_all({values, count}, 1.0f, codes);
      return 0.0f;
    }
    // The exponent of numbers below 2^-126 counts as -127 here: it is clamped all the same.
    const std::int32_t exponent = std::clamp((largest >> 23) - 127, -126, 126);
    const float squares = normalise(values, count, power_of_two(-exponent));
    const Group group{values, count};
    const float rms = std::sqrt(squares / static_cast<float>(count));
    float inverse_scale = 1.0f / rms;
    float scale = rms;
    if (fit == ScaleFit::norm) scale = std::sqrt(squares / codes_norm(group, inverse_scale));
    if (fit == ScaleFit::search) scale = search(group, inverse_scale);
    choose_all(group, inverse_scale, codes);
    return std::min(scale * power_of_two(exponent), std::numeric_limits<float>::max());
  }

 private:
  static float power_of_two(std::int32_t exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
  }

  // In place, elements times a power of two. Returns the sum of their squares.
  static HWY_INLINE float normalise(float* values, std::int64_t count, float factor) {
    const TailTag d;
    PartialSums<TailTag> squares;
    for (std::int64_t i = 0; i < count; i += 8) {
      HWY_UNROLL(8)
      for (int part = 0; part < PartialSums<TailTag>::kParts; ++part) {
        float* at = values + i + part * kTailLanes;
        const auto u = hn::Mul(hn::LoadU(d, at), hn::Set(d, factor));
        hn::StoreU(u, d, at);
        squares.parts[part] = hn::Add(squares.parts[part], hn::Mul(u, u));
      }
    }
    float sum;
    squares.store(&sum);
    return sum;
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
  const GroupEncoder<kBits> encode_group;
  CodeRoom<kBits> room;
  std::uint8_t* codes = room.codes(to[0]);
  alignas(64) std::array<float, kMaxGroups> scales;
  const std::int64_t groups = rows * shape.groups;
  std::fill_n(scales.data() + (groups - 1) / 8 * 8, 8, 0.0f);  // store_scales() reads on
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::int64_t at = group * shape.group;
    scales[static_cast<std::size_t>(group)] =
        encode_group(values + at, shape.group, shape.fit, codes + at);
  }
  store_scales(shape.scales, scales.data(), groups, to[1]);
  room.pack(rows, shape.dim, to[0]);
  return refused;
}

template <std::size_t kAt = 0>
void fill(KernelTable& table) {
  if constexpr (kAt < kCodebookWidths.size()) {
    table.encode[kFirstCodebook + kAt] = encode_codebook<kCodebookWidths[kAt]>;
    fill<kAt + 1>(table);
  }
}

void export_encode_codebook(KernelTable& table) {
  fill(table);
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
