// Codebooks: how good the tables are, how the fits behave, which code an element gets.
#include "codec/codebook.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "support/codecs.h"

namespace pagekv::testing {
namespace {

using internal::boundaries;
using internal::centroids;
using internal::encode_codebook;

constexpr int kBits[] = {1, 2, 3, 4, 5, 8};

struct Coded {
  std::vector<std::uint8_t> codes;
  float scale = 0.0f;
};

Coded encode(const std::vector<float>& group, int bits, ScaleFit fit) {
  Coded coded{std::vector<std::uint8_t>(group.size()), 0.0f};
  coded.scale = encode_codebook(group.data(), static_cast<std::int64_t>(group.size()), bits, fit,
                                coded.codes.data());
  return coded;
}

// Sums over a group and what it was coded as, in double.
struct Fit {
  double squares = 0.0;          // of the elements
  double decoded_squares = 0.0;  // of what they are decoded to
  double dot = 0.0;              // of both
  double error() const { return squares - 2 * dot + decoded_squares; }
};

Fit fit_of(const std::vector<float>& group, int bits, const Coded& coded) {
  Fit fit;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const double x = static_cast<double>(group[i]);
    const double decoded = static_cast<double>(centroids(bits)[coded.codes[i]] * coded.scale);
    fit.squares += x * x;
    fit.decoded_squares += decoded * decoded;
    fit.dot += x * decoded;
  }
  return fit;
}

std::vector<float> random_group(Random& random, std::int64_t count, float deviation = 1.0f) {
  std::normal_distribution<float> normal(0.0f, deviation);
  std::vector<float> group;
  for (std::int64_t i = 0; i < count; ++i) group.push_back(normal(random));
  return group;
}

// Relative squared error over many groups of normals.
double mean_error(int bits, ScaleFit fit, std::int64_t count, std::int64_t groups) {
  Random random(51);
  double error = 0.0;
  double squares = 0.0;
  for (std::int64_t at = 0; at < groups; ++at) {
    const std::vector<float> group = random_group(random, count);
    const Fit made = fit_of(group, bits, encode(group, bits, fit));
    error += made.error();
    squares += made.squares;
  }
  return error / squares;
}

double density(double x) {
  return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}
double distribution(double x) {
  return std::erfc(-x / std::numbers::sqrt2) / 2;
}
// x * density(x), 0 at both infinities.
double edge_term(double x) {
  return std::isinf(x) ? 0.0 : x * density(x);
}

// E (x - c)^2 of a unit normal x and the centroid c of its cell, exactly.
double squared_error_of_table(int bits) {
  const auto table = centroids(bits);
  const auto bounds = boundaries(bits);
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double error = 0.0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const double low = i == 0 ? -kInfinity : static_cast<double>(bounds[i - 1]);
    const double high = i + 1 == table.size() ? kInfinity : static_cast<double>(bounds[i]);
    const double c = static_cast<double>(table[i]);
    const double mass = distribution(high) - distribution(low);
    const double first = density(low) - density(high);
    const double second = mass - edge_term(high) + edge_term(low);
    error += second - 2 * c * first + c * c * mass;
  }
  return error;
}

// Optimal tables have 0.363380, 0.117482, 0.034548, 0.009501, 0.002505 and 0.000041. That of 8 bits
// is a fit to a sample, whose tails have few members.
TEST(Codebook, TablesAreAsGoodAsTheirWidthAllows) {
  EXPECT_NEAR(squared_error_of_table(1), 0.3634, 0.01 * 0.3634);
  EXPECT_NEAR(squared_error_of_table(2), 0.1175, 0.01 * 0.1175);
  EXPECT_NEAR(squared_error_of_table(3), 0.0345, 0.01 * 0.0345);
  EXPECT_NEAR(squared_error_of_table(4), 0.0095, 0.01 * 0.0095);
  EXPECT_NEAR(squared_error_of_table(5), 0.002505, 0.01 * 0.002505);
  EXPECT_NEAR(squared_error_of_table(8), 0.0001003, 0.01 * 0.0001003);
}

TEST(Codebook, TablesAscendAndBoundariesLieBetween) {
  for (const int bits : kBits) {
    const auto table = centroids(bits);
    const auto bounds = boundaries(bits);
    ASSERT_EQ(table.size(), std::size_t{1} << bits);
    ASSERT_EQ(bounds.size() + 1, table.size());
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      EXPECT_LT(table[i], bounds[i]);
      EXPECT_LT(bounds[i], table[i + 1]);
      if (bits != 3) {
        EXPECT_EQ(bounds[i], (table[i] + table[i + 1]) / 2) << bits << ' ' << i;
      }
    }
  }
  const std::vector<float> three = {-1.74793f, -1.04996f, -0.50055f, 0.0f,
                                    0.50055f,  1.04996f,  1.74793f};
  EXPECT_TRUE(std::ranges::equal(boundaries(3), three)) << "as published";
  EXPECT_EQ(centroids(1)[1], 0.797885f);
}

// With its own rms a group of 32 or 64 normals errs a little less than the table does at scale 1.
TEST(Codebook, RmsOfAGroupIsWorthAFewPercent) {
  struct Known {
    int bits;
    std::int64_t count;
    double error;
  };
  for (const Known& known :
       {Known{1, 32, 0.3533}, Known{2, 32, 0.1116}, Known{3, 32, 0.0324}, Known{4, 32, 0.0089},
        Known{1, 64, 0.3582}, Known{2, 64, 0.1147}, Known{3, 64, 0.0334}, Known{4, 64, 0.0092}}) {
    const double error = mean_error(known.bits, ScaleFit::rms, known.count, 320000 / known.count);
    EXPECT_NEAR(error, known.error, 0.015 * known.error) << known.bits << ' ' << known.count;
  }
}

// The rms itself is not among the scales tried, so this holds on average only.
TEST(Codebook, SearchErrsLeast) {
  for (const int bits : kBits) {
    for (const std::int64_t count : {32, 64, 80, 128, 576}) {
      const std::int64_t groups = 32000 / count;
      const double search = mean_error(bits, ScaleFit::search, count, groups);
      EXPECT_LE(search, mean_error(bits, ScaleFit::rms, count, groups)) << bits << ' ' << count;
      EXPECT_LE(search, mean_error(bits, ScaleFit::norm, count, groups)) << bits << ' ' << count;
    }
  }
}

// And for every group: no scale tried, with the best scale for its codes, would have erred less.
TEST(Codebook, SearchTakesTheBestOfItsCandidates) {
  constexpr std::uint64_t kSeed = 52;
  Random random(kSeed);
  for (const int bits : kBits) {
    const auto table = centroids(bits);
    const auto bounds = boundaries(bits);
    for (int at = 0; at < 200; ++at) {
      SCOPED_TRACE(::testing::Message() << bits << " bits, group " << at << ", seed " << kSeed);
      std::vector<float> group = random_group(random, 32, std::ldexp(1.0f, at % 40 - 20));
      group[3] *= at % 3 == 0 ? 20.0f : 1.0f;
      const Fit found = fit_of(group, bits, encode(group, bits, ScaleFit::search));
      const double rms = std::sqrt(found.squares / 32);
      for (const double factor : {0.72, 0.80, 0.88, 0.96, 1.04, 1.12, 1.20, 1.28}) {
        double dot = 0.0;
        double squares = 0.0;
        for (const float x : group) {
          const auto scaled = static_cast<float>(static_cast<double>(x) / (rms * factor));
          const auto code = std::ranges::lower_bound(bounds, scaled) - bounds.begin();
          const double c = static_cast<double>(table[static_cast<std::size_t>(code)]);
          dot += c * static_cast<double>(x);
          squares += c * c;
        }
        const double error = found.squares - dot * dot / squares;
        // Gains are compared in f32, and an element may lie on a boundary.
        EXPECT_LE(found.error(), error + 1e-6 * found.squares) << factor;
      }
    }
  }
}

TEST(Codebook, ScalesAreWhatTheFitsSay) {
  constexpr std::uint64_t kSeed = 53;
  Random random(kSeed);
  for (const int bits : kBits) {
    for (const std::int64_t count : {8, 32, 72, 128, 576}) {
      SCOPED_TRACE(::testing::Message() << bits << ' ' << count << ", seed " << kSeed);
      const std::vector<float> group = random_group(random, count, 3.0f);
      const Coded by_rms = encode(group, bits, ScaleFit::rms);
      const double squares = fit_of(group, bits, by_rms).squares;
      EXPECT_NEAR(by_rms.scale, std::sqrt(squares / static_cast<double>(count)), 1e-6 * 3);

      const Coded by_norm = encode(group, bits, ScaleFit::norm);
      EXPECT_EQ(by_norm.codes, by_rms.codes);
      EXPECT_NEAR(fit_of(group, bits, by_norm).decoded_squares, squares, 1e-6 * squares)
          << "the length is kept";

      // No other scale would err less with these codes.
      const Fit by_search = fit_of(group, bits, encode(group, bits, ScaleFit::search));
      EXPECT_NEAR(by_search.dot, by_search.decoded_squares, 1e-5 * squares);
    }
  }
}

// A group of rms 1 with `value` in front, or nothing where rounding allows none.
std::optional<std::vector<float>> unit_group_with(float value) {
  constexpr int kOthers = 31;
  float other = std::sqrt((32.0f - value * value) / kOthers);
  for (int attempt = 0; attempt < 200; ++attempt) {
    std::vector<float> group(kOthers + 1, other);
    group[0] = value;
    if (encode(group, 1, ScaleFit::rms).scale == 1.0f) return group;
    other = std::nextafter(other, attempt < 100 ? 0.0f : 8.0f);
    if (attempt == 99) other = std::sqrt((32.0f - value * value) / kOthers);
  }
  return std::nullopt;
}

TEST(Codebook, AnElementOnABoundaryGetsTheLowerCode) {
  for (const int bits : kBits) {
    const auto bounds = boundaries(bits);
    std::size_t tried = 0;
    for (std::size_t i = 0; i < bounds.size(); ++i) {
      const auto on = unit_group_with(bounds[i]);
      const auto above = unit_group_with(std::nextafter(bounds[i], 9.0f));
      if (!on || !above) continue;
      ++tried;
      EXPECT_EQ(encode(*on, bits, ScaleFit::rms).codes[0], i) << bits;
      EXPECT_EQ(encode(*above, bits, ScaleFit::rms).codes[0], i + 1) << bits;
    }
    EXPECT_GE(tried, bounds.size() * 9 / 10) << bits;
  }
}

TEST(Codebook, PowersOfTwoChangeTheScaleOnly) {
  constexpr std::uint64_t kSeed = 54;
  Random random(kSeed);
  for (const int bits : kBits) {
    for (const ScaleFit fit : kAllFits) {
      // Whole numbers, so that they are exact as denormals too.
      std::vector<float> group;
      for (int i = 0; i < 64; ++i) group.push_back(static_cast<float>(pick(random, -1000, 1000)));
      const Coded plain = encode(group, bits, fit);
      for (const int power : {-149, -140, -136, -130, -126, -60, -1, 1, 60, 110, 117, 118}) {
        std::vector<float> scaled;
        for (const float value : group) scaled.push_back(std::ldexp(value, power));
        const Coded other = encode(scaled, bits, fit);
        EXPECT_EQ(other.codes, plain.codes) << bits << " bits, 2^" << power << ", seed " << kSeed;
        EXPECT_EQ(other.scale, std::ldexp(plain.scale, power)) << bits << " bits, 2^" << power;
      }
    }
  }
}

TEST(Codebook, ZerosHaveScaleZero) {
  for (const int bits : kBits) {
    for (const ScaleFit fit : kAllFits) {
      const Coded coded = encode(std::vector<float>(40, 0.0f), bits, fit);
      EXPECT_EQ(coded.scale, 0.0f);
      for (const std::uint8_t code : coded.codes) EXPECT_EQ(code, coded.codes[0]);
    }
  }
}

TEST(Codebook, ScalesStayFinite) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const int bits : kBits) {
    for (const ScaleFit fit : kAllFits) {
      for (const float value : {kMax, -kMax, std::numeric_limits<float>::denorm_min()}) {
        const Coded coded = encode(std::vector<float>(128, value), bits, fit);
        EXPECT_TRUE(std::isfinite(coded.scale)) << bits;
        EXPECT_GE(coded.scale, 0.0f);
      }
    }
  }
}

}  // namespace
}  // namespace pagekv::testing
