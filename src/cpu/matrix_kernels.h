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
// Codes in integers (cpu/code_weights.h): of affine ones the sums of cpu/codes.cc, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/token_range.h"

namespace pagekv::inline v0::internal {

class AskAhead;
struct SeenTokens;
struct SoftmaxState;
struct SpanTiles;

inline constexpr std::int64_t kMatrixQueries = 16;  // of one call
inline constexpr std::int64_t kMatrixDims = 32;     // of a step
inline constexpr int kFewVectors = 8;               // parts of queries that share a load of keys
inline constexpr std::int64_t kFewQueries = 4;      // that share a load of values
inline constexpr std::int64_t kByteQueries = 8;     // of one product of bytes
inline constexpr std::int64_t kByteTiles = 4;       // of keys that it is done for together
inline constexpr std::int64_t kByteTotals = 256;    // numbers of a vector of it
constexpr std::int64_t matrix_padded(std::int64_t dim) {
  return (dim + kMatrixDims - 1) / kMatrixDims * kMatrixDims;
}

struct MatrixKernels {
  // KernelTable::softmax_fast with p rounded to bf16 before they are summed; the second leaves
  // kSpanTokens bf16 from logits[0] on.
  using Softmax = void(float* logits, const SeenTokens* seen, std::int64_t rows, float factor,
                       SoftmaxState* states);
  Softmax* softmax = nullptr;
  Softmax* softmax_packed = nullptr;

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

  // ---- Codes, as bytes. Rows on the left are signed bytes, the halves of integers
  // (cpu/code_weights.h): the high ones of up to kByteQueries queries, then the low ones.

  // Between them multiply_bytes() may be called: for `rows` rows, and steps of `bytes` bytes.
  using Configure = void(std::int64_t rows, std::int64_t bytes);
  Configure* configure = nullptr;
  using Release = void();
  Release* release = nullptr;

  // totals[vector][row][lane]: sums over the bytes of a row on the left times those of a vector on
  // the right, quads of 16 lanes.
  struct ByteProduct {
    const std::int8_t* left;
    std::int64_t row_bytes;            // from one row to the next
    const std::uint8_t* const* right;  // of each vector
    std::int64_t vectors;
    std::int64_t steps;
    std::int64_t step_bytes;  // as configured
    // Vectors may have a second part, `low_bytes` behind the first, which the rows from `low` on
    // are multiplied with. Null: they have none.
    const std::int8_t* low = nullptr;
    std::int64_t low_bytes = 0;
  };
  using MultiplyBytes = void(const ByteProduct& product, AskAhead& ask, std::int32_t* totals);
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

// While it lives, multiply_bytes() may be called by its thread.
class MatrixTiles {
 public:
  MatrixTiles(const MatrixKernels& kernels, std::int64_t rows, std::int64_t step_bytes)
      : release_(kernels.release) {
    kernels.configure(rows, step_bytes);
  }
  ~MatrixTiles() { release_(); }
  MatrixTiles(const MatrixTiles&) = delete;
  MatrixTiles& operator=(const MatrixTiles&) = delete;

 private:
  MatrixKernels::Release* release_;
};

}  // namespace pagekv::inline v0::internal
