// The tile arrangements are bijections, and the row functions agree with the index formula.
#include "codec/arrangement.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace pagekv::testing {
namespace {

using internal::key_index;
using internal::load_key_row;
using internal::store_key_row;
using internal::value_index;

constexpr TileArrangement kArrangements[] = {TileArrangement::row_major,
                                             TileArrangement::key_tile16};

TEST(Arrangement, KeyIndexIsABijection) {
  for (const TileArrangement arrangement : kArrangements) {
    for (const std::int64_t element_bytes : {2, 4}) {
      for (const std::int64_t dims : {8, 24, 576}) {
        constexpr std::int64_t kTokens = 48;
        std::vector<int> hits(static_cast<std::size_t>(kTokens * dims));
        for (std::int64_t token = 0; token < kTokens; ++token) {
          for (std::int64_t dim = 0; dim < dims; ++dim) {
            const std::int64_t at = key_index(arrangement, element_bytes, dims, token, dim);
            ASSERT_GE(at, 0);
            ASSERT_LT(at, kTokens * dims);
            ++hits[static_cast<std::size_t>(at)];
          }
        }
        for (const int count : hits) ASSERT_EQ(count, 1);
      }
    }
  }
}

// The format of pages in RAM; a change is a new TileArrangement.
TEST(Arrangement, KnownPlaces) {
  EXPECT_EQ(value_index(64, 3, 5), 3 * 64 + 5);
  EXPECT_EQ(key_index(TileArrangement::row_major, 2, 64, 3, 5), 3 * 64 + 5);
  // 16-bit: a unit is two dims; dim 5 of token 3 is the upper half of unit 2.
  EXPECT_EQ(key_index(TileArrangement::key_tile16, 2, 64, 3, 5), (2 * 16 + 3) * 2 + 1);
  EXPECT_EQ(key_index(TileArrangement::key_tile16, 4, 64, 3, 5), 5 * 16 + 3);
  // Token 19 is lane 3 of the second tile.
  EXPECT_EQ(key_index(TileArrangement::key_tile16, 4, 64, 19, 5), 16 * 64 + 5 * 16 + 3);
}

TEST(Arrangement, ATileIsOnePieceEverywhere) {
  for (const TileArrangement arrangement : kArrangements) {
    for (std::int64_t token = 0; token < 64; ++token) {
      for (std::int64_t dim = 0; dim < 40; ++dim) {
        const std::int64_t at = key_index(arrangement, 2, 40, token, dim);
        EXPECT_EQ(at / (16 * 40), token / 16);
      }
    }
  }
}

TEST(Arrangement, RowsGoInAndOutThroughTheIndexFormula) {
  constexpr std::int64_t kDims = 24;
  constexpr std::int64_t kTokens = 32;
  constexpr std::int64_t kRowBytes = kDims * 2;
  for (const TileArrangement arrangement : kArrangements) {
    std::vector<std::byte> plane(static_cast<std::size_t>(kTokens * kRowBytes), std::byte{0xff});
    for (const std::int64_t token : {0, 7, 15, 16, 31}) {
      std::vector<std::uint16_t> row;
      for (std::int64_t dim = 0; dim < kDims; ++dim) {
        row.push_back(static_cast<std::uint16_t>(token * 100 + dim));
      }
      const std::vector<std::byte> before = plane;
      store_key_row(arrangement, plane.data(), kRowBytes, token,
                    reinterpret_cast<const std::byte*>(row.data()));
      std::int64_t changed = 0;
      for (std::size_t at = 0; at < plane.size(); at += 2) {
        changed += std::memcmp(&plane[at], &before[at], 2) != 0;
      }
      EXPECT_EQ(changed, kDims) << "no byte of another token";
      for (std::int64_t dim = 0; dim < kDims; ++dim) {
        std::uint16_t element;
        std::memcpy(&element, plane.data() + key_index(arrangement, 2, kDims, token, dim) * 2, 2);
        EXPECT_EQ(element, row[static_cast<std::size_t>(dim)]);
      }
      std::vector<std::uint16_t> back(static_cast<std::size_t>(kDims));
      load_key_row(arrangement, plane.data(), kRowBytes, token,
                   reinterpret_cast<std::byte*>(back.data()));
      EXPECT_EQ(back, row);
    }
  }
}

}  // namespace
}  // namespace pagekv::testing
