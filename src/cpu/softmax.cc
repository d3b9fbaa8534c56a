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
inline constexpr std::int64_t kTileVectors = kTileTokens / kLanes;

// exp(x) for x <= 0, with -infinity and whatever underflows giving exactly 0: Exp() takes finite
// arguments and returns 0 below -104.
template <class D>
HWY_INLINE hn::Vec<D> exp_below_one(D d, hn::Vec<D> x) {
  return hn::Exp(d, hn::Max(x, hn::Set(d, -120.0f)));
}

HWY_INLINE float exp_scalar(float x) {
  const hn::CappedTag<float, 1> d1;
  return hn::GetLane(exp_below_one(d1, hn::Set(d1, x)));
}

// Scale and soft-cap in place on tokens [first, last). A pass of its own: folded into the masking
// pass as a branch, g++ 12 at -O3 compiles the AVX-512 code wrongly (15 of 16 lanes stay uncapped).
void cap_logits(float* logits, std::int64_t first, std::int64_t last, const LogitMap& map) {
  const FloatTag d;
  const FloatVec scale = hn::Set(d, map.scale);
  const FloatVec cap = hn::Set(d, map.softcap);
  // tanh is 1 in f32 well before 20; beyond, Tanh() would convert huge numbers to integers.
  const FloatVec high = hn::Set(d, 20.0f);
  const FloatVec low = hn::Set(d, -20.0f);
  for (std::int64_t t = first; t < last; t += kLanes) {
    const FloatVec ratio = hn::Div(hn::Mul(hn::LoadU(d, logits + t), scale), cap);
    const FloatVec bounded = hn::Max(hn::Min(ratio, high), low);
    hn::StoreU(hn::Mul(cap, hn::Tanh(d, bounded)), d, logits + t);
  }
}

HWY_INLINE FloatVec round_to_bf16(FloatVec p) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const auto bits = hn::BitCast(du, p);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd);
  return hn::BitCast(d, hn::And(rounded, hn::Set(du, 0xffff0000u)));
}

template <typename Reduce>
HWY_INLINE float reduce_tile(float* partial, Reduce reduce) {
  for (std::int64_t half = kTileTokens / 2; half > 0; half /= 2) {
    for (std::int64_t i = 0; i < half; ++i) partial[i] = reduce(partial[i], partial[i + half]);
  }
  return partial[0];
}

SoftmaxState softmax(float* logits, std::int64_t begin, std::int64_t end, const LogitMap& map) {
  const FloatTag d;
  const FloatVec zero = hn::Zero(d);
  if (begin >= end) {
    std::fill(logits, logits + kSpanTokens, 0.0f);
    return {};
  }
  const std::int64_t first = begin / kTileTokens * kTileTokens;
  const std::int64_t last = (end + kTileTokens - 1) / kTileTokens * kTileTokens;
  std::fill(logits, logits + first, 0.0f);
  std::fill(logits + last, logits + kSpanTokens, 0.0f);

  alignas(64) float partial[kTileTokens];
  const FloatVec first_visible = hn::Set(d, static_cast<float>(begin));
  const FloatVec end_visible = hn::Set(d, static_cast<float>(end));
  FloatVec max = hn::Set(d, kMinusInfinity);
  const bool capped = map.softcap > 0.0f;
  if (capped) cap_logits(logits, first, last, map);
  const FloatVec scale = hn::Set(d, capped ? 1.0f : map.scale);
  for (std::int64_t t = first; t < last; t += kLanes) {
    const FloatVec token = hn::Iota(d, static_cast<float>(t));
    const auto visible = hn::And(hn::Ge(token, first_visible), hn::Lt(token, end_visible));
    const FloatVec logit = hn::IfThenElse(visible, hn::Mul(hn::LoadU(d, logits + t), scale),
                                          hn::Set(d, kMinusInfinity));
    max = hn::Max(max, logit);
    hn::StoreU(logit, d, logits + t);
  }
  for (std::int64_t i = 0; i < kTileTokens; ++i) partial[i] = kMinusInfinity;
  hn::StoreU(max, d, partial);
  const float span_max =
      reduce_tile(partial, [](float a, float b) HWY_ATTR { return a < b ? b : a; });

  FloatVec sums[kTileVectors];
  for (FloatVec& sum : sums) sum = zero;
  const FloatVec shift = hn::Set(d, span_max);
  for (std::int64_t t = first; t < last; t += kTileTokens) {
    HWY_UNROLL(16)
    for (std::int64_t i = 0; i < kTileVectors; ++i) {
      float* at = logits + t + i * kLanes;
      FloatVec p = exp_below_one(d, hn::Sub(hn::LoadU(d, at), shift));
      if (map.round_to_bf16) p = round_to_bf16(p);
      sums[i] = hn::Add(sums[i], p);
      hn::StoreU(p, d, at);
    }
  }
  for (std::int64_t i = 0; i < kTileVectors; ++i) hn::StoreU(sums[i], d, partial + i * kLanes);
  return {span_max, reduce_tile(partial, [](float a, float b) HWY_ATTR { return a + b; })};
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
      fold_max(left, right.max, [](float x) HWY_ATTR { return exp_scalar(x); });
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
  table.softmax = softmax;
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
