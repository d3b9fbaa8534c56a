// Where a token's bytes are within one plane of one head, for every TileArrangement: a bijection
// between (token, byte of its row) and bytes of the plane, in plain C++. The reference for every
// device.
//
// row_major    [token][row bytes]
// key_tile16   keys:   [tile][row bytes / unit][16 tokens][unit]
//              values: as row_major
//
// A unit is a piece of one token's row (Plane::unit_bytes): 4 bytes of dense elements or codes,
// one scale, one bias. So no byte is shared by two tokens, and the same piece of 16 tokens lies
// side by side for vector lanes. Either way a tile's rows are one piece of the plane.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

struct PlaneShape {
  std::int64_t row_bytes = 0;
  std::int64_t unit_bytes = 0;
  bool interleaved = false;  // over the tokens of a tile
};

constexpr PlaneShape key_shape(const PlaneLayout& plane, TileArrangement arrangement) {
  return {plane.row_bytes, plane.unit_bytes, arrangement == TileArrangement::key_tile16};
}

constexpr PlaneShape value_shape(const PlaneLayout& plane) {
  return {plane.row_bytes, plane.unit_bytes, false};
}

// From one unit of a token to its next, and from a token to the next one of its tile.
constexpr std::int64_t unit_stride(const PlaneShape& shape) {
  return shape.interleaved ? kTileTokens * shape.unit_bytes : shape.unit_bytes;
}
constexpr std::int64_t token_stride(const PlaneShape& shape) {
  return shape.interleaved ? shape.unit_bytes : shape.row_bytes;
}

// First byte of the tile that holds `token`, and of the token's row.
constexpr std::int64_t tile_offset(const PlaneShape& shape, std::int64_t token) {
  return token / kTileTokens * kTileTokens * shape.row_bytes;
}
constexpr std::int64_t token_offset(const PlaneShape& shape, std::int64_t token) {
  return tile_offset(shape, token) + token % kTileTokens * token_stride(shape);
}

// Place in the plane of byte `byte` of the token's row.
constexpr std::int64_t byte_offset(const PlaneShape& shape, std::int64_t token, std::int64_t byte) {
  return token_offset(shape, token) + byte / shape.unit_bytes * unit_stride(shape) +
         byte % shape.unit_bytes;
}

// The pieces of one row, from one place to another, `from_step` and `to_step` bytes apart.
template <std::int64_t kUnit>
inline void copy_units(const std::byte* from, std::int64_t from_step, std::byte* to,
                       std::int64_t to_step, std::int64_t row_bytes) {
  for (std::int64_t byte = 0; byte < row_bytes; byte += kUnit, from += from_step, to += to_step) {
    std::memcpy(to, from, kUnit);
  }
}

inline void copy_row(const PlaneShape& shape, const std::byte* from, std::int64_t from_step,
                     std::byte* to, std::int64_t to_step) {
  if (shape.unit_bytes == 4) {
    copy_units<4>(from, from_step, to, to_step, shape.row_bytes);
  } else {
    copy_units<2>(from, from_step, to, to_step, shape.row_bytes);
  }
}

// One token's row, contiguous at `row`, into the plane. Touches no byte of another token.
inline void store_row(const PlaneShape& shape, std::byte* plane, std::int64_t token,
                      const std::byte* row) {
  copy_row(shape, row, shape.unit_bytes, plane + token_offset(shape, token), unit_stride(shape));
}

// The reverse. Reads no byte of another token.
inline void load_row(const PlaneShape& shape, const std::byte* plane, std::int64_t token,
                     std::byte* row) {
  copy_row(shape, plane + token_offset(shape, token), unit_stride(shape), row, shape.unit_bytes);
}

}  // namespace pagekv::inline v0::internal
