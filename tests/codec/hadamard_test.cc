// The signed rotation: its signs, its matrix, its arithmetic.
#include "codec/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "support/random_data.h"

namespace pagekv::testing {
namespace {

using internal::Rotation;
using internal::rotation;

using Vector = std::vector<float>;

// Dims of one block, and of several: 9 blocks of 8, 5 of 16, 3 of 32, 3 of 64, 9 of 64.
constexpr std::int64_t kDims[] = {8, 16, 24, 64, 72, 80, 96, 128, 192, 256, 512, 576};

Vector random_vector(Random& random, std::int64_t dim, float deviation = 1.0f) {
  std::normal_distribution<float> normal(0.0f, deviation);
  Vector values;
  for (std::int64_t i = 0; i < dim; ++i) values.push_back(normal(random));
  return values;
}

Vector rotated(Vector values) {
  internal::rotate(rotation(static_cast<std::int64_t>(values.size())), values.data());
  return values;
}

Vector unrotated(Vector values) {
  internal::unrotate(rotation(static_cast<std::int64_t>(values.size())), values.data());
  return values;
}

double norm(const Vector& values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

double distance(const Vector& a, const Vector& b) {
  Vector difference;
  for (std::size_t i = 0; i < a.size(); ++i) difference.push_back(a[i] - b[i]);
  return norm(difference);
}

// Bit i % 8 of byte i / 8 is 1 where sign i is -1.
std::string hex_signs(std::int64_t dim) {
  std::string text;
  for (std::int64_t first = 0; first < dim; first += 8) {
    int byte = 0;
    for (std::int64_t i = 0; i < 8; ++i) {
      if (rotation(dim).signs[static_cast<std::size_t>(first + i)] < 0.0f) byte |= 1 << i;
    }
    text += "0123456789abcdef"[byte / 16];
    text += "0123456789abcdef"[byte % 16];
  }
  return text;
}

// As MLX draws them: randint(0, 2) under key 42. Stored pages depend on every one.
TEST(Hadamard, Signs) {
  EXPECT_EQ(hex_signs(8), "13");
  EXPECT_EQ(hex_signs(64), "8e5469b70248de62");
  EXPECT_EQ(hex_signs(72), "57889035675d3bfff8");
  EXPECT_EQ(hex_signs(80), "6bbee01227116f27e4ec");
  EXPECT_EQ(hex_signs(96), "3ea088d953424953df675139");
  EXPECT_EQ(hex_signs(128), "0ddf396a50029c6ad537834ade596014");
  EXPECT_EQ(hex_signs(192), "bca01b145719f1c0082d452c9445eca51f373ab277c0fba7");
  EXPECT_EQ(hex_signs(256), "1230e662114acd106f146da9c95e9cd39bf22f3a735d27b26bd9305757c38bfe");
  EXPECT_EQ(hex_signs(512),
            "bd4b36700de3fb6263e439d461d2ca5c8f7c479b4312dde930de2a54bacaba77"
            "843e871118154c9ac5a304321f72815d5214828ac29ba78eef4b0e526d9d6b29");
  EXPECT_EQ(hex_signs(576),
            "be193fd95dc517a701acd2dbdbcb3bf7bf75b2f0622cfa3adb7be780da6abf71b85beb04"
            "a5a31b8299ba74a882ac6c763eebf51f41a85c0781341479fba64caea43feb470ef07017");
  for (const std::int64_t dim : kDims) {
    for (std::int64_t i = 0; i < dim; ++i) {
      EXPECT_EQ(std::fabs(rotation(dim).signs[static_cast<std::size_t>(i)]), 1.0f);
    }
  }
}

TEST(Hadamard, BlocksAreTheLargestPowersOfTwoThatTileTheHead) {
  EXPECT_EQ(rotation(64).block, 64);
  EXPECT_EQ(rotation(72).block, 8);
  EXPECT_EQ(rotation(80).block, 16);
  EXPECT_EQ(rotation(96).block, 32);
  EXPECT_EQ(rotation(192).block, 64);
  EXPECT_EQ(rotation(576).block, 64);
  EXPECT_EQ(rotation(512).block, 512);
  EXPECT_EQ(rotation(80).norm, 0.25f);
}

// Element i of H (x * s) is the sum over j of the same block of (-1)^popcount(i & j) x_j s_j, over
// the square root of the block.
TEST(Hadamard, RotateIsTheSignedMatrix) {
  constexpr std::uint64_t kSeed = 32;
  Random random(kSeed);
  for (const std::int64_t dim : kDims) {
    SCOPED_TRACE(::testing::Message() << "dim " << dim << " seed " << kSeed);
    const Rotation& turn = rotation(dim);
    const Vector x = random_vector(random, dim);
    const Vector y = rotated(x);
    double error = 0.0;
    for (std::int64_t i = 0; i < dim; ++i) {
      const std::int64_t start = i / turn.block * turn.block;
      double sum = 0.0;
      for (std::int64_t j = 0; j < turn.block; ++j) {
        const auto at = static_cast<std::size_t>(start + j);
        const int flips = std::popcount(static_cast<std::uint64_t>((i - start) & j));
        sum += (flips % 2 == 0 ? 1.0 : -1.0) * static_cast<double>(x[at] * turn.signs[at]);
      }
      const double want = sum / std::sqrt(static_cast<double>(turn.block));
      error += std::pow(static_cast<double>(y[static_cast<std::size_t>(i)]) - want, 2);
    }
    // One rounding for each stage, one for the norm and one in the norm.
    const double roundings = std::log2(static_cast<double>(turn.block)) + 2;
    EXPECT_LE(std::sqrt(error), roundings * 0x1p-24 * norm(x));
  }
}

// Strides 1, 2, 4, ..: first the halves, then their sum and difference. The bits of stored pages.
Vector halves_first(std::span<const float> x) {
  if (x.size() == 1) return Vector(1, x[0]);
  const Vector a = halves_first(x.first(x.size() / 2));
  const Vector b = halves_first(x.last(x.size() / 2));
  Vector y;
  for (std::size_t i = 0; i < a.size(); ++i) y.push_back(a[i] + b[i]);
  for (std::size_t i = 0; i < a.size(); ++i) y.push_back(a[i] - b[i]);
  return y;
}

TEST(Hadamard, EveryBitIsFixedByTheOrderOfTheButterflies) {
  constexpr std::uint64_t kSeed = 33;
  Random random(kSeed);
  for (const std::int64_t dim : kDims) {
    const Rotation& turn = rotation(dim);
    const Vector x = random_vector(random, dim, 1e3f);
    Vector want;
    for (std::int64_t start = 0; start < dim; start += turn.block) {
      Vector block;
      for (std::int64_t i = start; i < start + turn.block; ++i) {
        const auto at = static_cast<std::size_t>(i);
        block.push_back(x[at] * turn.signs[at]);
      }
      for (const float sum : halves_first(block)) want.push_back(sum * turn.norm);
    }
    EXPECT_EQ(rotated(x), want) << "dim " << dim << " seed " << kSeed;
  }
}

TEST(Hadamard, UnrotateTakesItBack) {
  constexpr std::uint64_t kSeed = 34;
  Random random(kSeed);
  for (const std::int64_t dim : kDims) {
    const double roundings = 2 * std::log2(static_cast<double>(rotation(dim).block)) + 4;
    for (const float deviation : {1.0f, 1e-3f, 1e30f}) {
      const Vector x = random_vector(random, dim, deviation);
      EXPECT_LE(distance(unrotated(rotated(x)), x), roundings * 0x1p-24 * norm(x)) << dim;
      EXPECT_LE(distance(rotated(unrotated(x)), x), roundings * 0x1p-24 * norm(x)) << dim;
    }
  }
}

TEST(Hadamard, IsOrthonormal) {
  for (const std::int64_t dim : {8, 72, 80, 96, 128}) {
    std::vector<Vector> columns;
    for (std::int64_t i = 0; i < dim; ++i) {
      Vector unit(static_cast<std::size_t>(dim), 0.0f);
      unit[static_cast<std::size_t>(i)] = 1.0f;
      columns.push_back(rotated(unit));
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
      for (std::size_t j = 0; j <= i; ++j) {
        double dot = 0.0;
        for (std::size_t k = 0; k < columns.size(); ++k) {
          dot += static_cast<double>(columns[i][k]) * static_cast<double>(columns[j][k]);
        }
        EXPECT_NEAR(dot, i == j ? 1.0 : 0.0, 1e-6) << "dim " << dim << ' ' << i << ' ' << j;
      }
    }
  }
}

// Beyond 2^96 everything is computed 2^-32 as large: the same result, but for the scale.
TEST(Hadamard, LargeElementsTurnAsSmallOnesDo) {
  constexpr std::uint64_t kSeed = 35;
  Random random(kSeed);
  for (const std::int64_t dim : kDims) {
    const Vector small = random_vector(random, dim);
    Vector large;
    for (const float value : small) large.push_back(value * 0x1p120f);
    Vector want;
    for (const float value : rotated(small)) want.push_back(value * 0x1p120f);
    EXPECT_EQ(rotated(large), want) << "dim " << dim << " seed " << kSeed;
  }
}

TEST(Hadamard, SaturatesAtTheLargestFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const std::int64_t dim : kDims) {
    Vector x;  // the vector that one basis vector is turned into, stretched beyond all bounds
    for (std::int64_t i = 0; i < dim; ++i) {
      x.push_back(rotation(dim).signs[static_cast<std::size_t>(i)] * kMax);
    }
    const Vector y = rotated(x);
    for (std::int64_t i = 0; i < dim; ++i) {
      const bool first_of_block = i % rotation(dim).block == 0;
      EXPECT_EQ(y[static_cast<std::size_t>(i)], first_of_block ? kMax : 0.0f) << dim << ' ' << i;
    }
    for (const float value : unrotated(x)) EXPECT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace pagekv::testing
