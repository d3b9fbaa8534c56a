// The tile arrangements are bijections, and the row functions agree with the offset formula.
#include "codec/arrangement.h"

#include <gtest/gtest.h>

#include <vector>

#include "cpu/targets.h"

namespace pagekv::testing {
namespace {

using internal::byte_offset;
using internal::load_row;
using internal::PlaneShape;
using internal::store_row;
using internal::token_offset;

// Dense rows, codes of odd widths, scales; in both arrangements.
std::vector<PlaneShape> shapes() {
  std::vector<PlaneShape> all;
  for (const bool interleaved : {false, true}) {
    for (const std::int64_t row_bytes : {4, 12, 32, 576 * 4}) {
      all.push_back({row_bytes, 4, interleaved});
    }
    for (const std::int64_t row_bytes : {2, 10}) all.push_back({row_bytes, 2, interleaved});
  }
  return all;
}

TEST(Arrangement, OffsetIsABijection) {
  constexpr std::int64_t kTokens = 48;
  for (const PlaneShape& shape : shapes()) {
    std::vector<int> hits(static_cast<std::size_t>(kTokens * shape.row_bytes));
    for (std::int64_t token = 0; token < kTokens; ++token) {
      for (std::int64_t byte = 0; byte < shape.row_bytes; ++byte) {
        const std::int64_t at = byte_offset(shape, token, byte);
        ASSERT_GE(at, 0);
        ASSERT_LT(at, kTokens * shape.row_bytes);
        EXPECT_EQ(at / (16 * shape.row_bytes), token / 16) << "a tile is one piece";
        ++hits[static_cast<std::size_t>(at)];
      }
    }
    for (const int count : hits) ASSERT_EQ(count, 1);
  }
}

// The format of pages in RAM; a change is a new TileArrangement.
TEST(Arrangement, KnownPlaces) {
  const PlaneLayout codes{.row_bytes = 128, .unit_bytes = 4};
  const PlaneLayout scales{.row_bytes = 8, .unit_bytes = 2};
  const PlaneShape rows = internal::key_shape(codes, TileArrangement::row_major);
  const PlaneShape tiles = internal::key_shape(codes, TileArrangement::key_tile16);
  EXPECT_EQ(byte_offset(rows, 3, 10), 3 * 128 + 10);
  // Byte 10 is byte 2 of unit 2; the units of token 3 are the fourth of 16.
  EXPECT_EQ(byte_offset(tiles, 3, 10), (2 * 16 + 3) * 4 + 2);
  // Token 19 is the fourth of the second tile.
  EXPECT_EQ(byte_offset(tiles, 19, 10), 16 * 128 + (2 * 16 + 3) * 4 + 2);
  EXPECT_EQ(byte_offset(internal::key_shape(scales, TileArrangement::key_tile16), 19, 5),
            16 * 8 + (2 * 16 + 3) * 2 + 1);
  EXPECT_EQ(byte_offset(internal::value_shape(codes), 19, 10), 19 * 128 + 10);
}

TEST(Arrangement, RowsGoInAndOutThroughTheFormula) {
  constexpr std::int64_t kTokens = 32;
  for (const PlaneShape& shape : shapes()) {
    std::vector<std::byte> plane(static_cast<std::size_t>(kTokens * shape.row_bytes),
                                 std::byte{0xff});
    for (const std::int64_t token : {0, 7, 15, 16, 31}) {
      std::vector<std::byte> row;
      for (std::int64_t byte = 0; byte < shape.row_bytes; ++byte) {
        row.push_back(static_cast<std::byte>((token * 31 + byte * 7) % 250));
      }
      std::vector<std::byte> expected = plane;
      for (std::int64_t byte = 0; byte < shape.row_bytes; ++byte) {
        expected[static_cast<std::size_t>(byte_offset(shape, token, byte))] =
            row[static_cast<std::size_t>(byte)];
      }
      store_row(shape, plane.data(), token, row.data());
      EXPECT_EQ(plane, expected) << "the token's bytes, and no other";
      std::vector<std::byte> back(row.size());
      load_row(shape, plane.data(), token, back.data());
      EXPECT_EQ(back, row);
    }
  }
}

TEST(Arrangement, KernelsMoveWholeTilesAsRowsGo) {
  for (const internal::KernelTable& table : internal::kernel_tables()) {
    for (const std::int64_t row_bytes : {4, 8, 12, 16, 24, 68, 256, 576 * 4}) {
      SCOPED_TRACE(::testing::Message() << table.name << ' ' << row_bytes);
      const PlaneShape shape{row_bytes, 4, true};
      std::vector<std::byte> rows;
      for (std::int64_t byte = 0; byte < kTileTokens * row_bytes; ++byte) {
        rows.push_back(static_cast<std::byte>(byte * 7 % 251));
      }
      std::vector<std::byte> want(rows.size());
      for (std::int64_t token = 0; token < kTileTokens; ++token) {
        store_row(shape, want.data(), token, rows.data() + token * row_bytes);
      }
      std::vector<std::byte> tile(rows.size());
      table.interleave(rows.data(), row_bytes, tile.data());
      EXPECT_EQ(tile, want);
      std::vector<std::byte> back(rows.size());
      table.deinterleave(tile.data(), row_bytes, back.data());
      EXPECT_EQ(back, rows);
    }
  }
}

}  // namespace
}  // namespace pagekv::testing
