// Codes of value rows as bytes, and what stands for a codebook's centroids.
#include "cpu/value_bytes.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "codec/codebook.h"
#include "cpu/code_table.h"
#include "cpu/kernel_table.h"
#include "cpu/targets.h"

namespace pagekv {
namespace {

using internal::AskAhead;
using internal::CodeTable;
using internal::kByteStepTokens;
using internal::KernelTable;
using internal::kSpanTokens;
using internal::SideShape;
using internal::SpanTiles;
using internal::TokenRange;
using internal::ValueBytes;

TEST(CodeTable, StandsForTheCentroids) {
  for (std::size_t i = 0; i < internal::kCodebookWidths.size(); ++i) {
    const int bits = internal::kCodebookWidths[i];
    const CodeTable* table = internal::code_table(internal::kFirstCodebook + i);
    ASSERT_EQ(table != nullptr, bits <= internal::kMostLookedUpBits) << bits;
    if (table == nullptr) continue;
    const auto centroids = internal::centroids(bits);
    const double level = (double{centroids.back()} - double{centroids.front()}) / 65535;
    for (std::size_t code = 0; code < table->high.size(); ++code) {
      const double value = double{table->first} +
                           double{table->step} * (table->high[code] + table->low[code] / 256.0);
      EXPECT_NEAR(value, double{centroids[code % centroids.size()]}, 0.51 * level)
          << bits << " bits, code " << code;
    }
  }
  EXPECT_EQ(internal::code_table(internal::kFirstAffine), nullptr);
}

const KernelTable* kernels() {
  for (const KernelTable& table : internal::kernel_tables()) {
    if (table.codes.spread_values != nullptr) return &table;
  }
  return nullptr;
}

int code_bits(std::size_t codec) {
  return internal::is_affine(codec) ? internal::kAffineWidths[codec - internal::kFirstAffine]
                                    : internal::kCodebookWidths[codec - internal::kFirstCodebook];
}

// Rows of random bytes, in a buffer that ends with them.
struct Rows {
  Rows(std::size_t codec, std::int64_t dim, std::int64_t group, std::int64_t tokens)
      : bits(code_bits(codec)),
        row_bytes((dim * bits / 8 + 3) / 4 * 4),  // as pages have them
        bytes(static_cast<std::size_t>(tokens * row_bytes)) {
    shape.dim = dim;
    shape.group = group;
    shape.groups = dim / group;
    shape.row_bytes[0] = row_bytes;
    std::mt19937 random(3);
    for (auto& byte : bytes) byte = static_cast<std::byte>(random());
    span.end = tokens;
    span.end_tile = (tokens + kTileTokens - 1) / kTileTokens;
    for (std::int64_t tile = 0; tile < span.end_tile; ++tile) {
      span.v[static_cast<std::size_t>(tile)][0] =
          bytes.data() + tile * kTileTokens * shape.row_bytes[0];
    }
  }
  std::uint8_t code(std::int64_t token, std::int64_t dim) const {
    unsigned code = 0;
    for (int bit = 0; bit < bits; ++bit) {
      const std::int64_t at = token * row_bytes * 8 + dim * bits + bit;
      code |= (static_cast<unsigned>(bytes[static_cast<std::size_t>(at / 8)]) >> at % 8 & 1) << bit;
    }
    return static_cast<std::uint8_t>(code);
  }
  int bits;
  std::int64_t row_bytes;
  std::vector<std::byte> bytes;
  SideShape shape;
  SpanTiles span;
};

constexpr std::int64_t kVectorBytes = kSpanTokens * 16;

std::uint8_t wanted(const Rows& rows, const std::array<std::uint8_t, 64>* table, std::int64_t token,
                    std::int64_t dim) {
  if (token < rows.span.begin || token >= rows.span.end) {
    return table == nullptr ? 0 : (*table)[0];  // zeros are codes
  }
  const std::uint8_t code = rows.code(token, dim);
  return table == nullptr ? code : (*table)[code];
}

void expect_bytes(const Rows& rows, std::size_t codec, const CodeTable* table) {
  const ValueBytes& form = internal::value_bytes(codec, rows.shape);
  const std::int64_t low_bytes = table == nullptr ? 0 : form.vectors(rows.shape.dim) * kVectorBytes;
  constexpr std::uint8_t kUntouched = 0xa5;
  const std::int64_t room = form.vectors(rows.shape.dim) * kVectorBytes;
  std::vector<std::uint8_t> to(static_cast<std::size_t>(3 * room), kUntouched);
  const TokenRange steps{rows.span.begin / kByteStepTokens,
                         (rows.span.end + kByteStepTokens - 1) / kByteStepTokens};
  AskAhead nothing;
  kernels()->codes.spread_values(rows.span, rows.shape, form, steps, kVectorBytes, low_bytes,
                                 nothing, to.data() + steps.begin * kByteStepTokens * 16);
  for (std::int64_t token = steps.begin * kByteStepTokens; token < steps.end * kByteStepTokens;
       ++token) {
    for (std::int64_t dim = 0; dim < rows.shape.dim; ++dim) {
      const std::int64_t position = form.position(dim);
      const std::int64_t at =
          position / 16 * kVectorBytes + token / 4 * 64 + position % 16 * 4 + token % 4;
      ASSERT_EQ(to[static_cast<std::size_t>(at)],
                wanted(rows, table == nullptr ? nullptr : &table->high, token, dim))
          << rows.bits << " bits, dim " << dim << " of " << rows.shape.dim << ", token " << token;
      if (table == nullptr) continue;
      ASSERT_EQ(to[static_cast<std::size_t>(low_bytes + at)],
                wanted(rows, &table->low, token, dim));
    }
  }
  for (std::int64_t at = (table == nullptr ? 1 : 2) * room; at < 3 * room; ++at) {
    ASSERT_EQ(to[static_cast<std::size_t>(at)], kUntouched) << "behind all vectors";
  }
}

TEST(ValueBytes, HaveTheCodesOfAllRows) {
  if (kernels() == nullptr) GTEST_SKIP() << "no target of this processor moves bytes";
  struct Sizes {
    std::int64_t dim;
    std::int64_t group;
  };
  for (std::size_t codec = internal::kFirstAffine; codec < internal::kCodecs; ++codec) {
    const CodeTable* table = internal::code_table(codec);
    if (!internal::is_affine(codec) && table == nullptr) continue;
    for (const Sizes& sizes : {Sizes{16, 16},
                               {24, 24},
                               {64, 32},
                               {64, 64},
                               {72, 72},
                               {80, 16},
                               {96, 32},
                               {128, 128},
                               {128, 64},
                               {128, 16},
                               {256, 128},
                               {192, 64}}) {
      for (const TokenRange tokens : {TokenRange{0, kSpanTokens}, {3, 70}, {66, 67}, {100, 128}}) {
        Rows rows(codec, sizes.dim, sizes.group, tokens.end);
        rows.span.begin = tokens.begin;
        expect_bytes(rows, codec, nullptr);
        if (table != nullptr) expect_bytes(rows, codec, table);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

// All dims of a vector are of one group.
TEST(ValueBytes, VectorsHaveOneGroup) {
  for (std::size_t codec = internal::kFirstAffine; codec < internal::kCodecs; ++codec) {
    for (const std::int64_t group : {16, 32, 64, 128}) {
      SideShape shape;
      shape.dim = 2 * group;
      shape.group = group;
      shape.groups = 2;
      const ValueBytes& form = internal::value_bytes(codec, shape);
      std::vector<std::int64_t> group_of(static_cast<std::size_t>(form.vectors(shape.dim)), -1);
      for (std::int64_t dim = 0; dim < shape.dim; ++dim) {
        auto& own = group_of[static_cast<std::size_t>(form.position(dim) / 16)];
        EXPECT_TRUE(own == -1 || own == dim / group);
        own = dim / group;
      }
    }
  }
}

}  // namespace
}  // namespace pagekv
