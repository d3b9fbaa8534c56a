// Scores: dot products of queries with the keys of a tile, 16 tokens in vector lanes.
//
// The one arithmetic, whichever function runs: a token's even dims are summed in ascending order in
// one chain, its odd dims in another, and the two are added at the end. A token's score thus
// depends on its own lane only.
#include <cstddef>
#include <cstdint>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/score.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// Two chains per query in registers: 16 of 32 with AVX-512, 8 of 16 elsewhere.
inline constexpr int kNarrowQueries = kLanes == 16 ? 8 : 4;
// Two vectors of tokens per query and one chain at a time: 24 of 32 registers, or 12 of 16.
inline constexpr int kWideBlock = kLanes == 16 ? 12 : 6;
inline constexpr std::int64_t kWideTokens = 2 * kLanes < kTileTokens ? kTileTokens : 2 * kLanes;

// Tiles scored together: two where their sums fit, which halves the loads of queries.
template <int kQueries>
inline constexpr int kTilesOf = kLanes == 16 && kQueries <= 4 ? 2 : 1;

// kTiles neighbouring tiles from `first` on.
template <DType kType, int kQueries, int kTiles>
HWY_INLINE void score_tiles(const SpanTiles& span, std::int64_t first, std::int64_t key_dim,
                            const float* packed_q, AskAhead& ask, float* logits) {
  const FloatTag d;
  const std::byte* keys[kTiles];
  for (int tile = 0; tile < kTiles; ++tile) {
    keys[tile] = span.k[static_cast<std::size_t>(first + tile)][0];
  }
  for (std::int64_t lane = 0; lane < kTileTokens; lane += kLanes) {
    FloatVec even[kTiles * kQueries];
    FloatVec odd[kTiles * kQueries];
    HWY_UNROLL(8)
    for (int i = 0; i < kTiles * kQueries; ++i) even[i] = odd[i] = hn::Zero(d);
    for (std::int64_t pair = 0; pair < key_dim / 2; ++pair) {
      FloatVec even_keys[kTiles];  // not DimPair: g++ makes no array of it for NEON
      FloatVec odd_keys[kTiles];
      HWY_UNROLL(2)
      for (int tile = 0; tile < kTiles; ++tile) {
        ask();
        const DimPair k = load_key_pair<kType>(keys[tile], pair, lane);
        even_keys[tile] = k.even;
        odd_keys[tile] = k.odd;
      }
      const float* q = packed_q + 2 * pair * kNarrowQueries;
      HWY_UNROLL(8)
      for (int i = 0; i < kTiles * kQueries; ++i) {
        even[i] = hn::MulAdd(hn::Set(d, q[i / kTiles]), even_keys[i % kTiles], even[i]);
        odd[i] =
            hn::MulAdd(hn::Set(d, q[kNarrowQueries + i / kTiles]), odd_keys[i % kTiles], odd[i]);
      }
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kTiles * kQueries; ++i) {
      float* to = logits + i / kTiles * kSpanTokens + (first + i % kTiles) * kTileTokens + lane;
      hn::StoreU(hn::Add(even[i], odd[i]), d, to);
    }
  }
}

template <DType kType, int kQueries>
void score_span(const SpanTiles& span, std::int64_t key_dim, const float* packed_q, AskAhead& ask,
                float* logits) {
  constexpr int kTogether = kTilesOf<kQueries>;
  std::int64_t tile = span.first_tile;
  for (; tile + kTogether <= span.end_tile; tile += kTogether) {
    score_tiles<kType, kQueries, kTogether>(span, tile, key_dim, packed_q, ask, logits);
  }
  for (; tile < span.end_tile; ++tile) {
    score_tiles<kType, kQueries, 1>(span, tile, key_dim, packed_q, ask, logits);
  }
}

template <DType kType, int kQueries = kNarrowQueries>
HWY_INLINE auto pick_score_span(std::int64_t queries) -> decltype(&score_span<kType, 1>) {
  if constexpr (kQueries == 1) {
    return score_span<kType, 1>;
  } else {
    return queries >= kQueries ? score_span<kType, kQueries>
                               : pick_score_span<kType, kQueries - 1>(queries);
  }
}

template <DType kType>
void score_narrow(const SpanTiles& span, std::int64_t key_dim, AskAhead& ask, const float* packed_q,
                  std::int64_t queries, float* logits) {
  ask.spread((span.end_tile - span.first_tile) * kTileVectors * key_dim / 2);
  for (std::int64_t first = 0; first < queries; first += kNarrowQueries) {
    pick_score_span<kType>(queries - first)(span, key_dim, packed_q + first * key_dim, ask,
                                            logits + first * kSpanTokens);
  }
}

template <DType kType>
void widen_keys(const ConstPlanePointers& planes, const SideShape& shape, float* out) {
  const FloatTag d;
  const std::byte* tile = planes[0];
  for (std::int64_t pair = 0; pair < shape.dim / 2; ++pair) {
    float* dims = out + 2 * pair * kTileTokens;
    for (std::int64_t lane = 0; lane < kTileTokens; lane += kLanes) {
      const DimPair k = load_key_pair<kType>(tile, pair, lane);
      hn::StoreU(k.even, d, dims + lane);
      hn::StoreU(k.odd, d, dims + kTileTokens + lane);
    }
  }
}

// One chain (`first_dim` 0: even, 1: odd) of kWideBlock queries for 2 * kLanes tokens. `low` and
// `high`: [key_dim][16] floats, of one tile or of two neighbours.
template <bool kOdd>
HWY_INLINE void score_chain(const float* low, const float* high, std::int64_t key_dim,
                            const float* packed_q, float* logits) {
  const FloatTag d;
  FloatVec sums[2 * kWideBlock];
  HWY_UNROLL(24)
  for (int i = 0; i < 2 * kWideBlock; ++i) sums[i] = hn::Zero(d);
  for (std::int64_t dim = kOdd ? 1 : 0; dim < key_dim; dim += 2) {
    const FloatVec k_low = hn::LoadU(d, low + dim * kTileTokens);
    const FloatVec k_high = hn::LoadU(d, high + dim * kTileTokens);
    const float* q = packed_q + dim * kWideBlock;
    HWY_UNROLL(12)
    for (int i = 0; i < kWideBlock; ++i) {
      const FloatVec q_dim = hn::Set(d, q[i]);
      sums[2 * i] = hn::MulAdd(q_dim, k_low, sums[2 * i]);
      sums[2 * i + 1] = hn::MulAdd(q_dim, k_high, sums[2 * i + 1]);
    }
  }
  HWY_UNROLL(12)
  for (int i = 0; i < kWideBlock; ++i) {
    float* row = logits + i * kSpanTokens;
    if constexpr (kOdd) {
      sums[2 * i] = hn::Add(hn::LoadU(d, row), sums[2 * i]);
      sums[2 * i + 1] = hn::Add(hn::LoadU(d, row + kLanes), sums[2 * i + 1]);
    }
    hn::StoreU(sums[2 * i], d, row);
    hn::StoreU(sums[2 * i + 1], d, row + kLanes);
  }
}

void score_wide(const float* tiles, std::int64_t key_dim, const float* packed_q, float* logits) {
  for (std::int64_t token = 0; token < kWideTokens; token += 2 * kLanes) {
    const auto lanes_at = [&](std::int64_t t) {
      return tiles + t / kTileTokens * kTileTokens * key_dim + t % kTileTokens;
    };
    const float* low = lanes_at(token);
    const float* high = lanes_at(token + kLanes);
    score_chain<false>(low, high, key_dim, packed_q, logits + token);
    score_chain<true>(low, high, key_dim, packed_q, logits + token);
  }
}

void export_score(KernelTable& table) {
  table.score_narrow = {score_narrow<DType::f32>, score_narrow<DType::f16>,
                        score_narrow<DType::bf16>};
  table.narrow_queries = kNarrowQueries;
  table.widen_keys[dtype_index(DType::f32)] = widen_keys<DType::f32>;
  table.widen_keys[dtype_index(DType::f16)] = widen_keys<DType::f16>;
  table.widen_keys[dtype_index(DType::bf16)] = widen_keys<DType::bf16>;
  table.score_wide = score_wide;
  table.wide_queries = kWideBlock;
  table.wide_tiles = kWideTokens / kTileTokens;
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_score);

void bind_score(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_score), table);
}

}  // namespace pagekv::inline v0::internal
#endif
