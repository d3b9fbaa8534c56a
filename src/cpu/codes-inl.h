// Attention over affine codes in integers (cpu/code_weights.h), for one way of multiplying quads.
//
// No include guard: see cpu/quads-inl.h.

#include "cpu/quads-inl.h"

// How many times as large `largest` is made before integers are found, so that its inverse is
// finite.
HWY_INLINE float lift_of(float largest) {
  return largest < 1e-30f ? 0x1p64f : 1.0f;
}

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
    table.codes.prepare_rows[kAt] = prepare_code_rows<kBits>;
    table.codes.positions[kAt] = code_positions<kBits>;
    fill_codes<kAt + 1>(table);
  } else {
    table.codes.weigh = weigh_codes;
    table.codes.add = add_codes;
  }
}
