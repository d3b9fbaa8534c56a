// Scales of the tokens of a span, where they are factored out of sums.
//
// A scale beyond kLarge could overflow in products that the stored elements, which saturate, do
// not. Tokens that have one are marked, left out, and added by their elements.

// Per-target include guard, as Highway's own headers have it.
#if defined(PAGEKV_CPU_SPAN_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEKV_CPU_SPAN_SCALES_INL_H_
#undef PAGEKV_CPU_SPAN_SCALES_INL_H_
#else
#define PAGEKV_CPU_SPAN_SCALES_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/code_weights.h"
#include "cpu/elements-inl.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// Marks tokens from `token` on whose scale is beyond kLarge.
HWY_INLINE void mark_large(FloatTag d, FloatVec scale, std::int64_t token, SpanBits& large) {
  const auto beyond = hn::Gt(hn::Abs(scale), hn::Set(d, kLarge));
  if (HWY_LIKELY(hn::AllFalse(d, beyond))) return;
  alignas(64) float ones[kLanes];
  hn::Store(hn::IfThenElseZero(beyond, hn::Set(d, 1.0f)), d, ones);
  for (std::int64_t i = 0; i < kLanes; ++i, ++token) {
    if (ones[i] != 0.0f)
      large[static_cast<std::size_t>(token / 64)] |= std::uint64_t{1} << token % 64;
  }
}

// Of a tile's tokens, from [token][group] to [group][token].
HWY_INLINE void part_scales(FloatTag d, const float* from, std::int64_t groups, float* to) {
  const hn::RebindToSigned<FloatTag> di;
  const auto offsets = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<std::int32_t>(groups)));
  for (std::int64_t token = 0; token < kTileTokens; token += kLanes, from += kLanes * groups) {
    FloatVec parts[4];
    switch (groups) {
      case 2: hn::LoadInterleaved2(d, from, parts[0], parts[1]); break;
      case 3: hn::LoadInterleaved3(d, from, parts[0], parts[1], parts[2]); break;
      case 4: hn::LoadInterleaved4(d, from, parts[0], parts[1], parts[2], parts[3]); break;
      default: break;
    }
    for (std::int64_t group = 0; group < groups; ++group) {
      const FloatVec part = groups <= 4 ? parts[group] : hn::GatherIndex(d, from + group, offsets);
      hn::StoreU(part, d, to + group * kSpanTokens + token);
    }
  }
}

// Scales or biases of tokens [begin, end) of a tile, from [token][group] to [group][token].
HWY_INLINE void transpose_scales(DType type, const std::byte* plane, std::int64_t groups,
                                 std::int64_t begin, std::int64_t end, float* to) {
  const FloatTag d;
  if (begin == 0 && end == kTileTokens) {
    alignas(64) float widened[kTileTokens * kMaxHeadDim / 16];
    for (std::int64_t i = 0; i < kTileTokens * groups; i += kLanes) {
      hn::StoreU(load_as_f32(d, type, plane, i), d, (groups == 1 ? to : widened) + i);
    }
    if (groups > 1) part_scales(d, widened, groups, to);
    return;
  }
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t token = 0; token < kTileTokens; ++token) {
      to[group * kSpanTokens + token] =
          token < begin || token >= end ? 0.0f : load_one_f32(type, plane, token * groups + group);
    }
  }
}

// Tokens of a tile whose scales are beyond kLarge get none, and are marked; `biases` may be null.
HWY_INLINE void take_out_large(std::int64_t groups, std::int64_t tile, float* scales, float* biases,
                               SpanBits& large) {
  const FloatTag d;
  SpanBits found{};
  for (std::int64_t group = 0; group < groups; ++group) {
    for (std::int64_t lane = 0; lane < kTileTokens; lane += kLanes) {
      const std::int64_t token = tile * kTileTokens + lane;
      mark_large(d, hn::LoadU(d, scales + group * kSpanTokens + token), token, found);
    }
  }
  if (HWY_LIKELY(found == SpanBits{})) return;
  for (std::int64_t token = tile * kTileTokens; token < (tile + 1) * kTileTokens; ++token) {
    const std::uint64_t bit = std::uint64_t{1} << token % 64;
    if ((found[static_cast<std::size_t>(token / 64)] & bit) == 0) continue;
    large[static_cast<std::size_t>(token / 64)] |= bit;
    for (std::int64_t group = 0; group < groups; ++group) {
      scales[group * kSpanTokens + token] = 0.0f;
      if (biases != nullptr) biases[group * kSpanTokens + token] = 0.0f;
    }
  }
}

// scales[group][token] of the span's value tiles, and biases of affine ones. Tokens of these tiles
// that may not be read have none, nor have those with a scale beyond kLarge, which are marked.
HWY_INLINE void load_span_scales(const SpanTiles& span, const SideShape& shape, float* scales,
                                 float* biases, SpanBits& large) {
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const ConstPlanePointers& planes = span.v[static_cast<std::size_t>(tile)];
    const std::int64_t start = tile * kTileTokens;
    const auto [begin, end] = span.rows(tile);
    transpose_scales(shape.scales, planes[1], shape.groups, begin, end, scales + start);
    if (planes[2] != nullptr) {
      transpose_scales(shape.scales, planes[2], shape.groups, begin, end, biases + start);
    }
    take_out_large(shape.groups, tile, scales, planes[2] == nullptr ? nullptr : biases, large);
  }
}

// Sum of p * bias over the span's tiles.
HWY_INLINE float weigh_biases(const SpanTiles& span, const float* p, const float* biases) {
  const FloatTag d;
  FloatVec sums[kTileVectors];
  for (FloatVec& sum : sums) sum = hn::Zero(d);
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    for (std::int64_t i = 0; i < kTileVectors; ++i) {
      const std::int64_t at = tile * kTileTokens + i * kLanes;
      sums[i] = hn::MulAdd(hn::LoadU(d, p + at), hn::LoadU(d, biases + at), sums[i]);
    }
  }
  return reduce_tile(sums, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
