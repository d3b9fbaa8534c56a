// Affine quantization of one group: the formula, its error, its special cases.
#include "codec/affine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "support/codecs.h"

namespace pagekv::testing {
namespace {

using internal::AffineGroup;
using internal::encode_affine;

constexpr int kBits[] = {2, 3, 4, 5, 6, 8};

using Group = std::vector<float>;

struct Coded {
  AffineGroup group;
  std::vector<std::uint8_t> codes;
};

Coded encode(const Group& values, int bits) {
  Coded coded{{}, std::vector<std::uint8_t>(values.size())};
  coded.group = encode_affine(values.data(), static_cast<std::int64_t>(values.size()), bits,
                              coded.codes.data());
  return coded;
}

// Groups of many kinds, their elements exact in `type`.
std::vector<Group> random_groups(DType type, std::int64_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<Group> groups;
  for (int at = 0; at < 60; ++at) {
    const float deviation = std::ldexp(1.0f, static_cast<int>(pick(random, -18, 8)));
    const float middle = at % 3 == 0 ? 0.0f : deviation * static_cast<float>(pick(random, -30, 30));
    std::normal_distribution<float> normal(middle, deviation);
    Tensor tensor(type, 1, 1, count);
    for (std::int64_t i = 0; i < count; ++i) tensor.set(0, 0, i, normal(random));
    if (at % 5 == 0) tensor.set(0, 0, pick(random, 0, count - 1), 40 * deviation);
    if (at % 7 == 0) {  // both edges alike, so that 0 is in the middle
      tensor.set(0, 0, 0, 50 * deviation);
      tensor.set(0, 0, 1, -50 * deviation);
    }
    Group group;
    for (std::int64_t i = 0; i < count; ++i) group.push_back(tensor.at(0, 0, i));
    groups.push_back(std::move(group));
  }
  return groups;
}

// The definition once more, in double and in its own words: n + 1 levels `scale` apart, one of them
// exactly the edge of larger magnitude, one of them 0.
struct Levels {
  double scale;
  double bias;
  double steps_from_zero;  // before rounding
};

Levels levels_of(const Group& values, int bits) {
  const double low = static_cast<double>(*std::ranges::min_element(values));
  const double high = static_cast<double>(*std::ranges::max_element(values));
  const double step = std::max((high - low) / ((1 << bits) - 1), 1e-7);
  const bool from_below = std::fabs(low) > std::fabs(high);
  const double edge = from_below ? low : high;
  const double scale = from_below ? step : -step;
  const double steps = edge / scale;
  const double whole = std::nearbyint(steps);
  if (whole == 0.0) return {scale, 0.0, steps};
  return {edge / whole, edge, steps};
}

// Whether rounding may go either way in f32.
bool nearly_tied(double steps) {
  return std::fabs(steps - std::floor(steps) - 0.5) < 1e-6 * (1.0 + std::fabs(steps));
}

TEST(Affine, FollowsItsDefinitionInDouble) {
  constexpr std::uint64_t kSeed = 61;
  std::int64_t compared = 0;
  std::int64_t skipped = 0;
  for (const int bits : kBits) {
    for (const std::int64_t count : {8, 16, 32, 64, 128}) {
      for (const Group& values : random_groups(DType::f32, count, kSeed)) {
        SCOPED_TRACE(::testing::Message() << bits << ' ' << count << " seed " << kSeed);
        const Coded coded = encode(values, bits);
        const Levels levels = levels_of(values, bits);
        if (nearly_tied(levels.steps_from_zero)) continue;
        EXPECT_NEAR(coded.group.scale, levels.scale, 1e-6 * std::fabs(levels.scale));
        EXPECT_EQ(static_cast<double>(coded.group.bias), levels.bias);
        for (std::size_t i = 0; i < values.size(); ++i) {
          const double steps = (static_cast<double>(values[i]) - levels.bias) / levels.scale;
          ++compared;
          if (nearly_tied(steps)) {
            ++skipped;
            continue;
          }
          const double last = (1 << bits) - 1;
          ASSERT_EQ(coded.codes[i], std::clamp(std::nearbyint(steps), 0.0, last)) << steps;
        }
      }
    }
  }
  EXPECT_GT(compared, 50000);
  EXPECT_LT(skipped, compared / 200);
}

TEST(Affine, KnownGroups) {
  // 2 bits over [-3, 3]: the step of 2 makes 1.5 steps to the edge, ties to even: 2 of 1.5.
  const Coded symmetric = encode({-3, -1.5, 0, 1.5, 3, 3, 0.75, 2.25}, 2);
  EXPECT_EQ(symmetric.group.bias, 3.0f);
  EXPECT_EQ(symmetric.group.scale, -1.5f);
  EXPECT_EQ(symmetric.codes, (std::vector<std::uint8_t>{3, 3, 2, 1, 0, 0, 2, 0})) << "ties to even";
  // 2 bits over [-1, 5]: 2.5 steps of 2 to the edge are taken for 2.
  EXPECT_EQ(encode({5, -1, 0, 0, 0, 0, 0, 0}, 2).group.scale, -2.5f);
  // 4 bits over [0, 15] and [-15, 0]: whole numbers are exact.
  Group up;
  Group down;
  std::vector<std::uint8_t> down_codes;
  for (int i = 0; i < 16; ++i) {
    up.push_back(static_cast<float>(i));
    down.push_back(static_cast<float>(i - 15));
    down_codes.push_back(static_cast<std::uint8_t>(i));
  }
  EXPECT_EQ(encode(up, 4).group.scale, -1.0f) << "positive groups count down from their largest";
  EXPECT_EQ(encode(up, 4).group.bias, 15.0f);
  EXPECT_EQ(encode(down, 4).group.scale, 1.0f);
  EXPECT_EQ(encode(down, 4).group.bias, -15.0f);
  EXPECT_EQ(encode(down, 4).codes, down_codes);
}

TEST(Affine, ZerosHaveTheSmallestStepAndNoBias) {
  for (const int bits : kBits) {
    for (const float zero : {0.0f, -0.0f}) {
      const Coded coded = encode(Group(32, zero), bits);
      EXPECT_EQ(coded.group.scale, -1e-7f);
      EXPECT_EQ(coded.group.bias, 0.0f);
      EXPECT_EQ(coded.codes, std::vector<std::uint8_t>(32, 0));
    }
  }
  // As stored: the step rounded to the type, and zeros that come back.
  for (const DType type : kAllDTypes) {
    const auto codec = VectorCodec::affine(4, VectorCodec::exactly(32), type);
    const auto stored = encode_alone(codec, Group(32, 0.0f));
    ASSERT_TRUE(stored);
    std::byte step[4];
    store_element(type, -1e-7f, step);
    EXPECT_EQ(load_element(type, stored->planes[1].data()), load_element(type, step));
    EXPECT_EQ(load_element(type, stored->planes[2].data()), 0.0f);
    EXPECT_EQ(decode_alone(codec, *stored, 32), Group(32, 0.0f));
  }
}

TEST(Affine, NegativeGroupsUseAllLevels) {
  for (const int bits : kBits) {
    const int levels = 1 << bits;
    Group values;
    std::set<int> all;
    for (int i = 0; i < 2 * levels; ++i) {
      const int step = i / 2;
      values.push_back(-10.0f + 0.5f * static_cast<float>(step) / static_cast<float>(levels - 1));
      all.insert(step);
    }
    const Coded coded = encode(values, bits);
    EXPECT_EQ(std::set<int>(coded.codes.begin(), coded.codes.end()), all) << bits;
    EXPECT_EQ(coded.group.bias, -10.0f);
    EXPECT_GT(coded.group.scale, 0.0f);
  }
}

TEST(Affine, ConstantsAreExactAndHaveCodeZero) {
  constexpr float kMax = std::numeric_limits<float>::max();
  for (const int bits : kBits) {
    for (const float value : {1.0f, -0.3f, 1e-3f, 1e5f, -1e5f, 1e31f, 1e33f, kMax, -kMax}) {
      const Coded coded = encode(Group(64, value), bits);
      EXPECT_EQ(coded.group.bias, value);
      EXPECT_TRUE(std::isfinite(coded.group.scale));
      EXPECT_EQ(coded.codes, std::vector<std::uint8_t>(64, 0)) << value;
    }
  }
}

// Where hi - lo overflows: the codes of the same group, smaller.
TEST(Affine, RangesBeyondF32AreCodedAsSmallerOnesAre) {
  constexpr std::uint64_t kSeed = 62;
  Random random(kSeed);
  for (const int bits : kBits) {
    Group small = {-1.75f, 1.75f};
    std::uniform_real_distribution<float> uniform(-1.75f, 1.75f);
    while (small.size() < 64) small.push_back(uniform(random));
    Group large;
    for (const float value : small) large.push_back(std::ldexp(value, 127));
    const Coded want = encode(small, bits);
    const Coded got = encode(large, bits);
    EXPECT_EQ(got.group.bias, std::ldexp(want.group.bias, 127));
    EXPECT_FLOAT_EQ(got.group.scale, std::ldexp(want.group.scale, 127));
    std::int64_t different = 0;
    for (std::size_t i = 0; i < small.size(); ++i) different += got.codes[i] != want.codes[i];
    EXPECT_LE(different, 1) << bits << " bits, seed " << kSeed << ": ties may round otherwise";
  }
}

// The bound of affine.h.
double error_bound(const Group& values, int bits, const AffineGroup& made, float stored_scale,
                   float stored_bias) {
  const auto [low, high] = std::ranges::minmax(values);
  const double last = (1 << bits) - 1;
  const double scale = static_cast<double>(made.scale);
  const double bias = static_cast<double>(made.bias);
  const double to_far_edge =
      static_cast<double>(high) - static_cast<double>(low) - last * std::fabs(scale);
  const double grid = std::max(std::fabs(scale) / 2, to_far_edge);
  const double of_scale = last * std::fabs(static_cast<double>(stored_scale) - scale);
  const double of_bias = std::fabs(static_cast<double>(stored_bias) - bias);
  const double of_f32 = 0x1p-22 * (std::fabs(bias) + last * std::fabs(scale));
  return grid + of_scale + of_bias + of_f32;
}

TEST(Affine, ErrorStaysWithinTheBound) {
  constexpr std::uint64_t kSeed = 63;
  for (const DType type : kAllDTypes) {
    for (const DType scales : kAllDTypes) {
      for (const int bits : kBits) {
        for (const std::int64_t count : {8, 32, 128}) {
          const auto codec =
              VectorCodec::affine(bits, VectorCodec::exactly(static_cast<int>(count)), scales);
          for (const Group& values : random_groups(type, count, kSeed)) {
            const AffineGroup made = encode(values, bits).group;
            const auto stored = encode_alone(codec, values);
            ASSERT_TRUE(stored);
            const double bound =
                error_bound(values, bits, made, load_element(scales, stored->planes[1].data()),
                            load_element(scales, stored->planes[2].data()));
            const Group back = decode_alone(codec, *stored, count);
            for (std::size_t i = 0; i < values.size(); ++i) {
              ASSERT_NEAR(back[i], values[i], bound)
                  << codec.name() << " of " << name(type) << ", seed " << kSeed;
            }
          }
        }
      }
    }
  }
}

// The far edge is never more than one level beyond the last, and half a level only where the range
// is all but symmetric.
TEST(Affine, TheFarEdgeLosesOneLevelAtMost) {
  constexpr std::uint64_t kSeed = 64;
  for (const int bits : kBits) {
    const double last = (1 << bits) - 1;
    for (const Group& values : random_groups(DType::f32, 32, kSeed)) {
      const auto [low, high] = std::ranges::minmax(values);
      const double range = static_cast<double>(high) - static_cast<double>(low);
      const double edge = static_cast<double>(std::max(std::fabs(low), std::fabs(high)));
      const double scale = std::fabs(static_cast<double>(encode(values, bits).group.scale));
      EXPECT_LE(range / scale - last, range / edge / 2 + 1e-5 * last);
    }
  }
  // It can be a whole one: [-1, 1] in 2 bits has the levels 1, 0.5, 0, -0.5.
  const Coded coded = encode({1, -1, 0, 0, 0, 0, 0, 0}, 2);
  EXPECT_EQ(coded.group.scale, -0.5f);
  EXPECT_EQ(coded.codes[1], 3);
}

}  // namespace
}  // namespace pagekv::testing
