// The matrix unit's arithmetic (cpu/matrix_kernels.h) in vectors, for few queries: reading takes
// longer then than multiplying, and is best spread over it.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/few_rows.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX3
static_assert(kLanes == kTileTokens);

// ---- Scores: 16 tokens in lanes

// kTiles neighbouring tiles from `first` on. Queries come as kQueries * kParts vectors of f32,
// kFewVectors side by side for each dim.
template <int kQueries, int kParts, int kTiles>
HWY_INLINE void score_tiles(const SpanTiles& span, std::int64_t first, std::int64_t dims,
                            const float* packed_q, AskAhead& ask, float* logits) {
  constexpr int kVectors = kQueries * kParts;
  const FloatTag d;
  const std::byte* keys[kTiles];
  for (int tile = 0; tile < kTiles; ++tile) {
    keys[tile] = span.k[static_cast<std::size_t>(first + tile)][0];
  }
  for (std::int64_t step = 0; step < dims; step += kMatrixDims) {
    FloatVec even[kTiles * kVectors];
    FloatVec odd[kTiles * kVectors];
    HWY_UNROLL(8)
    for (int i = 0; i < kTiles * kVectors; ++i) even[i] = odd[i] = hn::Zero(d);
    const std::int64_t end = std::min(step + kMatrixDims, dims);
    for (std::int64_t dim = step; dim < end; dim += 2) {
      FloatVec even_keys[kTiles];  // not DimPair: g++ makes no array of it for NEON
      FloatVec odd_keys[kTiles];
      HWY_UNROLL(2)
      for (int tile = 0; tile < kTiles; ++tile) {
        ask();
        const DimPair k = load_key_pair<DType::bf16>(keys[tile], dim / 2, 0);
        even_keys[tile] = k.even;
        odd_keys[tile] = k.odd;
      }
      const float* q = packed_q + dim * kFewVectors;
      HWY_UNROLL(8)
      for (int i = 0; i < kTiles * kVectors; ++i) {
        even[i] = hn::MulAdd(hn::Set(d, q[i / kTiles]), even_keys[i % kTiles], even[i]);
        odd[i] = hn::MulAdd(hn::Set(d, q[kFewVectors + i / kTiles]), odd_keys[i % kTiles], odd[i]);
      }
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kTiles * kQueries; ++i) {
      float* to = logits + i / kTiles * kSpanTokens + (first + i % kTiles) * kTileTokens;
      FloatVec sum = step == 0 ? hn::Zero(d) : hn::LoadU(d, to);
      HWY_UNROLL(2)
      for (int part = 0; part < kParts; ++part) {
        const int at = (i / kTiles * kParts + part) * kTiles + i % kTiles;
        sum = hn::Add(sum, hn::Add(even[at], odd[at]));
      }
      hn::StoreU(sum, d, to);
    }
  }
}

template <int kQueries, int kParts>
void score_span(const SpanTiles& span, std::int64_t dims, const float* packed_q, AskAhead& ask,
                float* logits) {
  // Two tiles where their sums fit, which halves the loads of queries.
  constexpr int kTogether = kQueries * kParts <= 4 ? 2 : 1;
  std::int64_t tile = span.first_tile;
  for (; tile + kTogether <= span.end_tile; tile += kTogether) {
    score_tiles<kQueries, kParts, kTogether>(span, tile, dims, packed_q, ask, logits);
  }
  for (; tile < span.end_tile; ++tile) {
    score_tiles<kQueries, kParts, 1>(span, tile, dims, packed_q, ask, logits);
  }
}

template <int kParts, int kQueries = kFewVectors / kParts>
HWY_INLINE auto pick_score_span(std::int64_t queries) -> decltype(&score_span<1, kParts>) {
  if constexpr (kQueries == 1) {
    return score_span<1, kParts>;
  } else {
    return queries >= kQueries ? score_span<kQueries, kParts>
                               : pick_score_span<kParts, kQueries - 1>(queries);
  }
}

void score_few(const SpanTiles& span, std::int64_t dim, const float* packed_q, std::int64_t queries,
               std::int64_t parts, AskAhead& ask, float* logits) {
  ask.spread((span.end_tile - span.first_tile) * dim / 2);
  const auto score = parts == 1 ? pick_score_span<1>(queries) : pick_score_span<2>(queries);
  score(span, dim, packed_q, ask, logits);
}

// ---- Values: dims in lanes

struct FewRows {
  const SpanTiles& span;
  std::int64_t dim;
  const float* p;
  float* out;
  std::int64_t stride;
};

// Adds every second row of one tile to its chain, dims [dim, dim + kCount * Lanes(d)).
template <int kQueries, int kCount, class D>
HWY_INLINE void add_tile(D d, const FewRows& rows, std::int64_t tile, std::int64_t odd,
                         std::int64_t dim, AskAhead& ask, hn::Vec<D> (&chain)[kQueries][kCount]) {
  constexpr std::int64_t kWidth = static_cast<std::int64_t>(hn::MaxLanes(D()));
  const auto at = static_cast<std::size_t>(tile);
  const TokenRange readable = rows.span.rows(tile);
  const float* p = rows.p + tile * kTileTokens;
  for (std::int64_t row = readable.begin + (readable.begin + odd) % 2; row < readable.end;
       row += 2) {
    ask();
    hn::Vec<D> v[kCount];
    if constexpr (kCount == 1) {
      v[0] = load_f32<DType::bf16>(d, rows.span.v[at][0], row * rows.dim + dim);
    } else {
      load_dims<DType::bf16>(rows.span.v[at][0], row * rows.dim + dim, v);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kQueries; ++i) {
      const auto own = hn::Set(d, p[i * kSpanTokens + row]);
      HWY_UNROLL(4)
      for (int j = 0; j < kCount; ++j) chain[i][j] = hn::MulAdd(own, v[j], chain[i][j]);
    }
  }
}

// Of the tiles [first, end) of one step.
template <int kQueries, int kCount, class D>
HWY_INLINE void add_step(D d, const FewRows& rows, std::int64_t first, std::int64_t end,
                         std::int64_t dim, bool from_zero, AskAhead& ask) {
  constexpr std::int64_t kWidth = static_cast<std::int64_t>(hn::MaxLanes(D()));
  hn::Vec<D> even[kQueries][kCount];
  for (std::int64_t odd = 0; odd < 2; ++odd) {
    hn::Vec<D> chain[kQueries][kCount];
    HWY_UNROLL(4)
    for (int i = 0; i < kQueries; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kCount; ++j) chain[i][j] = hn::Zero(d);
    }
    for (std::int64_t tile = first; tile < end; ++tile) {
      add_tile<kQueries, kCount>(d, rows, tile, odd, dim, ask, chain);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kQueries; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kCount; ++j) {
        if (odd == 0) {
          even[i][j] = chain[i][j];
        } else {
          even[i][j] = hn::Add(even[i][j], chain[i][j]);
        }
      }
    }
  }
  HWY_UNROLL(4)
  for (int i = 0; i < kQueries; ++i) {
    alignas(64) float sums[kCount * kLanes];
    if constexpr (kCount == 1) {
      hn::StoreU(even[i][0], d, sums);
    } else {
      store_dims<DType::bf16>(even[i], sums);
    }
    HWY_UNROLL(4)
    for (int j = 0; j < kCount; ++j) {
      float* to = rows.out + i * rows.stride + dim + j * kWidth;
      const auto before = from_zero ? hn::Zero(d) : hn::LoadU(d, to);
      hn::StoreU(hn::Add(before, hn::LoadU(d, sums + j * kWidth)), d, to);
    }
  }
}

template <int kQueries>
void add_rows(const FewRows& rows, AskAhead& ask) {
  ask.spread((rows.span.end - rows.span.begin) * dim_blocks(rows.dim));
  constexpr std::int64_t kStepTiles = kMatrixDims / kTileTokens;
  for (std::int64_t tile = rows.span.first_tile; tile < rows.span.end_tile;) {
    const std::int64_t end = std::min((tile / kStepTiles + 1) * kStepTiles, rows.span.end_tile);
    const bool from_zero = tile == rows.span.first_tile;
    std::int64_t dim = 0;
    for (; dim + kDimVectors * kLanes <= rows.dim; dim += kDimVectors * kLanes) {
      add_step<kQueries, kDimVectors>(FloatTag(), rows, tile, end, dim, from_zero, ask);
    }
    for (; dim + kLanes <= rows.dim; dim += kLanes) {
      add_step<kQueries, 1>(FloatTag(), rows, tile, end, dim, from_zero, ask);
    }
    if (dim < rows.dim) add_step<kQueries, 1>(TailTag(), rows, tile, end, dim, from_zero, ask);
    tile = end;
  }
}

void add_few(const SpanTiles& span, std::int64_t dim, AskAhead& ask, const float* p,
             std::int64_t queries, std::int64_t stride, float* out) {
  const FewRows rows{span, dim, p, out, stride};
  switch (queries) {
    case 1: return add_rows<1>(rows, ask);
    case 2: return add_rows<2>(rows, ask);
    case 3: return add_rows<3>(rows, ask);
    default: return add_rows<4>(rows, ask);
  }
}

void export_few_rows(KernelTable& table) {
  table.matrix.score_few = score_few;
  table.matrix.add_few = add_few;
}
#else
void export_few_rows(KernelTable& /* table */) {}
#endif

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_few_rows);

void bind_few_rows(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_few_rows), table);
}

}  // namespace pagekv::inline v0::internal
#endif
