// Sampling: what can be drawn, how often, and that a seed gives the same tokens everywhere.
#include "engine/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace pagekv::testing {
namespace {

using engine::Sampler;
using engine::SamplerOptions;
using engine::Token;

Sampler make(const SamplerOptions& options) {
  auto sampler = Sampler::make(options);
  EXPECT_TRUE(sampler) << sampler.error().message();
  return std::move(*sampler);
}

// How often each token was drawn.
std::vector<int> histogram(const SamplerOptions& options, const std::vector<float>& logits,
                           int draws) {
  Sampler sampler = make(options);
  std::vector<int> counts(logits.size());
  for (int i = 0; i < draws; ++i) ++counts[static_cast<std::size_t>(*sampler.sample(logits))];
  return counts;
}

TEST(Sampler, GreedyTakesTheLowestOfEquals) {
  Sampler sampler = make({});
  EXPECT_EQ(*sampler.sample(std::vector<float>{1, 3, 2, 3}), 1);
  EXPECT_EQ(*sampler.sample(std::vector<float>{0, 0}), 0);
  EXPECT_EQ(*sampler.sample(std::vector<float>{-INFINITY, -1e30f}), 1);
  EXPECT_EQ(sampler.draws(), 0u);
}

TEST(Sampler, FollowsTheSoftmaxAtItsTemperature) {
  const std::vector<float> logits = {0.0f, 1.0f, -1.0f, 2.5f, -INFINITY};
  constexpr int kDraws = 200'000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    const auto counts = histogram({.temperature = temperature, .seed = 5}, logits, kDraws);
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = std::exp(logits[i] / temperature) / total;
      const double deviation = std::sqrt(kDraws * p * (1 - p));
      EXPECT_NEAR(counts[i], kDraws * p, 5 * deviation) << i << " at " << temperature;
    }
  }
}

TEST(Sampler, TopKKeepsTheMostProbable) {
  const std::vector<float> logits = {1, 5, 3, 5, 4, 4};
  const auto drawn = [&](int top_k) {
    const auto counts = histogram({.temperature = 3, .top_k = top_k, .seed = 1}, logits, 20'000);
    std::set<std::size_t> out;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) out.insert(i);
    }
    return out;
  };
  EXPECT_EQ(drawn(1), (std::set<std::size_t>{1}));
  EXPECT_EQ(drawn(3), (std::set<std::size_t>{1, 3, 4}));  // of two fours the lower id
  EXPECT_EQ(drawn(0).size(), 6u);
  EXPECT_EQ(drawn(100).size(), 6u);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // Probabilities 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits = {std::log(0.125f), std::log(0.5f), std::log(0.25f),
                                     std::log(0.125f)};
  const auto kept = [&](double top_p) {
    const auto counts = histogram({.temperature = 1, .top_p = top_p, .seed = 2}, logits, 40'000);
    std::set<std::size_t> out;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] > 0) out.insert(i);
    }
    return out;
  };
  EXPECT_EQ(kept(0.001), (std::set<std::size_t>{1}));
  EXPECT_EQ(kept(0.49), (std::set<std::size_t>{1}));
  EXPECT_EQ(kept(0.6), (std::set<std::size_t>{1, 2}));
  EXPECT_EQ(kept(0.8), (std::set<std::size_t>{0, 1, 2}));  // of the equals the lower id
  EXPECT_EQ(kept(1.0).size(), 4u);
  const auto counts = histogram({.temperature = 1, .top_p = 0.7, .seed = 2}, logits, 30'000);
  EXPECT_NEAR(counts[1], 20'000, 500);  // renormalised: two thirds
}

TEST(Sampler, SeedsFixTheTokens) {
  std::vector<float> logits(100);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 7) * 0.5f;
  const auto tokens = [&](std::uint64_t seed) {
    Sampler sampler = make({.temperature = 0.9, .top_k = 40, .top_p = 0.95, .seed = seed});
    std::vector<Token> out;
    for (int i = 0; i < 12; ++i) out.push_back(*sampler.sample(logits));
    return out;
  };
  EXPECT_EQ(tokens(1), tokens(1));
  EXPECT_NE(tokens(1), tokens(2));
  // Written down once: the same on every machine and in every later version.
  EXPECT_EQ(tokens(42), (std::vector<Token>{54, 27, 48, 62, 6, 96, 41, 75, 62, 19, 41, 90}));
}

TEST(Sampler, RefusesWhatIsNoNumber) {
  Sampler greedy = make({});
  Sampler warm = make({.temperature = 1});
  for (Sampler* sampler : {&greedy, &warm}) {
    const auto nan = sampler->sample(std::vector<float>{1, NAN, 2});
    ASSERT_FALSE(nan);
    EXPECT_EQ(nan.error().code(), ErrorCode::not_finite);
    EXPECT_EQ(nan.error().number(0), 1);
    EXPECT_EQ(sampler->sample(std::vector<float>{INFINITY}).error().number(0), 0);
    EXPECT_EQ(sampler->sample(std::vector<float>{-INFINITY, -INFINITY}).error().message(),
              "all logits are -inf");
    EXPECT_EQ(sampler->sample({}).error().code(), ErrorCode::invalid_argument);
  }
}

TEST(Sampler, RefusesBadOptions) {
  const auto refused = [](const SamplerOptions& options) { return !Sampler::make(options); };
  EXPECT_TRUE(refused({.temperature = -0.1}));
  EXPECT_TRUE(refused({.temperature = NAN}));
  EXPECT_TRUE(refused({.temperature = INFINITY}));
  EXPECT_TRUE(refused({.top_k = -1}));
  EXPECT_TRUE(refused({.top_p = 0}));
  EXPECT_TRUE(refused({.top_p = 1.1}));
  EXPECT_TRUE(refused({.top_p = NAN}));
}

TEST(Sampler, VeryColdIsGreedy) {
  const std::vector<float> logits = {1, 2, 1.999f};
  const auto counts = histogram({.temperature = 1e-6, .seed = 3}, logits, 1000);
  EXPECT_EQ(counts[1], 1000);
}

}  // namespace
}  // namespace pagekv::testing
