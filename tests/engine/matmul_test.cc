// Matrix products against float64, and their bits: the same however many rows and threads.
#include "engine/matmul.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstdio>
#include <random>

namespace pagekv::testing {
namespace {

using engine::PackedMatrix;
using Values = std::vector<float>;

constexpr std::uint64_t kSeed = 20240607;

Values random_values(std::mt19937_64& random, std::int64_t count) {
  std::normal_distribution<float> normal;
  Values values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

PackedMatrix pack(const Values& w, std::int64_t outputs, std::int64_t inner, DType dtype) {
  auto packed = PackedMatrix::make(outputs, inner, dtype);
  EXPECT_TRUE(packed);
  packed->pack_rows(0, outputs, w.data());
  return std::move(*packed);
}

// Every target this processor has, one test run each; the mock is lifted afterwards.
class MatmulTargets : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { use(GetParam()); }
  void TearDown() override { use(0); }
  static void use(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
};

TEST_P(MatmulTargets, ErrorAgainstFloat64IsThatOfF32Sums) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  EXPECT_EQ(engine::matmul_target(), hwy::TargetName(GetParam()));
  std::mt19937_64 random(kSeed);
  const auto executor = make_serial_executor();
  for (const DType dtype : {DType::bf16, DType::f32}) {
    for (const auto& [outputs, inner] :
         {std::pair{1, 1}, {16, 2}, {17, 3}, {31, 64}, {33, 65}, {100, 576}, {576, 1537}}) {
      const std::int64_t rows = 13;
      const PackedMatrix w = pack(random_values(random, outputs * inner), outputs, inner, dtype);
      const Values x = random_values(random, rows * inner);
      Values y(static_cast<std::size_t>(rows * outputs), NAN);
      matmul(*executor, w, x.data(), rows, y.data());
      Values stored(static_cast<std::size_t>(inner));
      for (std::int64_t output = 0; output < outputs; ++output) {
        w.unpack_row(output, stored.data());
        for (std::int64_t row = 0; row < rows; ++row) {
          double sum = 0, magnitude = 0;
          for (std::int64_t k = 0; k < inner; ++k) {
            const double product = double{x[static_cast<std::size_t>(row * inner + k)]} *
                                   double{stored[static_cast<std::size_t>(k)]};
            sum += product;
            magnitude += std::abs(product);
          }
          // Two chains of inner / 2 roundings each, at half an ulp of a partial sum.
          const double bound = (static_cast<double>(inner) / 2 + 2) * 0x1p-24 * magnitude;
          ASSERT_NEAR(y[static_cast<std::size_t>(row * outputs + output)], sum, bound)
              << name(dtype) << " " << outputs << "x" << inner << " row " << row << " output "
              << output;
        }
      }
    }
  }
}

TEST_P(MatmulTargets, BitsDoNotDependOnRowsOrThreads) {
  std::mt19937_64 random(kSeed + 1);
  constexpr std::int64_t kRows = 64;
  for (const auto& [outputs, inner] : {std::pair{80, 65}, {50, 320}, {2100, 96}}) {
    const PackedMatrix w =
        pack(random_values(random, outputs * inner), outputs, inner, DType::bf16);
    const Values x = random_values(random, kRows * inner);
    Values alone(static_cast<std::size_t>(kRows * outputs));
    const auto serial = make_serial_executor();
    for (std::int64_t row = 0; row < kRows; ++row) {
      matmul(*serial, w, x.data() + row * inner, 1, alone.data() + row * outputs);
    }
    for (const int threads : {1, 2, 3}) {
      const auto executor = make_thread_executor(threads);
      ASSERT_TRUE(executor);
      for (std::int64_t rows = 1; rows <= kRows; ++rows) {
        Values together(static_cast<std::size_t>(rows * outputs), NAN);
        matmul(**executor, w, x.data(), rows, together.data());
        const Values expected(alone.begin(), alone.begin() + rows * outputs);
        ASSERT_EQ(together, expected)
            << rows << " rows, " << threads << " threads, " << outputs << "x" << inner;
      }
    }
  }
}

TEST_P(MatmulTargets, Bf16ValuesGiveTheSameBitsStoredAsF32) {
  std::mt19937_64 random(kSeed + 2);
  constexpr std::int64_t kOutputs = 45, kInner = 131, kRows = 9;
  Values w = random_values(random, kOutputs * kInner);
  for (float& value : w) value = f32_from_bf16(bf16_from_f32(value));
  const Values x = random_values(random, kRows * kInner);
  const auto executor = make_serial_executor();
  Values narrow(kRows * kOutputs), wide(kRows * kOutputs);
  matmul(*executor, pack(w, kOutputs, kInner, DType::bf16), x.data(), kRows, narrow.data());
  matmul(*executor, pack(w, kOutputs, kInner, DType::f32), x.data(), kRows, wide.data());
  EXPECT_EQ(narrow, wide);
}

// Large enough that rows are cut into several items.
TEST_P(MatmulTargets, CutsOfManyRowsKeepTheBits) {
  if (hwy::TargetName(GetParam()) == std::string("SCALAR")) GTEST_SKIP() << "too slow to be quick";
  std::mt19937_64 random(kSeed + 3);
  constexpr std::int64_t kOutputs = 70, kInner = 1536, kRows = 300;
  const PackedMatrix w =
      pack(random_values(random, kOutputs * kInner), kOutputs, kInner, DType::bf16);
  const Values x = random_values(random, kRows * kInner);
  const auto executor = make_thread_executor(2);
  ASSERT_TRUE(executor);
  Values together(kRows * kOutputs, NAN), alone(kRows * kOutputs);
  matmul(**executor, w, x.data(), kRows, together.data());
  for (std::int64_t row = 0; row < kRows; ++row) {
    matmul(**executor, w, x.data() + row * kInner, 1, alone.data() + row * kOutputs);
  }
  EXPECT_EQ(together, alone);
}

INSTANTIATE_TEST_SUITE_P(AllTargets, MatmulTargets,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& variant) { return hwy::TargetName(variant.param); });

TEST(PackedMatrix, RoundTripsAndRefuses) {
  std::mt19937_64 random(kSeed + 4);
  const Values w = random_values(random, 19 * 7);
  const PackedMatrix packed = pack(w, 19, 7, DType::bf16);
  for (std::int64_t output = 0; output < 19; ++output) {
    Values row(7);
    packed.unpack_row(output, row.data());
    for (std::size_t k = 0; k < 7; ++k) {
      const float value = w[static_cast<std::size_t>(output) * 7 + k];
      EXPECT_EQ(row[k], f32_from_bf16(bf16_from_f32(value)));
    }
  }
  EXPECT_EQ(packed.bytes(), 2 * 16 * 8 * 2);
  EXPECT_EQ(PackedMatrix::make(0, 4, DType::f32).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(PackedMatrix::make(4, 0, DType::f32).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(PackedMatrix::make(4, 4, DType::f16).error().code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace pagekv::testing
