// Where a token's elements are within one head's plane, for every TileArrangement: a bijection
// between (token, dim) and bytes, in plain C++. The reference for every device.
//
// row_major   [token][dim]
// key_tile16  keys:   [tile][dim * element_bytes / 4][16 tokens][4 bytes]
//             values: as row_major
//
// A 4-byte unit holds one f32 or two neighbouring 16-bit dims of one token, so no byte is shared by
// two tokens, and 16 tokens of the same dims lie side by side for vector lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

inline constexpr std::int64_t kUnitBytes = 4;
inline constexpr std::int64_t kUnitStride =
    kTileTokens * kUnitBytes;  // bytes to a token's next unit

// Index, in elements, of (token, dim) in a value plane of `dims` dims.
constexpr std::int64_t value_index(std::int64_t dims, std::int64_t token, std::int64_t dim) {
  return token * dims + dim;
}

// Index, in elements of `element_bytes`, of (token, dim) in a key plane of `dims` dims.
constexpr std::int64_t key_index(TileArrangement arrangement, std::int64_t element_bytes,
                                 std::int64_t dims, std::int64_t token, std::int64_t dim) {
  if (arrangement == TileArrangement::row_major) return value_index(dims, token, dim);
  const std::int64_t per_unit = kUnitBytes / element_bytes;
  const std::int64_t tile = token / kTileTokens;
  const std::int64_t lane = token % kTileTokens;
  const std::int64_t unit = dim / per_unit;
  return tile * kTileTokens * dims + (unit * kTileTokens + lane) * per_unit + dim % per_unit;
}

// First byte of the token in a key plane whose rows have `row_bytes` bytes. Its following units are
// kUnitStride apart in key_tile16, kUnitBytes in row_major.
constexpr std::int64_t key_token_offset(TileArrangement arrangement, std::int64_t row_bytes,
                                        std::int64_t token) {
  if (arrangement == TileArrangement::row_major) return token * row_bytes;
  return token / kTileTokens * kTileTokens * row_bytes + token % kTileTokens * kUnitBytes;
}

// One token's key row, `row_bytes` long and contiguous at `row`, into the plane. Touches no byte of
// another token.
inline void store_key_row(TileArrangement arrangement, std::byte* plane, std::int64_t row_bytes,
                          std::int64_t token, const std::byte* row) {
  std::byte* to = plane + key_token_offset(arrangement, row_bytes, token);
  if (arrangement == TileArrangement::row_major) {
    std::memcpy(to, row, static_cast<std::size_t>(row_bytes));
    return;
  }
  for (std::int64_t at = 0; at < row_bytes; at += kUnitBytes, to += kUnitStride) {
    std::memcpy(to, row + at, kUnitBytes);
  }
}

// The reverse: one token's key row out of the plane. Reads no byte of another token.
inline void load_key_row(TileArrangement arrangement, const std::byte* plane,
                         std::int64_t row_bytes, std::int64_t token, std::byte* row) {
  const std::byte* from = plane + key_token_offset(arrangement, row_bytes, token);
  if (arrangement == TileArrangement::row_major) {
    std::memcpy(row, from, static_cast<std::size_t>(row_bytes));
    return;
  }
  for (std::int64_t at = 0; at < row_bytes; at += kUnitBytes, from += kUnitStride) {
    std::memcpy(row + at, from, kUnitBytes);
  }
}

}  // namespace pagekv::inline v0::internal
