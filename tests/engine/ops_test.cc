// The arithmetic between the products, against float64 and against itself with other row counts.
#include "engine/ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "engine/rope.h"

namespace pagekv::testing {
namespace {

using Values = std::vector<float>;
using engine::add_rows;
using engine::rms_norm;
using engine::silu_multiply;

constexpr std::uint64_t kSeed = 31;

Values random_values(std::mt19937_64& random, std::size_t count, float deviation = 1.0f) {
  std::normal_distribution<float> normal(0.0f, deviation);
  Values values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(RmsNorm, IsTheFormula) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  std::mt19937_64 random(kSeed);
  const auto executor = make_serial_executor();
  for (const std::int64_t dim : {1, 7, 8, 64, 577}) {
    const Values x = random_values(random, static_cast<std::size_t>(dim), 3.0f);
    const Values weight = random_values(random, static_cast<std::size_t>(dim));
    Values y(static_cast<std::size_t>(dim));
    rms_norm(*executor, x.data(), 1, dim, weight.data(), 1e-5f, y.data());
    double squares = 0;
    for (const float value : x) squares += double{value} * double{value};
    const double scale = 1 / std::sqrt(squares / static_cast<double>(dim) + double{1e-5f});
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double expected = double{x[i]} * scale * double{weight[i]};
      EXPECT_NEAR(y[i], expected, 3e-7 * std::abs(expected));
    }
  }
}

TEST(SiluMultiply, IsTheFormulaAtAllMagnitudes) {
  std::mt19937_64 random(kSeed);
  const auto executor = make_serial_executor();
  Values gate = random_values(random, 997, 8.0f);
  for (const float extreme : {0.0f, -0.0f, 80.0f, -80.0f, 200.0f, -200.0f, 3e38f, -3e38f}) {
    gate.push_back(extreme);
  }
  const Values up = random_values(random, gate.size());
  Values gate_up = gate;
  gate_up.insert(gate_up.end(), up.begin(), up.end());
  Values y(gate.size());
  silu_multiply(*executor, gate_up.data(), 1, static_cast<std::int64_t>(gate.size()), y.data());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double expected = double{gate[i]} / (1 + std::exp(-double{gate[i]})) * double{up[i]};
    if (std::abs(expected) > double{std::numeric_limits<float>::max()}) continue;
    EXPECT_NEAR(y[i], expected, 1e-6 * std::abs(expected) + 1e-30) << gate[i];
  }
}

TEST(Ops, BitsDoNotDependOnRowsOrThreads) {
  std::mt19937_64 random(kSeed);
  constexpr std::int64_t kRows = 37, kDim = 101;
  const Values x = random_values(random, kRows * 2 * kDim);
  const Values weight = random_values(random, kDim);
  const auto serial = make_serial_executor();
  Values normed(kRows * kDim), gated(kRows * kDim), summed(x.begin(), x.begin() + kRows * kDim);
  for (std::int64_t row = 0; row < kRows; ++row) {
    rms_norm(*serial, x.data() + row * kDim, 1, kDim, weight.data(), 1e-5f,
             normed.data() + row * kDim);
    silu_multiply(*serial, x.data() + row * 2 * kDim, 1, kDim, gated.data() + row * kDim);
    add_rows(*serial, x.data() + (kRows + row) * kDim, 1, kDim, summed.data() + row * kDim);
  }
  for (const int threads : {1, 2, 3}) {
    const auto executor = make_thread_executor(threads);
    ASSERT_TRUE(executor);
    Values out(kRows * kDim);
    rms_norm(**executor, x.data(), kRows, kDim, weight.data(), 1e-5f, out.data());
    EXPECT_EQ(out, normed);
    silu_multiply(**executor, x.data(), kRows, kDim, out.data());
    EXPECT_EQ(out, gated);
    out.assign(x.begin(), x.begin() + kRows * kDim);
    add_rows(**executor, x.data() + kRows * kDim, kRows, kDim, out.data());
    EXPECT_EQ(out, summed);
  }
}

TEST(Rope, TurnsPairsOfBothKinds) {
  std::mt19937_64 random(kSeed);
  constexpr std::int64_t kHeads = 3, kHeadDim = 16, kTurned = 12, kStride = 20;
  for (const engine::RopePairs pairs : {engine::RopePairs::adjacent, engine::RopePairs::halves}) {
    const engine::Rope rope(pairs, kTurned, 10000.0);
    Values turns(static_cast<std::size_t>(rope.turn_floats()));
    for (const std::int64_t position : {0, 1, 77, 4999}) {
      const Values before = random_values(random, kHeads * kStride);
      Values after = before;
      rope.turns(position, turns.data());
      rope.rotate(after.data(), kHeads, kStride, turns.data());
      Values expected = before;
      for (std::int64_t head = 0; head < kHeads; ++head) {
        for (std::int64_t pair = 0; pair < kTurned / 2; ++pair) {
          const bool adjacent = pairs == engine::RopePairs::adjacent;
          const auto first =
              static_cast<std::size_t>(head * kStride + (adjacent ? 2 * pair : pair));
          const std::size_t second = first + static_cast<std::size_t>(adjacent ? 1 : kTurned / 2);
          const double angle = static_cast<double>(position) *
                               std::pow(10000.0, -2.0 * static_cast<double>(pair) / kTurned);
          const double a = before[first], b = before[second];
          expected[first] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
          expected[second] = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
        }
      }
      for (std::size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], expected[i], 1e-6);
      // What lies behind the turned elements and between heads stays as it was.
      for (std::int64_t head = 0; head < kHeads; ++head) {
        for (std::int64_t i = kTurned; i < std::min(kStride, kHeadDim); ++i) {
          const auto at = static_cast<std::size_t>(head * kStride + i);
          EXPECT_EQ(after[at], before[at]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace pagekv::testing
