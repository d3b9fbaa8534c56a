// What multiplies codes where attention is done in integers (`fast`): over affine pages, and over
// codebook values whose centroids are looked up as integers (cpu/code_table.h).
//
// An affine element is code * scale + bias, with one scale and one bias for a group of elements. So
//
//   q . k    = sum over groups  scale * (q . codes) + bias * sum(q)
//   p . v[d] = sum over tokens  (p * scale) * code[d] + p * bias
//
// Codes are at most 8 bits. The factors beside them, q and p * scale, become integers of 16 bits:
// round(x * 32639 / largest |x|), of one head's query, or of the tokens of one span. Products and
// sums are then exact in 32 bits, for up to 256 codes (256 * 255 * 32639 < 2^31), whatever their
// order and the vector width.
//
// Codes and integers meet four at a time, in *quads*: a 32-bit lane has four codes, and two words
// have the four integers beside them, as the target multiplies them (cpu/quads-inl.h).
#pragma once

#include <array>
#include <cstdint>

#include "cpu/constants.h"
#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

struct CodeTable;

inline constexpr std::int64_t kQuad = 4;
// 127 * 256 + 127: the largest integer of two signed bytes.
inline constexpr float kLargestInteger = 32639.0f;
// Queries that share each load of codes.
inline constexpr std::int64_t kCodeQueries = 4;
// Values with smaller groups are widened.
inline constexpr std::int64_t kLeastCodeGroup = 16;
inline constexpr std::int64_t kSpanQuads = kSpanTokens / kQuad;
static_assert(kSpanTokens <= 256);

// The queries of a kernel block, beside keys. For dim d of the head, quad d / 4 unless the codes'
// width has another order.
struct CodeQueries {
  std::uint32_t* words;  // [quad][kCodeQueries][2]
  float* factors;        // [kCodeQueries]: what the integers are multiples of
  float* sums;           // [group][kCodeQueries]: of the query's elements

  // Room for any legal group, and the parts of such room.
  static constexpr std::int64_t floats(std::int64_t dim) {
    return (dim / kQuad * 2 + 1 + dim / 8) * kCodeQueries;
  }
  static CodeQueries carve(float* room, std::int64_t dim) {
    float* factors = room + dim / kQuad * 2 * kCodeQueries;
    return {reinterpret_cast<std::uint32_t*>(room), factors, factors + kCodeQueries};
  }
};

// p * scale of some queries, beside the values of one span: kSpanQuads words for each part of each
// query and group.
struct CodeWeights {
  std::uint32_t* words;
  float* factors;  // [query][group]
  float* sums;     // [query][group]: of p * bias
  // Words from one to the next.
  std::int64_t group_words;
  std::int64_t query_words;
  std::int64_t part_words;

  std::uint32_t* of(std::int64_t query, std::int64_t group) const {
    return words + group * group_words + query * query_words;
  }

  // Words as [group][query][part].
  static CodeWeights by_query(float* room, std::int64_t queries, std::int64_t groups) {
    return carve(room, queries, groups, 2 * kSpanQuads, kSpanQuads);
  }
  // As [group][part][query], where another part of each group, which is not touched, comes first.
  static CodeWeights by_part(float* room, std::int64_t queries, std::int64_t groups) {
    CodeWeights made = carve(room, queries, groups, kSpanQuads, queries * kSpanQuads);
    made.words += made.part_words;
    return made;
  }
  // Room for either.
  static constexpr std::int64_t floats(std::int64_t queries, std::int64_t groups) {
    return queries * groups * (kParts * kSpanQuads + 2);
  }

 private:
  static constexpr std::int64_t kParts = 3;
  static CodeWeights carve(float* room, std::int64_t queries, std::int64_t groups,
                           std::int64_t query_words, std::int64_t part_words) {
    const std::int64_t group_words = queries * kParts * kSpanQuads;
    float* factors = room + groups * group_words;
    return {reinterpret_cast<std::uint32_t*>(room),
            factors,
            factors + queries * groups,
            group_words,
            query_words,
            part_words};
  }
};

// The values of one span, ready to be multiplied.
struct CodeRows {
  std::uint8_t* codes;  // of quads of tokens, as the target multiplies them
  float* scales;        // [group][kSpanTokens], as are
  float* biases;
  const CodeTable* table = nullptr;  // of codes that are looked up (cpu/code_table.h)
  std::int64_t per_byte = 1;         // codes of a row that a byte has
  std::int64_t first_quad = 0;       // quads [first_quad, end_quad) have tokens that may be read
  std::int64_t end_quad = 0;

  // Elements of a row with what fills its last vectors.
  static constexpr std::int64_t padded(std::int64_t dim) { return (dim + 63) / 64 * 64; }
  // Room of the codes of `dim` elements.
  static constexpr std::int64_t code_floats(std::int64_t dim) {
    return padded(dim) / 4 * kSpanTokens;
  }
};

// One bit per token of a span.
using SpanBits = std::array<std::uint64_t, kSpanTokens / 64>;

}  // namespace pagekv::inline v0::internal
