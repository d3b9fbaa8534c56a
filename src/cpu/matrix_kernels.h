// MatrixKernels: attention by the processor's matrix unit, where it has one (`fast`).
//
// Dense bf16 pages: queries and p are bf16 on the left, stored elements on the right, sums are f32.
// A query that is not bf16 is the sum of two parts that are. The arithmetic of one row, whatever
// the number of rows beside it:
//
//   logit[t]  dims in steps of 32, zeros behind the last; of each step, first the products with
//             the first part, then those with the second
//   out[d]    tokens of the span in steps of 32
//
// and of a step, as the processor defines it: even elements in one chain from 0, odd ones in
// another, fused and rounded to nearest; their sum is added to what was there. Numbers below 2^-126
// count as 0.
//
// Affine codes in integers (cpu/code_weights.h): the sums of cpu/codes.cc, bit for bit, for many
// queries at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/token_range.h"

namespace pagekv::inline v0::internal {

class AskAhead;
struct SpanTiles;

inline constexpr std::int64_t kMatrixQueries = 16;  // of one call
inline constexpr std::int64_t kMatrixDims = 32;     // of a step
inline constexpr int kFewVectors = 8;               // parts of queries that share a load of keys
inline constexpr std::int64_t kFewQueries = 4;      // that share a load of values
inline constexpr std::int64_t kMatrixTiles = 8;     // of one product of bytes
// Floats' room of its totals.
inline constexpr std::int64_t kMatrixTotals = 2 * kMatrixTiles * kMatrixQueries * 16;
constexpr std::int64_t matrix_padded(std::int64_t dim) {
  return (dim + kMatrixDims - 1) / kMatrixDims * kMatrixDims;
}

struct MatrixKernels {
  // ---- Many queries: up to kMatrixQueries a call.

  // logits[query][token] of `count` queries for the tokens of tiles [tiles.begin, tiles.end), whose
  // keys are bf16. Queries are matrix_padded(dim) elements apart, their parts `stride`.
  using Score = void(const SpanTiles& span, std::int64_t dim, const std::uint16_t* queries,
                     std::int64_t parts, std::int64_t stride, std::int64_t count, TokenRange tiles,
                     AskAhead& ask, float* logits);
  Score* score = nullptr;

  // The span's bf16 value rows into [32 tokens][16 dims][pair of tokens][dim][2], zeros for what
  // may not be read.
  using PairRows = void(const SpanTiles& span, std::int64_t dim, AskAhead& ask,
                        std::uint16_t* pairs);
  PairRows* pair_rows = nullptr;
  // out[query][dim] = sum over t in `tokens` of p[query][t] * v[t][dim], dims rounded up to whole
  // 16. p are bf16, kSpanTokens floats' room apart, and 0 outside.
  using Add = void(const std::uint16_t* pairs, std::int64_t dim, TokenRange tokens, const float* p,
                   std::int64_t count, std::int64_t out_stride, float* out);
  Add* add = nullptr;
  // Both at once, for up to kMatrixQueries.
  using AddSpan = void(const SpanTiles& span, std::int64_t dim, AskAhead& ask, TokenRange tokens,
                       const float* p, std::int64_t count, std::int64_t out_stride, float* out);
  AddSpan* add_span = nullptr;

  // totals[part][tile][query][lane] of `count` queries: sums over the bytes of `left`, rows of
  // `row_bytes` bytes whose parts are `part_bytes` apart, times those of a right tile, quads of 16
  // lanes. Of each, the first `bytes`, which 4 divides, and 64 where there are more.
  struct ByteProduct {
    const std::int8_t* left;
    std::int64_t row_bytes;
    std::int64_t part_bytes;
    std::int64_t count;
    const std::uint8_t* right;
    std::int64_t tile_bytes;  // from one right tile to the next
    std::int64_t bytes;
    TokenRange tiles;
  };
  using MultiplyBytes = void(const ByteProduct& product, std::int32_t* totals);
  MultiplyBytes* multiply_bytes = nullptr;

  // ---- Few queries, in vectors. FlushDenormals (cpu/denormals.h) must be in force.

  // As score(). Parts come as f32, side by side: [dim][kFewVectors], those of a query neighbours.
  // Up to kFewVectors / parts queries.
  using ScoreFew = void(const SpanTiles& span, std::int64_t dim, const float* packed_q,
                        std::int64_t queries, std::int64_t parts, AskAhead& ask, float* logits);
  ScoreFew* score_few = nullptr;
  // As pair_rows() and add(), of up to kFewQueries; p are f32 with the values of bf16, and `out`
  // gets no more than `dim` elements.
  using AddFew = void(const SpanTiles& span, std::int64_t dim, AskAhead& ask, const float* p,
                      std::int64_t queries, std::int64_t out_stride, float* out);
  AddFew* add_few = nullptr;
};

}  // namespace pagekv::inline v0::internal
