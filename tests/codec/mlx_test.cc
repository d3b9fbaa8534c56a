// Affine pages hold the bytes of MLX's quantizer, for rows of the type that scales are stored in.
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "support/codecs.h"

namespace pagekv::testing {
namespace {

struct MlxRows {
  DType type;
  std::string_view elements;
};

struct MlxCase {
  DType type;
  int bits;
  int group;
  std::string_view codes;
  std::string_view scales;
  std::string_view biases;
};

#include "mlx_vectors.inc"

constexpr std::int64_t kDim = 128;

std::vector<std::byte> bytes(std::string_view hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> all;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    all.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
  }
  return all;
}

std::vector<std::vector<float>> rows_of(DType type) {
  std::vector<std::vector<float>> rows;
  for (const MlxRows& given : kMlxRows) {
    if (given.type != type) continue;
    const std::vector<std::byte> elements = bytes(given.elements);
    const std::int64_t size = size_bytes(type);
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(elements.size()); at += size) {
      if (at % (kDim * size) == 0) rows.emplace_back();
      rows.back().push_back(load_element(type, elements.data() + at));
    }
  }
  return rows;
}

TEST(Mlx, CodesScalesAndBiasesAreItsOwn) {
  std::int64_t compared = 0;
  for (const MlxCase& given : kMlxCases) {
    const auto codec =
        VectorCodec::affine(given.bits, VectorCodec::exactly(given.group), given.type);
    EncodedVector all;
    for (const std::vector<float>& row : rows_of(given.type)) {
      const auto stored = encode_alone(codec, row);
      ASSERT_TRUE(stored);
      for (std::size_t i = 0; i < all.planes.size(); ++i) {
        all.planes[i].insert(all.planes[i].end(), stored->planes[i].begin(),
                             stored->planes[i].end());
      }
      ++compared;
    }
    EXPECT_EQ(all.planes[0], bytes(given.codes)) << codec.name();
    EXPECT_EQ(all.planes[1], bytes(given.scales)) << codec.name();
    EXPECT_EQ(all.planes[2], bytes(given.biases)) << codec.name();
  }
  EXPECT_EQ(compared, 3 * 6 * 3 * 7) << "types, widths, groups, rows";
}

}  // namespace
}  // namespace pagekv::testing
