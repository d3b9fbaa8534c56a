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

// One tile. Queries come as kQueries * kParts vectors of f32, kFewVectors side by side for each
// dim.
template <int kQueries, int kParts>
void score_tile(const std::byte* tile, std::int64_t dims, const float* packed_q,
                const std::byte* ahead, std::int64_t ahead_lines, float* logits) {
  constexpr int kVectors = kQueries * kParts;
  const FloatTag d;
  FloatVec sums[kQueries];
  HWY_UNROLL(8)
  for (FloatVec& sum : sums) sum = hn::Zero(d);
  for (std::int64_t step = 0; step < dims; step += kMatrixDims) {
    FloatVec even[kVectors];
    FloatVec odd[kVectors];
    HWY_UNROLL(8)
    for (int i = 0; i < kVectors; ++i) even[i] = odd[i] = hn::Zero(d);
    const std::int64_t end = std::min(step + kMatrixDims, dims);
    for (std::int64_t dim = step; dim < end; dim += 2) {
      if (dim / 2 < ahead_lines) __builtin_prefetch(ahead + dim / 2 * kLineBytes, 0, 2);
      const DimPair k = load_key_pair<DType::bf16>(tile, dim / 2, 0);
      const float* q = packed_q + dim * kFewVectors;
      HWY_UNROLL(8)
      for (int i = 0; i < kVectors; ++i) {
        even[i] = hn::MulAdd(hn::Set(d, q[i]), k.even, even[i]);
        odd[i] = hn::MulAdd(hn::Set(d, q[kFewVectors + i]), k.odd, odd[i]);
      }
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kVectors; ++i) {
      sums[i / kParts] = hn::Add(sums[i / kParts], hn::Add(even[i], odd[i]));
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kQueries; ++i) hn::StoreU(sums[i], d, logits + i * kSpanTokens);
}

template <int kParts, int kQueries = kFewVectors / kParts>
HWY_INLINE auto pick_score_tile(std::int64_t queries) -> decltype(&score_tile<1, kParts>) {
  if constexpr (kQueries == 1) {
    return score_tile<1, kParts>;
  } else {
    return queries >= kQueries ? score_tile<kQueries, kParts>
                               : pick_score_tile<kParts, kQueries - 1>(queries);
  }
}

void score_few(const SpanTiles& span, std::int64_t dim, const float* packed_q, std::int64_t queries,
               std::int64_t parts, std::int64_t value_row_bytes, float* logits) {
  const auto score = parts == 1 ? pick_score_tile<1>(queries) : pick_score_tile<2>(queries);
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const auto at = static_cast<std::size_t>(tile);
    score(span.k[at][0], dim, packed_q, span.v[at][0], value_row_bytes * kTileTokens / kLineBytes,
          logits + tile * kTileTokens);
  }
}

// ---- Values: dims in lanes

struct FewRows {
  const SpanTiles& span;
  std::int64_t dim;
  std::int64_t key_row_bytes;  // of keys to be asked for
  const float* p;
  float* out;
  std::int64_t stride;
};

// Adds every second row of one tile to its chain, dims [dim, dim + kCount * Lanes(d)).
template <int kQueries, int kCount, class D>
HWY_INLINE void add_tile(D d, const FewRows& rows, std::int64_t tile, std::int64_t odd,
                         std::int64_t dim, hn::Vec<D> (&chain)[kQueries][kCount]) {
  constexpr std::int64_t kWidth = static_cast<std::int64_t>(hn::MaxLanes(D()));
  const auto at = static_cast<std::size_t>(tile);
  const TokenRange readable = rows.span.rows(tile);
  const std::byte* next = rows.span.next_k[at];
  const float* p = rows.p + tile * kTileTokens;
  const std::int64_t ask_begin = rows.key_row_bytes * dim / rows.dim;
  const std::int64_t ask_end = rows.key_row_bytes * (dim + kCount * kWidth) / rows.dim;
  for (std::int64_t row = readable.begin + (readable.begin + odd) % 2; row < readable.end;
       row += 2) {
    if (next != nullptr) {
      for (std::int64_t byte = ask_begin; byte < ask_end; byte += kLineBytes) {
        __builtin_prefetch(next + row * rows.key_row_bytes + byte, 0, 2);
      }
    }
    hn::Vec<D> v[kCount];
    HWY_UNROLL(4)
    for (int j = 0; j < kCount; ++j) {
      v[j] = load_f32<DType::bf16>(d, rows.span.v[at][0], row * rows.dim + dim + j * kWidth);
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
                         std::int64_t dim, bool from_zero) {
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
      add_tile<kQueries, kCount>(d, rows, tile, odd, dim, chain);
    }
    HWY_UNROLL(4)
    for (int i = 0; i < kQueries; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kCount; ++j) {
        float* to = rows.out + i * rows.stride + dim + j * kWidth;
        if (odd == 0) {
          even[i][j] = chain[i][j];
        } else {
          const auto before = from_zero ? hn::Zero(d) : hn::LoadU(d, to);
          hn::StoreU(hn::Add(before, hn::Add(even[i][j], chain[i][j])), d, to);
        }
      }
    }
  }
}

template <int kQueries>
void add_rows(const FewRows& rows) {
  constexpr std::int64_t kStepTiles = kMatrixDims / kTileTokens;
  for (std::int64_t tile = rows.span.first_tile; tile < rows.span.end_tile;) {
    const std::int64_t end = std::min((tile / kStepTiles + 1) * kStepTiles, rows.span.end_tile);
    const bool from_zero = tile == rows.span.first_tile;
    std::int64_t dim = 0;
    for (; dim + 4 * kLanes <= rows.dim; dim += 4 * kLanes) {
      add_step<kQueries, 4>(FloatTag(), rows, tile, end, dim, from_zero);
    }
    for (; dim + kLanes <= rows.dim; dim += kLanes) {
      add_step<kQueries, 1>(FloatTag(), rows, tile, end, dim, from_zero);
    }
    if (dim < rows.dim) add_step<kQueries, 1>(TailTag(), rows, tile, end, dim, from_zero);
    tile = end;
  }
}

void add_few(const SpanTiles& span, std::int64_t dim, std::int64_t key_row_bytes, const float* p,
             std::int64_t queries, std::int64_t stride, float* out) {
  const FewRows rows{span, dim, key_row_bytes, p, out, stride};
  switch (queries) {
    case 1: return add_rows<1>(rows);
    case 2: return add_rows<2>(rows);
    case 3: return add_rows<3>(rows);
    default: return add_rows<4>(rows);
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
