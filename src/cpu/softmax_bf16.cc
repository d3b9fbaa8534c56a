// The softmax of one row over one span whose p become bf16, for the matrix unit and for few queries
// beside it (cpu/matrix_kernels.h). Processors with a matrix unit have AVX-512 and an instruction
// that rounds to bf16.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax_bf16.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
static_assert(kLanes == kTileTokens);

// p are made, stored and summed in pairs of tiles.
constexpr std::int64_t kPairTokens = 2 * kTileTokens;
constexpr std::int64_t kPairs = kSpanTokens / kPairTokens;
using PairBits = std::uint32_t;
constexpr PairBits kAllBits = std::numeric_limits<PairBits>::max();

// Which tokens of each pair of tiles a row sees.
struct Visible {
  PairBits pairs[kPairs];
  bool all;

  void set(TokenRange range, const SpanBits* bits) {
    all = true;
    for (std::int64_t pair = 0; pair < kPairs; ++pair) {
      const std::int64_t first = pair * kPairTokens;
      PairBits seen = up_to(range.end - first) & ~up_to(range.begin - first);
      if (bits != nullptr) {
        seen &= static_cast<PairBits>((*bits)[static_cast<std::size_t>(first / 64)] >> first % 64);
      }
      pairs[pair] = seen;
      all = all && seen == kAllBits;
    }
  }

  static PairBits up_to(std::int64_t tokens) {
    if (tokens <= 0) return 0;
    return tokens >= kPairTokens ? kAllBits : (PairBits{1} << tokens) - 1;
  }
};

// Two tiles of logits, those not seen -infinity.
struct TilePair {
  __m512 first;
  __m512 second;
};
template <bool kAll>
HWY_INLINE TilePair load_pair(const float* logits, const Visible& visible, std::int64_t pair) {
  const float* from = logits + pair * kPairTokens;
  if constexpr (kAll) return {_mm512_loadu_ps(from), _mm512_loadu_ps(from + kTileTokens)};
  const PairBits seen = visible.pairs[pair];
  const __m512 none = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  return {
      _mm512_mask_loadu_ps(none, static_cast<__mmask16>(seen), from),
      _mm512_mask_loadu_ps(none, static_cast<__mmask16>(seen >> kTileTokens), from + kTileTokens)};
}

template <bool kAll>
HWY_INLINE float largest(const float* logits, const Visible& visible) {
  __m512 most = _mm512_set1_ps(-std::numeric_limits<float>::infinity());
  HWY_UNROLL(4)
  for (std::int64_t pair = 0; pair < kPairs; ++pair) {
    const TilePair at = load_pair<kAll>(logits, visible, pair);
    most = _mm512_max_ps(most, _mm512_max_ps(at.first, at.second));
  }
  return _mm512_reduce_max_ps(most);
}

// 2^x for x <= 0, relative error below 3e-6; 0 where bf16 cannot tell it from that, as for
// -infinity and NaN. The minimax polynomial of degree 4 on [0, 1).
HWY_INLINE __m512 exp2_below_one(__m512 x) {
  constexpr int kLessFloor = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  x = _mm512_max_ps(x, _mm512_set1_ps(-200.0f));  // of NaN the second
  const __m512 f = _mm512_reduce_ps(x, kLessFloor);
  __m512 power = _mm512_set1_ps(1.35341678e-2f);
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(5.20114601e-2f));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(2.41442755e-1f));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(6.93003833e-1f));
  power = _mm512_fmadd_ps(power, f, _mm512_set1_ps(1.00000262f));
  return _mm512_scalef_ps(power, x);
}

// Of numbers that are finite and not negative: `first` in the lower half. The instruction itself,
// since Highway's target AVX3 is of processors that may not have it.
HWY_INLINE __m512i round_pair(__m512 first, __m512 second) {
  __m512i rounded;
  __asm__("vcvtne2ps2bf16 %1, %2, %0" : "=v"(rounded) : "v"(first), "v"(second));
  return rounded;
}
// sums + both of a lane's bf16.
HWY_INLINE __m512 add_pair(__m512 sums, __m512i pair) {
  const __m512i ones = _mm512_set1_epi32(0x3f803f80);
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(pair), "v"(ones));
  return sums;
}

HWY_INLINE __m512i widen_half(__m256i bf16) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16);
}

template <bool kPacked>
HWY_INLINE void store_pair(__m512i p, std::int64_t pair, float* logits) {
  if constexpr (kPacked) {
    _mm512_storeu_si512(reinterpret_cast<std::uint16_t*>(logits) + pair * kPairTokens, p);
  } else {
    float* to = logits + pair * kPairTokens;
    _mm512_storeu_si512(to, widen_half(_mm512_castsi512_si256(p)));
    _mm512_storeu_si512(to + kTileTokens, widen_half(_mm512_extracti64x4_epi64(p, 1)));
  }
}

// p = 2^(factor * logit - max), in place, bf16 from logits[0] on where kPacked; returns their sum.
template <bool kAll, bool kPacked>
HWY_INLINE float exp_all(float* logits, const Visible& visible, float factor, float max) {
  const __m512 scale = _mm512_set1_ps(factor);
  const __m512 shift = _mm512_set1_ps(max);
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  HWY_UNROLL(4)
  for (std::int64_t pair = 0; pair < kPairs; ++pair) {
    const TilePair at = load_pair<kAll>(logits, visible, pair);
    // The products are rounded as the max is: none exceeds it.
    const __m512 first = _mm512_sub_ps(_mm512_mul_ps(at.first, scale), shift);
    const __m512 second = _mm512_sub_ps(_mm512_mul_ps(at.second, scale), shift);
    const __m512i p = round_pair(exp2_below_one(first), exp2_below_one(second));
    sums[pair % 2] = add_pair(sums[pair % 2], p);
    store_pair<kPacked>(p, pair, logits);
  }
  return _mm512_reduce_add_ps(_mm512_add_ps(sums[0], sums[1]));
}

// All maxima first, as in cpu/softmax.cc.
template <bool kPacked>
void softmax_bf16(float* logits, const SeenTokens* seen, std::int64_t rows, float factor,
                  SoftmaxState* states) {
  Visible visible[kSoftmaxRows];
  factor = positive_factor(factor, rows, logits);
  for (std::int64_t row = 0; row < rows; ++row) {
    visible[row].set(seen[row].range, seen[row].bits);
    const float* at = logits + row * kSpanTokens;
    const float most =
        visible[row].all ? largest<true>(at, visible[row]) : largest<false>(at, visible[row]);
    states[row].max = seen[row].empty() ? most : most * factor;  // -infinity whatever the factor
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    float* at = logits + row * kSpanTokens;
    const float max = states[row].max;
    states[row].sum = visible[row].all ? exp_all<true, kPacked>(at, visible[row], factor, max)
                                       : exp_all<false, kPacked>(at, visible[row], factor, max);
  }
}

void export_softmax_bf16(KernelTable& table) {
  table.matrix.softmax = softmax_bf16<false>;
  table.matrix.softmax_packed = softmax_bf16<true>;
}
#else
void export_softmax_bf16(KernelTable& /* table */) {}
#endif

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_softmax_bf16);

void bind_softmax_bf16(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_softmax_bf16), table);
}

}  // namespace pagekv::inline v0::internal
#endif
