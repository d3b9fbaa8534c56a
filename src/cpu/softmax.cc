// The softmax of one row over one span, and the fold of states.
//
// p is summed by token position within the tile (16 partial sums, tiles in ascending order), then
// by a fixed tree: the same bits for every vector width that shares an exp.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/softmax.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/vector-inl.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// 2^f for f in [-1/2, 1/2], exactly 1 at 0: the minimax polynomial of degree 6, relative error
// 1.9e-9, or of degree 4, relative error 2.9e-6, for what will be rounded.
template <bool kShort, class D>
HWY_INLINE hn::Vec<D> exp2_of_fraction(D d, hn::Vec<D> f) {
  if constexpr (kShort) {
    auto power = hn::Set(d, 9.58285481e-3f);
    power = hn::MulAdd(power, f, hn::Set(d, 5.59064299e-2f));
    power = hn::MulAdd(power, f, hn::Set(d, 2.40240991e-1f));
    power = hn::MulAdd(power, f, hn::Set(d, 6.93124175e-1f));
    return hn::MulAdd(power, f, hn::Set(d, 1.0f));
  }
  auto power = hn::Set(d, 1.5345812e-4f);
  power = hn::MulAdd(power, f, hn::Set(d, 1.33999309e-3f));
  power = hn::MulAdd(power, f, hn::Set(d, 9.61848907e-3f));
  power = hn::MulAdd(power, f, hn::Set(d, 5.55032864e-2f));
  power = hn::MulAdd(power, f, hn::Set(d, 2.40226462e-1f));
  power = hn::MulAdd(power, f, hn::Set(d, 6.93147182e-1f));
  return hn::MulAdd(power, f, hn::Set(d, 1.0f));
}

// 2^x for x <= 0, relative error below 2e-7 (kShort: 3e-6); exactly 1 at 0, exactly 0 below -125,
// where -infinity and NaN are.
template <bool kShort = false, class D>
HWY_INLINE hn::Vec<D> exp2_below_one(D d, hn::Vec<D> x) {
  const auto least = hn::Set(d, -125.0f);
#if HWY_TARGET == HWY_AVX3
  if constexpr (kLanesOf<D> == 16) {  // the same bits: a power of two is an exact factor
    const auto whole = hn::Round(x);
    const auto power = exp2_of_fraction<kShort>(d, hn::Sub(x, whole));
    return hn::Vec<D>{_mm512_maskz_scalef_ps(hn::Ge(x, least).raw, power.raw, whole.raw)};
  }
#endif
  const auto clamped = hn::Max(x, least);
  const auto whole = hn::Round(clamped);
  const hn::RebindToSigned<D> di;
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, whole));
  const auto power = exp2_of_fraction<kShort>(d, hn::Sub(clamped, whole));
  const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, power), exponent));
  return hn::IfThenElseZero(hn::Ge(x, least), scaled);
}

HWY_INLINE float exp2_scalar(float x) {
  const hn::CappedTag<float, 1> d1;
  return hn::GetLane(exp2_below_one(d1, hn::Set(d1, x)));
}

// Not a branch in the masking pass: there g++ 12 at -O3 compiles the AVX-512 code wrongly (15 of 16
// lanes stay uncapped).
void cap_logits(float* logits, TokenRange range, const LogitMap& map) {
  const FloatTag d;
  const FloatVec scale = hn::Set(d, map.scale);
  const FloatVec cap = hn::Set(d, map.softcap);
  // tanh is 1 in f32 well before 20; beyond, Tanh() would convert huge numbers to integers.
  const FloatVec high = hn::Set(d, 20.0f);
  const FloatVec low = hn::Set(d, -20.0f);
  for (std::int64_t t = range.begin / kTileTokens * kTileTokens; t < range.end; t += kLanes) {
    const FloatVec ratio = hn::Div(hn::Mul(hn::LoadU(d, logits + t), scale), cap);
    const FloatVec bounded = hn::Max(hn::Min(ratio, high), low);
    hn::StoreU(hn::Mul(cap, hn::Tanh(d, bounded)), d, logits + t);
  }
}

// Tokens of a tile outside `range` get -infinity.
HWY_INLINE void mask_tile(float* logits, std::int64_t tile, TokenRange range) {
  const FloatTag d;
  const FloatVec first = hn::Set(d, static_cast<float>(range.begin));
  const FloatVec last = hn::Set(d, static_cast<float>(range.end));
  for (std::int64_t at = tile; at < tile + kTileTokens; at += kLanes) {
    const FloatVec token = hn::Iota(d, static_cast<float>(at));
    const auto visible = hn::And(hn::Ge(token, first), hn::Lt(token, last));
    const FloatVec logit = hn::LoadU(d, logits + at);
    hn::StoreU(hn::IfThenElse(visible, logit, hn::Set(d, kMinusInfinity)), d, logits + at);
  }
}

// Tokens of whole tiles that have no bit get -infinity.
HWY_NOINLINE void mask_bits(float* logits, TokenRange tiles, const SpanBits& visible) {
  const FloatTag d;
  for (std::int64_t at = tiles.begin; at < tiles.end; at += kLanes) {
    const std::uint64_t word = visible[static_cast<std::size_t>(at / 64)] >> (at % 64);
    std::uint8_t bytes[8];  // as many are read, whatever the vector's width
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<std::uint8_t>(word >> (8 * i));
    const FloatVec logit = hn::LoadU(d, logits + at);
    hn::StoreU(hn::IfThenElse(hn::LoadMaskBits(d, bytes), logit, hn::Set(d, kMinusInfinity)), d,
               logits + at);
  }
}

// The largest logit of whole tiles.
HWY_INLINE float largest(const float* logits, TokenRange tiles) {
  const FloatTag d;
  FloatVec max[kTileVectors];
  for (FloatVec& each : max) each = hn::Set(d, kMinusInfinity);
  for (std::int64_t tile = tiles.begin; tile < tiles.end; tile += kTileTokens) {
    HWY_UNROLL(16)
    for (std::int64_t i = 0; i < kTileVectors; ++i) {
      max[i] = hn::Max(max[i], hn::LoadU(d, logits + tile + i * kLanes));
    }
  }
  return reduce_tile(max, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); });
}

// p = 2^(factor * logit - max) of whole tiles, in place; returns their sum.
template <bool kShort>
HWY_INLINE float exp_all(float* logits, TokenRange tiles, float factor, float max) {
  const FloatTag d;
  const FloatVec scale = hn::Set(d, factor);
  const FloatVec shift = hn::Set(d, max);
  FloatVec sums[kTileVectors];
  for (FloatVec& sum : sums) sum = hn::Zero(d);
  for (std::int64_t tile = tiles.begin; tile < tiles.end; tile += kTileTokens) {
    HWY_UNROLL(16)
    for (std::int64_t i = 0; i < kTileVectors; ++i) {
      float* at = logits + tile + i * kLanes;
      // The product is rounded as the max is: none exceeds it.
      const FloatVec x = hn::Sub(hn::Mul(hn::LoadU(d, at), scale), shift);
      const FloatVec p = exp2_below_one<kShort>(d, x);
      hn::StoreU(p, d, at);
      sums[i] = hn::Add(sums[i], p);
    }
  }
  return reduce_tile(sums, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
}

// Whole tiles of a range.
HWY_INLINE TokenRange tiles_around(TokenRange range) {
  return {range.begin / kTileTokens * kTileTokens,
          (range.end + kTileTokens - 1) / kTileTokens * kTileTokens};
}

// The largest of what a row sees; what it does not see of these tiles is -infinity.
HWY_INLINE float mask_and_find_largest(float* logits, const SeenTokens& seen) {
  const TokenRange range = seen.range;
  const TokenRange tiles = tiles_around(range);
  if (range.begin > tiles.begin) mask_tile(logits, tiles.begin, range);
  if (range.end < tiles.end) mask_tile(logits, tiles.end - kTileTokens, range);
  if (seen.bits != nullptr) mask_bits(logits, tiles, *seen.bits);
  return largest(logits, tiles);
}

template <bool kShort>
HWY_INLINE float exp_seen(float* logits, const SeenTokens& seen, float factor, float max) {
  if (seen.empty()) {
    std::fill_n(logits, kSpanTokens, 0.0f);
    return 0.0f;
  }
  const TokenRange tiles = tiles_around(seen.range);
  const float sum = exp_all<kShort>(logits, tiles, factor, max);
  std::fill(logits, logits + tiles.begin, 0.0f);
  std::fill(logits + tiles.end, logits + kSpanTokens, 0.0f);
  return sum;
}

// All maxima first: what waits for one keeps a processor from looking further ahead.
template <bool kShort>
void softmax(float* logits, const SeenTokens* seen, std::int64_t rows, float factor,
             SoftmaxState* states) {
  factor = positive_factor(factor, rows, logits);
  for (std::int64_t row = 0; row < rows; ++row) {
    float* at = logits + row * kSpanTokens;
    states[row].max =
        seen[row].empty() ? kMinusInfinity : mask_and_find_largest(at, seen[row]) * factor;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    states[row].sum =
        exp_seen<kShort>(logits + row * kSpanTokens, seen[row], factor, states[row].max);
  }
}

// out = left_factor * left + right_factor * right, over dims in lanes. Adding 0 turns -0 into 0: a
// masked token may have left either.
template <class D>
HWY_INLINE void fold_block(D d, const FoldFactors& factors, bool take_right, float* left,
                           const float* right) {
  hn::Vec<D> sum = hn::Add(hn::LoadU(d, right), hn::Zero(d));
  if (!take_right) {
    sum = hn::MulAdd(hn::Set(d, factors.right), sum,
                     hn::Mul(hn::Set(d, factors.left), hn::LoadU(d, left)));
  }
  hn::StoreU(sum, d, left);
}

void fold(SoftmaxState& left, float* left_out, const SoftmaxState& right, const float* right_out,
          std::int64_t dims) {
  if (right.max == kMinusInfinity) return;  // not a bit changes
  const bool take_right = left.max == kMinusInfinity;
  const FoldFactors factors =
      fold_max(left, right.max, [](float x) HWY_ATTR { return exp2_scalar(x); });
  left.sum = take_right ? right.sum : left.sum * factors.left + right.sum * factors.right;
  std::int64_t dim = 0;
  for (; dim + kLanes <= dims; dim += kLanes) {
    fold_block(FloatTag(), factors, take_right, left_out + dim, right_out + dim);
  }
  if (dim < dims) fold_block(TailTag(), factors, take_right, left_out + dim, right_out + dim);
}

void divide(float* values, float divisor, std::int64_t count) {
  const TailTag d;
  constexpr std::int64_t kWidth = static_cast<std::int64_t>(hn::MaxLanes(TailTag()));
  for (std::int64_t i = 0; i < count; i += kWidth) {
    hn::StoreU(hn::Div(hn::LoadU(d, values + i), hn::Set(d, divisor)), d, values + i);
  }
}

void export_softmax(KernelTable& table) {
  table.cap_logits = cap_logits;
  table.softmax = softmax<false>;
  table.softmax_fast = softmax<true>;
  table.fold = fold;
  table.divide = divide;
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_softmax);

void bind_softmax(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_softmax), table);
}

}  // namespace pagekv::inline v0::internal
#endif
