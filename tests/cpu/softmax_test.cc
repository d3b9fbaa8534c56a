// The softmax kernels of every target beside a float64 twin.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "cpu/targets.h"
#include "pagekv/dtype.h"
#include "support/random_data.h"

namespace pagekv::testing {
namespace {

using internal::kernel_tables;
using internal::KernelTable;
using internal::kSoftmaxRows;
using internal::kSpanTokens;
using internal::SeenTokens;
using internal::SoftmaxState;
using internal::SpanBits;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Rows {
  std::vector<float> logits;
  std::vector<SeenTokens> seen;
  std::vector<SpanBits> bits;

  bool sees(std::size_t row, std::int64_t token) const {
    const SeenTokens& at = seen[row];
    if (token < at.range.begin || token >= at.range.end) return false;
    const auto word = static_cast<std::size_t>(token / 64);
    return at.bits == nullptr || ((*at.bits)[word] >> token % 64 & 1) != 0;
  }
  float logit(std::size_t row, std::int64_t token) const {
    return logits[row * kSpanTokens + static_cast<std::size_t>(token)];
  }
};

// Rows that see all, a range, some of a range, or nothing. What a row does not see is NaN.
Rows random_rows(Random& random, int count, float spread) {
  Rows rows;
  rows.logits.assign(static_cast<std::size_t>(kSoftmaxRows) * kSpanTokens, 0.0f);
  rows.seen.resize(static_cast<std::size_t>(count));
  rows.bits.resize(rows.seen.size());
  std::normal_distribution<float> bell(0.0f, spread);
  for (std::size_t row = 0; row < rows.seen.size(); ++row) {
    SeenTokens& seen = rows.seen[row];
    const int kind = pick(random, 0, 4);
    seen.range = {0, kSpanTokens};
    if (kind == 0) seen.range = {pick(random, 0, 127), 0};
    if (kind >= 3) {
      seen.range.begin = pick(random, 0, 127);
      seen.range.end = pick(random, static_cast<int>(seen.range.begin) + 1, 128);
    }
    if (kind == 2 || kind == 4) {
      for (std::uint64_t& word : rows.bits[row]) word = random() & random();
      const std::int64_t one =
          pick(random, static_cast<int>(seen.range.begin), static_cast<int>(seen.range.end) - 1);
      rows.bits[row][static_cast<std::size_t>(one / 64)] |= std::uint64_t{1} << one % 64;
      seen.bits = &rows.bits[row];
    }
    for (std::int64_t token = 0; token < kSpanTokens; ++token) {
      float& logit = rows.logits[row * kSpanTokens + static_cast<std::size_t>(token)];
      logit = rows.sees(row, token) ? bell(random) : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return rows;
}

struct Result {
  std::vector<float> p;
  std::vector<SoftmaxState> states;
};

enum class Form { f32, packed };

Result run(KernelTable::Softmax* softmax, const Rows& rows, float factor, Form form) {
  Result result{rows.logits, std::vector<SoftmaxState>(rows.seen.size())};
  softmax(result.p.data(), rows.seen.data(), static_cast<std::int64_t>(rows.seen.size()), factor,
          result.states.data());
  if (form == Form::packed) {
    for (std::size_t row = 0; row < rows.seen.size(); ++row) {
      float* at = result.p.data() + row * kSpanTokens;
      std::vector<std::uint16_t> packed(kSpanTokens);
      std::memcpy(packed.data(), at, packed.size() * sizeof packed[0]);
      for (std::size_t token = 0; token < packed.size(); ++token) {
        at[token] = f32_from_bf16(packed[token]);
      }
    }
  }
  return result;
}

void expect_close(const Result& got, const Rows& rows, float factor, double tolerance) {
  for (std::size_t row = 0; row < rows.seen.size(); ++row) {
    float max = -kInfinity;
    for (std::int64_t token = 0; token < kSpanTokens; ++token) {
      if (rows.sees(row, token)) max = std::max(max, rows.logit(row, token) * factor);
    }
    ASSERT_EQ(got.states[row].max, max) << "row " << row;
    double sum = 0.0;
    for (std::int64_t token = 0; token < kSpanTokens; ++token) {
      const float p = got.p[row * kSpanTokens + static_cast<std::size_t>(token)];
      const float below = rows.logit(row, token) * factor - max;  // rounded, as kernels do
      const double want = rows.sees(row, token) ? std::exp2(static_cast<double>(below)) : 0.0;
      if (want == 0.0) {
        ASSERT_EQ(p, 0.0f) << "row " << row << " token " << token;
      }
      ASSERT_NEAR(static_cast<double>(p), want, tolerance * want + 0x1p-124)
          << "row " << row << " token " << token;
      sum += static_cast<double>(p);
    }
    ASSERT_NEAR(static_cast<double>(got.states[row].sum), sum, 1e-6 * sum) << "row " << row;
  }
}

void expect_same(const Result& a, const Result& b, const Rows& rows) {
  const std::size_t bytes = rows.seen.size() * kSpanTokens * sizeof(float);
  EXPECT_EQ(std::memcmp(a.p.data(), b.p.data(), bytes), 0);
  for (std::size_t row = 0; row < rows.seen.size(); ++row) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(a.states[row].sum),
              std::bit_cast<std::uint32_t>(b.states[row].sum));
  }
}

class Softmax : public ::testing::TestWithParam<std::size_t> {};

// Logits so far apart that many p vanish, too.
TEST_P(Softmax, IsThatOfTheTwin) {
  const KernelTable& table = kernel_tables()[GetParam()];
  for (int seed = 0; seed < 40; ++seed) {
    Random random(static_cast<std::uint64_t>(4100 + seed));
    const Rows rows = random_rows(random, pick(random, 1, kSoftmaxRows), seed % 3 == 0 ? 90 : 4);
    for (const float factor : {0.8f, -1.25f}) {
      SCOPED_TRACE(::testing::Message() << table.name << " seed " << 4100 + seed << ' ' << factor);
      expect_close(run(table.softmax, rows, factor, Form::f32), rows, factor, 3e-7);
      expect_close(run(table.softmax_fast, rows, factor, Form::f32), rows, factor, 3.5e-6);
      if (table.matrix.score == nullptr) continue;
      const Result rounded = run(table.matrix.softmax, rows, factor, Form::f32);
      expect_close(rounded, rows, factor, 0x1p-8);
      expect_same(rounded, run(table.matrix.softmax_packed, rows, factor, Form::packed), rows);
    }
  }
}

// A row's bits do not depend on the rows beside it.
TEST_P(Softmax, RowsAloneHaveTheSameBits) {
  const KernelTable& table = kernel_tables()[GetParam()];
  Random random(4200);
  const Rows rows = random_rows(random, kSoftmaxRows, 4);
  for (KernelTable::Softmax* softmax :
       {table.softmax, table.softmax_fast, table.matrix.softmax, table.matrix.softmax_packed}) {
    if (softmax == nullptr) continue;
    const Result all = run(softmax, rows, 1.0f, Form::f32);
    for (std::size_t row = 0; row < rows.seen.size(); ++row) {
      const auto begin = rows.logits.begin() + static_cast<std::ptrdiff_t>(row) * kSpanTokens;
      const Rows one{{begin, begin + kSpanTokens}, {rows.seen[row]}, {}};
      const Result alone = run(softmax, one, 1.0f, Form::f32);
      EXPECT_EQ(alone.states[0].sum, all.states[row].sum);
      const std::size_t bytes = table.matrix.softmax_packed == softmax ? 2 : 4;
      EXPECT_EQ(std::memcmp(alone.p.data(), all.p.data() + row * kSpanTokens,
                            bytes * static_cast<std::size_t>(kSpanTokens)),
                0)
          << table.name << " row " << row;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, Softmax,
                         ::testing::Range<std::size_t>(0, kernel_tables().size()));

}  // namespace
}  // namespace pagekv::testing
