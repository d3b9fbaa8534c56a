// Codes in bytes: one flat little-endian bit stream per row.
#include "codec/packing.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/random_data.h"

namespace pagekv::testing {
namespace {

using internal::pack_row;
using internal::packed_bytes;
using internal::unpack_row;

using Codes = std::vector<std::uint8_t>;
using Bytes = std::vector<std::byte>;

Codes random_codes(Random& random, int bits, std::int64_t count) {
  Codes codes;
  for (std::int64_t i = 0; i < count; ++i) {
    codes.push_back(static_cast<std::uint8_t>(pick(random, 0, (1 << bits) - 1)));
  }
  return codes;
}

Bytes packed(int bits, const Codes& codes) {
  const auto count = static_cast<std::int64_t>(codes.size());
  Bytes row(static_cast<std::size_t>(packed_bytes(bits, count)), std::byte{0xff});
  pack_row(bits, codes.data(), count, row.data());
  return row;
}

// The definition: bit b of element i is bit i * bits + b of the row, all others are 0.
Bytes bit_by_bit(int bits, const Codes& codes) {
  const auto width = static_cast<std::size_t>(bits);
  Bytes row((codes.size() * width + 31) / 32 * 4);
  for (std::size_t i = 0; i < codes.size(); ++i) {
    for (std::size_t bit = 0; bit < width; ++bit) {
      const std::size_t at = i * width + bit;
      if ((codes[i] >> bit & 1) != 0) row[at / 8] |= static_cast<std::byte>(1 << at % 8);
    }
  }
  return row;
}

TEST(Packing, RowsAreTheBitStreamPaddedWithZerosToWords) {
  constexpr std::uint64_t kSeed = 31;
  Random random(kSeed);
  for (int bits = 1; bits <= 8; ++bits) {
    for (const std::int64_t count : {8, 16, 24, 32, 40, 72, 80, 96, 128, 192, 576}) {
      SCOPED_TRACE(::testing::Message() << bits << " bits, " << count << " codes, seed " << kSeed);
      const Codes codes = random_codes(random, bits, count);
      const Bytes row = packed(bits, codes);
      EXPECT_EQ(row, bit_by_bit(bits, codes));
      EXPECT_EQ(row.size() % 4, 0u);
      Codes back(codes.size());
      unpack_row(bits, row.data(), count, back.data());
      EXPECT_EQ(back, codes);
    }
  }
}

TEST(Packing, ThirtyTwoCodesNeedNoPadding) {
  for (int bits = 1; bits <= 8; ++bits) {
    EXPECT_EQ(packed_bytes(bits, 32), 4 * bits);
    EXPECT_EQ(packed_bytes(bits, 128), 16 * bits);
  }
  EXPECT_EQ(packed_bytes(1, 8), 4);
  EXPECT_EQ(packed_bytes(3, 8), 4);
  EXPECT_EQ(packed_bytes(3, 24), 12) << "9 bytes of codes";
  EXPECT_EQ(packed_bytes(3, 72), 28) << "27 bytes of codes";
  EXPECT_EQ(packed_bytes(3, 80), 32) << "30 bytes of codes";
  EXPECT_EQ(packed_bytes(5, 72), 48) << "45 bytes of codes";
  EXPECT_EQ(packed_bytes(8, 72), 72);
}

// The widths that straddle bytes, spelled out.
TEST(Packing, BytesOfEightCodes) {
  const Codes c3 = {1, 6, 3, 4, 7, 2, 5, 0};
  EXPECT_EQ(packed(3, c3),
            (Bytes{std::byte(c3[0] | c3[1] << 3 | (c3[2] << 6 & 0xff)),
                   std::byte(c3[2] >> 2 | c3[3] << 1 | c3[4] << 4 | (c3[5] << 7 & 0xff)),
                   std::byte(c3[5] >> 1 | c3[6] << 2 | c3[7] << 5), std::byte{0}}));
  const Codes c5 = {17, 30, 5, 22, 11, 28, 3, 25};
  EXPECT_EQ(packed(5, c5),
            (Bytes{std::byte(c5[0] | (c5[1] << 5 & 0xff)),
                   std::byte(c5[1] >> 3 | c5[2] << 2 | (c5[3] << 7 & 0xff)),
                   std::byte(c5[3] >> 1 | (c5[4] << 4 & 0xff)),
                   std::byte(c5[4] >> 4 | c5[5] << 1 | (c5[6] << 6 & 0xff)),
                   std::byte(c5[6] >> 2 | c5[7] << 3), std::byte{0}, std::byte{0}, std::byte{0}}));
  const Codes c6 = {33, 62, 21, 42, 7, 56, 13, 50};
  EXPECT_EQ(
      packed(6, c6),
      (Bytes{std::byte(c6[0] | (c6[1] << 6 & 0xff)), std::byte(c6[1] >> 2 | (c6[2] << 4 & 0xff)),
             std::byte(c6[2] >> 4 | c6[3] << 2), std::byte(c6[4] | (c6[5] << 6 & 0xff)),
             std::byte(c6[5] >> 2 | (c6[6] << 4 & 0xff)), std::byte(c6[6] >> 4 | c6[7] << 2),
             std::byte{0}, std::byte{0}}));
}

TEST(Packing, EightCodesTouchTheirBytesOnly) {
  const Codes codes(8, 1);
  for (int bits = 1; bits <= 8; ++bits) {
    Bytes row(10, std::byte{0xab});
    internal::pack8(bits, codes.data(), row.data() + 1);
    EXPECT_EQ(row.front(), std::byte{0xab});
    for (auto at = static_cast<std::size_t>(bits) + 1; at < row.size(); ++at) {
      EXPECT_EQ(row[at], std::byte{0xab}) << bits;
    }
    Codes back(8);
    internal::unpack8(bits, row.data() + 1, back.data());
    EXPECT_EQ(back, codes);
  }
}

}  // namespace
}  // namespace pagekv::testing
