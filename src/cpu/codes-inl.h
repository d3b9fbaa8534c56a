// Attention over affine codes in integers (cpu/code_weights.h), for one way of multiplying quads.
//
// No include guard: see cpu/quads-inl.h.

#include "cpu/quads-inl.h"

// Of values that fit: the instruction alone, where Highway looks for those that do not.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToSigned<D>> nearest_integers(D /* d */, hn::Vec<D> values) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kLanesOf<D> == 16) {
    return hn::Vec<hn::RebindToSigned<D>>{_mm512_cvtps_epi32(values.raw)};
  }
#endif
  return hn::NearestInt(values);
}

// Integers for values of at most `largest` magnitude: what they are multiples of, and which.
struct Multiples {
  float factor;
  HWY_INLINE explicit Multiples(float largest)
      : lift_(largest < 1e-30f ? 0x1p64f : 1.0f),
        inverse_(largest == 0.0f ? 0.0f : kLargestInteger / (largest * lift_)) {
    factor = largest * lift_ / kLargestInteger / lift_;
  }
  template <class D>
  HWY_INLINE hn::Vec<hn::RebindToSigned<D>> of(D d, hn::Vec<D> values) const {
    const auto lifted = hn::Mul(values, hn::Set(d, lift_));
    return nearest_integers(d, hn::Mul(lifted, hn::Set(d, inverse_)));
  }

 private:
  float lift_;  // small values are made larger first, so that the inverse is finite
  float inverse_;
};

template <class D>
HWY_INLINE float sum_lanes(D d, hn::Vec<D> v) {
  return reduce_lanes(d, v, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
}

#include "cpu/code_keys-inl.h"
#include "cpu/code_values-inl.h"

template <std::size_t kAt = 0>
void fill_codes(KernelTable& table) {
  if constexpr (kAt < kAffineWidths.size()) {
    constexpr int kBits = kAffineWidths[kAt];
    table.codes.pack_query[kAt] = pack_code_query<kBits>;
    table.codes.key_step[kAt] = KeyStep<kBits>::kDims;
    table.codes.score[kAt] = score_codes<kBits>;
    table.codes.spread_keys[kAt] = spread_keys<kBits>;
    table.codes.prepare_rows[kAt] = prepare_code_rows<kBits>;
    table.codes.positions[kAt] = code_positions<kBits>;
    fill_codes<kAt + 1>(table);
  } else {
    table.codes.weigh = weigh_codes;
    table.codes.add = add_codes;
    table.codes.load_scales = load_code_scales;
    table.codes.finish_scores = finish_scores;
    table.codes.finish_sums = finish_sums;
  }
}

#if PAGEKV_VNNI
template <std::size_t kAt = 0>
void fill_looked_up(KernelTable& table) {
  if constexpr (kAt < kCodebookWidths.size()) {
    constexpr int kBits = kCodebookWidths[kAt];
    if constexpr (kBits <= kMostLookedUpBits) {
      constexpr std::size_t kCodec = kFirstCodebook - kFirstAffine + kAt;
      table.codes.prepare_rows[kCodec] = prepare_code_rows<kBits>;
      table.codes.positions[kCodec] = code_positions<kBits>;
    }
    fill_looked_up<kAt + 1>(table);
  }
}
#endif
