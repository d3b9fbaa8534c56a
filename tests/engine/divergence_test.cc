// Divergence of logits: against the definition in extended precision, at the edges, and the figures
// made of many scores.
#include "engine/divergence.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

namespace pagekv::testing {
namespace {

using engine::compare_rows;
using engine::Divergence;
using engine::quantile;
using engine::summarize;
using engine::Token;
using engine::TokenScore;
using Values = std::vector<float>;
using Wide = long double;

constexpr std::uint64_t kSeed = 17;
constexpr float kMost = std::numeric_limits<float>::max();

// sum p (ln p - ln q), term by term.
Wide log_sum(const Values& logits) {
  const Wide most = *std::max_element(logits.begin(), logits.end());
  Wide sum = 0;
  for (const float logit : logits) sum += std::exp(Wide{logit} - most);
  return most + std::log(sum);
}

Wide reference_kl(const Values& base, const Values& changed) {
  const Wide base_sum = log_sum(base), changed_sum = log_sum(changed);
  Wide kl = 0;
  for (std::size_t i = 0; i < base.size(); ++i) {
    const Wide ln_p = base[i] - base_sum, ln_q = changed[i] - changed_sum;
    const Wide p = std::exp(ln_p);
    if (p > 0) kl += p * (ln_p - ln_q);
  }
  return kl;
}

TokenScore score(const Values& base, const Values& changed, Token next = 0) {
  TokenScore out;
  const auto executor = make_serial_executor();
  const Status status = compare_rows(*executor, base, changed, {&next, 1}, {&out, 1});
  EXPECT_TRUE(status) << status.error().message();
  return out;
}

Values random_logits(std::mt19937_64& random, std::size_t count, float deviation) {
  std::normal_distribution<float> normal(0.0f, deviation);
  Values logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// Every target this processor has, one test run each; the mock is lifted afterwards.
class CompareRows : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { use(GetParam()); }
  void TearDown() override { use(0); }
  static void use(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
  }
};

TEST_P(CompareRows, IsTheDefinitionAtAllSizesOfChange) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  std::mt19937_64 random(kSeed);
  bool small_seen = false;
  for (const std::size_t vocabulary : {2u, 7u, 8u, 17u, 255u, 1000u, 49152u}) {
    for (const float change : {1e-5f, 4.5e-4f, 1e-2f, 1.0f, 10.0f}) {
      const Values base = random_logits(random, vocabulary, 4.0f);
      Values changed = base;
      const Values noise = random_logits(random, vocabulary, change);
      for (std::size_t i = 0; i < vocabulary; ++i) changed[i] += noise[i] + 0.5f;
      const auto next = static_cast<Token>(random() % vocabulary);
      const TokenScore actual = score(base, changed, next);
      const auto at = static_cast<std::size_t>(next);
      const auto expected = static_cast<double>(reference_kl(base, changed));
      // A change of 1e-5 leaves a divergence of some 1e-10: still right to a thousandth.
      EXPECT_NEAR(actual.kl, expected, 1e-6 * expected + 1e-13) << vocabulary << " " << change;
      small_seen |= expected > 0.3e-7 && expected < 3e-7;
      EXPECT_NEAR(actual.nll, static_cast<double>(log_sum(changed) - changed[at]), 1e-12);
      EXPECT_NEAR(actual.nll_base, static_cast<double>(log_sum(base) - base[at]), 1e-12);
      EXPECT_NEAR(actual.dp, std::exp(-actual.nll) - std::exp(-actual.nll_base), 1e-15);
      const auto top = [](const Values& row) { return std::max_element(row.begin(), row.end()); };
      EXPECT_EQ(actual.same_top, top(base) - base.begin() == top(changed) - changed.begin());
    }
  }
  EXPECT_TRUE(small_seen) << "no divergence near 1e-7 was tried";
}

TEST_P(CompareRows, EqualLogitsGiveNothing) {
  std::mt19937_64 random(kSeed);
  for (const std::size_t vocabulary : {1u, 9u, 512u, 5003u}) {
    const Values logits = random_logits(random, vocabulary, 6.0f);
    const TokenScore same = score(logits, Values(logits));
    EXPECT_EQ(same.kl, 0.0);
    EXPECT_EQ(same.dp, 0.0);
    EXPECT_EQ(same.nll, same.nll_base);
    EXPECT_TRUE(same.same_top);
    EXPECT_EQ(score(logits, logits).kl, 0.0);
  }
}

TEST_P(CompareRows, ShiftedLogitsAreTheSameLikelihoods) {
  Values base(300);
  for (std::size_t i = 0; i < base.size(); ++i) base[i] = static_cast<float>(i % 37) * 0.25f;
  Values changed = base;
  for (float& logit : changed) logit -= 1000.0f;  // exact
  const TokenScore shifted = score(base, changed, 5);
  EXPECT_EQ(shifted.kl, 0.0);
  EXPECT_EQ(shifted.nll, shifted.nll_base);
}

TEST_P(CompareRows, CertaintyAndHugeLogits) {
  Values base(20, 0.0f), changed(20, 0.0f);
  base[3] = changed[3] = 500.0f;
  EXPECT_EQ(score(base, changed, 3).kl, 0.0);
  EXPECT_EQ(score(base, changed, 3).nll, 0.0);
  EXPECT_DOUBLE_EQ(score(base, changed, 4).nll, 500.0);
  // Certain of the wrong token: all of the distance between the logits.
  changed[3] = 0.0f;
  changed[19] = 500.0f;
  const TokenScore wrong = score(base, changed, 3);
  EXPECT_NEAR(wrong.kl, 500.0, 1e-9);
  EXPECT_NEAR(wrong.dp, -1.0, 1e-15);
  EXPECT_FALSE(wrong.same_top);
  base.assign(20, -kMost);
  changed.assign(20, -kMost);
  EXPECT_EQ(score(base, changed).kl, 0.0);
  EXPECT_NEAR(score(base, changed).nll, std::log(20.0), 1e-14);
  base[0] = changed[1] = kMost;
  const TokenScore far = score(base, changed, 0);
  EXPECT_DOUBLE_EQ(far.kl, 2 * double{kMost});
  EXPECT_DOUBLE_EQ(far.nll, 2 * double{kMost});
  EXPECT_EQ(far.nll_base, 0.0);
}

TEST_P(CompareRows, OfEqualTopsTheLowestCounts) {
  for (const std::size_t vocabulary : {5u, 40u}) {
    Values base(vocabulary, 1.0f), changed(vocabulary, 1.0f);
    EXPECT_TRUE(score(base, changed).same_top);
    base[2] = base[4] = 2.0f;
    changed[4] = 2.0f;
    EXPECT_FALSE(score(base, changed).same_top);
    changed[2] = 2.0f;
    EXPECT_TRUE(score(base, changed).same_top);
  }
}

TEST_P(CompareRows, RefusesWhatIsNotFinite) {
  const auto executor = make_serial_executor();
  const Values good(3 * 19, 0.5f);
  const std::vector<Token> next(3, 1);
  std::vector<TokenScore> scores(3);
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const std::size_t place : {0u, 15u, 16u, 18u, 19u, 56u}) {
      for (const bool in_base : {false, true}) {
        Values broken = good;
        broken[place] = bad;
        const Status status = in_base ? compare_rows(*executor, broken, good, next, scores)
                                      : compare_rows(*executor, good, broken, next, scores);
        ASSERT_FALSE(status) << bad << " at " << place;
        EXPECT_EQ(status.error().code(), ErrorCode::not_finite);
        EXPECT_EQ(status.error().number(0), static_cast<std::int64_t>(place / 19));
        EXPECT_EQ(status.error().number(1), static_cast<std::int64_t>(place % 19));
      }
    }
  }
}

TEST_P(CompareRows, RefusesSizesThatDoNotFit) {
  const auto executor = make_serial_executor();
  const Values six(6, 0.0f), five(5, 0.0f);
  const std::vector<Token> next = {0, 2}, outside = {0, 3}, negative = {-1, 0};
  std::vector<TokenScore> scores(2), one(1);
  EXPECT_TRUE(compare_rows(*executor, six, six, next, scores));
  EXPECT_TRUE(compare_rows(*executor, {}, {}, {}, {}));
  EXPECT_FALSE(compare_rows(*executor, six, five, next, scores));
  EXPECT_FALSE(compare_rows(*executor, five, five, next, scores));
  EXPECT_FALSE(compare_rows(*executor, six, six, next, one));
  EXPECT_FALSE(compare_rows(*executor, {}, {}, next, scores));
  EXPECT_FALSE(compare_rows(*executor, six, six, {}, {}));
  EXPECT_FALSE(compare_rows(*executor, six, six, outside, scores));
  EXPECT_FALSE(compare_rows(*executor, six, six, negative, scores));
}

TEST_P(CompareRows, BitsDoNotDependOnRowsOrThreads) {
  std::mt19937_64 random(kSeed);
  constexpr std::size_t kRows = 23, kVocabulary = 101;
  const Values base = random_logits(random, kRows * kVocabulary, 3.0f);
  const Values changed = random_logits(random, kRows * kVocabulary, 3.0f);
  std::vector<Token> next(kRows);
  for (Token& token : next) token = static_cast<Token>(random() % kVocabulary);
  for (const int threads : {1, 2, 3}) {
    const auto executor = make_thread_executor(threads);
    ASSERT_TRUE(executor);
    std::vector<TokenScore> scores(kRows);
    ASSERT_TRUE(compare_rows(**executor, base, changed, next, scores));
    for (std::size_t row = 0; row < kRows; ++row) {
      const auto begin = static_cast<std::ptrdiff_t>(row * kVocabulary);
      const auto end = begin + static_cast<std::ptrdiff_t>(kVocabulary);
      const TokenScore alone =
          score(Values(base.begin() + begin, base.begin() + end),
                Values(changed.begin() + begin, changed.begin() + end), next[row]);
      EXPECT_EQ(scores[row].kl, alone.kl);
      EXPECT_EQ(scores[row].nll, alone.nll);
      EXPECT_EQ(scores[row].dp, alone.dp);
      EXPECT_EQ(scores[row].same_top, alone.same_top);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(AllTargets, CompareRows,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& variant) { return hwy::TargetName(variant.param); });

TEST(Quantile, InterpolatesBetweenOrderStatistics) {
  const std::vector<double> values = {1, 2, 4, 8};
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 1), 8);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(values, 1.0 / 3), 2);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 4 + 0.7 * 4);
  const std::vector<double> one = {5};
  EXPECT_EQ(quantile(one, 0.999), 5);
}

TEST(Summarize, IsTheArithmeticOfItsScores) {
  const std::vector<TokenScore> scores = {
      {.nll = 1.0, .nll_base = 0.5, .kl = 0.4, .dp = 0.1, .same_top = true},
      {.nll = 2.0, .nll_base = 2.0, .kl = 0.0, .dp = -0.2, .same_top = true},
      {.nll = 4.0, .nll_base = 3.0, .kl = 0.1, .dp = 0.0, .same_top = false},
      {.nll = 1.0, .nll_base = 1.5, .kl = 0.3, .dp = -0.1, .same_top = true}};
  const Divergence out = summarize(scores);
  EXPECT_EQ(out.scored, 4);
  // The mean of nll is 2, its variance over 4 is 1.5, so its standard error sqrt(1.5 / 3).
  EXPECT_DOUBLE_EQ(out.ppl.value, std::exp(2.0));
  EXPECT_DOUBLE_EQ(out.ppl.error, std::exp(2.0) * std::sqrt(1.5 / 3));
  // Differences 0.5, 0, 1, -0.5: mean 0.25, variance 0.375 - 0.0625.
  EXPECT_DOUBLE_EQ(out.ln_ratio.value, 0.25);
  EXPECT_DOUBLE_EQ(out.ln_ratio.error, std::sqrt(0.3125 / 3));
  EXPECT_DOUBLE_EQ(out.kl.value, 0.2);
  EXPECT_DOUBLE_EQ(out.kl.error, std::sqrt((0.26 / 4 - 0.04) / 3));
  EXPECT_DOUBLE_EQ(out.median_kl, 0.2);
  EXPECT_DOUBLE_EQ(out.p99_kl, 0.3 + 0.97 * 0.1);
  EXPECT_DOUBLE_EQ(out.p999_kl, 0.3 + 0.997 * 0.1);
  EXPECT_EQ(out.max_kl, 0.4);
  EXPECT_DOUBLE_EQ(out.dp.value, -0.05);
  EXPECT_DOUBLE_EQ(out.rms_dp.value, std::sqrt(0.06 / 4));
  // Squares 0.01, 0.04, 0, 0.01: mean 0.015, variance 0.00045 - 0.000225.
  EXPECT_NEAR(out.rms_dp.error, std::sqrt(0.000225 / 3) / (2 * std::sqrt(0.015)), 1e-15);
  EXPECT_DOUBLE_EQ(out.same_top.value, 0.75);
  EXPECT_DOUBLE_EQ(out.same_top.error, std::sqrt(0.75 * 0.25 / 3));
}

TEST(Summarize, FewScores) {
  EXPECT_EQ(summarize({}).scored, 0);
  EXPECT_EQ(summarize({}).ppl.value, 0);
  const TokenScore one = {.nll = 2, .nll_base = 2};
  const Divergence out = summarize({&one, 1});
  EXPECT_DOUBLE_EQ(out.ppl.value, std::exp(2.0));
  EXPECT_EQ(out.ppl.error, 0);
  EXPECT_EQ(out.rms_dp.value, 0);
  EXPECT_EQ(out.rms_dp.error, 0);
  EXPECT_EQ(out.same_top.value, 1);
}

}  // namespace
}  // namespace pagekv::testing
