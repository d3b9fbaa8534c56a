// ValueBytes: the codes of value rows as bytes (CodeKernels::SpreadValues).
//
// Rows are taken in chunks, whose bytes are moved so that four rows interleaved by bytes make
// vectors of 16 neighbouring bytes, and of one group. Where groups are large enough a byte keeps
// all codes that it has in the row, and is a byte of so many vectors; else each code gets a byte of
// its own first.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/code_table.h"
#include "cpu/kernel_table.h"

namespace pagekv::inline v0::internal {

inline constexpr std::int64_t kByteStepTokens = 64;
inline constexpr std::int64_t kByteVector = kSpanTokens * 16;  // 16 dims of all tokens
// Steps with tokens that may be read.
constexpr TokenRange byte_steps(const SpanTiles& span) {
  return {span.begin / kByteStepTokens, (span.end + kByteStepTokens - 1) / kByteStepTokens};
}

struct ValueBytes {
  int bits = 0;
  int per_byte = 1;                  // codes of a byte
  bool spread = false;               // bytes come from `shifts`
  std::int64_t chunk = 0;            // bytes of a row that are taken at once
  const CodeTable* table = nullptr;  // of codes that are looked up
  // Bytes of a chunk in their new order; where in each 64 bits of these a byte begins.
  alignas(64) std::array<std::uint8_t, 64> order{};
  alignas(64) std::array<std::uint8_t, 64> shifts{};

  // Vectors of a row.
  std::int64_t vectors(std::int64_t dim) const { return (dim / per_byte + 15) / 16 * per_byte; }
  // Where a dim is among the lanes of these.
  std::int64_t position(std::int64_t dim) const {
    const std::int64_t byte = dim / per_byte;
    return (byte / 16 * per_byte + dim % per_byte) * 16 + byte % 16;
  }
};

// Lives for ever. REQUIRES: an affine codec or one with a table, whose groups fill vectors.
const ValueBytes& value_bytes(std::size_t codec, const SideShape& shape);

}  // namespace pagekv::inline v0::internal
