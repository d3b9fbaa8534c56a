// Several samples of one prompt: each is what a request of its own would get, and costs the pages
// of its own tokens only.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/engine/batch_harness.h"

namespace pagekv::testing {
namespace {

constexpr std::uint64_t kSeed = 2024;

Request sampled(Tokens prompt, std::int64_t max_tokens, int samples) {
  return {.prompt = std::move(prompt),
          .max_tokens = max_tokens,
          .sampling = {.temperature = 1.2, .top_k = 50, .seed = 100},
          .samples = samples,
          .log_probabilities = true};
}

// `sample` of the request, as a request of its own.
Completion separate_run(const engine::Model& model, Request request, int sample,
                        const BatcherOptions& options = {}) {
  request.samples = 1;
  request.sampling.seed += static_cast<std::uint64_t>(sample);
  Harness harness(model, {}, options);
  const int id = harness.submit(request);
  harness.run();
  return harness.completion(id);
}

struct Variant {
  const char* name;
  ForwardSetup setup;
  std::int64_t rows_per_pass;
  std::int64_t draft_tokens;
};

class Samples : public ::testing::TestWithParam<Variant> {};

TEST_P(Samples, AreSeparateRuns) {
  const auto model = random_model();
  std::mt19937_64 random(kSeed);
  const std::vector<Request> requests = {sampled(random_tokens(random, 90, 256), 30, 4),
                                         sampled(random_tokens(random, 1, 256), 25, 3),
                                         sampled(random_tokens(random, 40, 256), 10, 1),
                                         sampled(random_tokens(random, 64, 256), 20, 6)};
  // Tokens that end some samples early, so that they leave at different passes.
  BatcherOptions options;
  options.is_end = [](Token token) { return token % 32 == 5; };
  options.rows_per_pass = GetParam().rows_per_pass;
  options.max_running = 12;
  options.draft_tokens = GetParam().draft_tokens;
  options.drafter = engine::PromptLookup{.ngram_min = 1};
  ForwardSetup setup = GetParam().setup;
  if (setup.cap_bytes < 0) {
    setup.cap_bytes *= -Forward(*model, {}).store().layout().bytes_per_token();
  }
  Harness harness(*model, setup, options);
  for (const Request& request : requests) harness.submit(request);
  harness.run();
  for (int id = 0; id < static_cast<int>(requests.size()); ++id) {
    const Request& request = requests[static_cast<std::size_t>(id)];
    for (int sample = 0; sample < request.samples; ++sample) {
      SCOPED_TRACE(sample);
      const Completion expected = separate_run(*model, request, sample, {.is_end = options.is_end});
      const Completion& actual = harness.completion(id, sample);
      EXPECT_EQ(actual.tokens, expected.tokens);
      EXPECT_EQ(actual.reason, expected.reason);
      EXPECT_EQ(actual.log_probabilities, expected.log_probabilities);
      const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
      if (sample > 0) {
        EXPECT_EQ(actual.shared_tokens, prompt_tokens);
      }
    }
  }
  EXPECT_EQ(harness.completions(), 14u);
  const bool few_pages = GetParam().setup.cap_bytes < 0;
  EXPECT_EQ(harness.batcher().stats().preemptions > 0, few_pages);
}

// A cap below 0 is one in tokens.
INSTANTIATE_TEST_SUITE_P(
    Variants, Samples,
    ::testing::Values(Variant{"plain", {}, 512, 0},
                      Variant{"small_pages", {.page_tokens = 16}, 512, 0},
                      Variant{"small_passes", {.page_tokens = 16}, 10, 0},
                      Variant{"few_pages", {.page_tokens = 16, .cap_bytes = -210}, 512, 0},
                      Variant{"speculation", {.page_tokens = 16}, 512, 5}),
    [](const auto& variant) { return std::string(variant.param.name); });

TEST(SampleMemory, GrowsByTheirOwnTokens) {
  const auto model = random_model(0);
  std::mt19937_64 random(kSeed + 1);
  const Tokens prompt = random_tokens(random, 165, 256);
  constexpr std::int64_t kPage = 16;
  constexpr std::int64_t kTokens = 40;
  const auto peak_pages = [&](int samples) {
    Harness harness(*model, {.page_tokens = kPage});
    harness.submit(sampled(prompt, kTokens, samples));
    harness.run();
    return harness.batcher().stats().peak_pages;
  };
  // The last token of each is never computed. The first sample writes on in the prompt's last page;
  // every other has a copy of it.
  constexpr std::int64_t kOwn = (165 % kPage + kTokens - 1 + kPage - 1) / kPage;
  constexpr std::int64_t kShared = 165 / kPage;
  EXPECT_EQ(peak_pages(1), kShared + kOwn);
  EXPECT_EQ(peak_pages(2), kShared + 2 * kOwn);
  EXPECT_EQ(peak_pages(8), kShared + 8 * kOwn);
}

TEST(SampleScores, AreThoseOfTheModelNotOfTheSampler) {
  const auto model = random_model();
  std::mt19937_64 random(kSeed + 2);
  Request request = sampled(random_tokens(random, 20, 256), 12, 1);
  const Completion completion = separate_run(*model, request, 0);
  ASSERT_EQ(completion.log_probabilities.size(), completion.tokens.size());
  // By hand: logits of every position, softmax in double.
  Forward forward(*model, {});
  Sequence sequence = forward.create();
  Tokens text = request.prompt;
  text.insert(text.end(), completion.tokens.begin(), completion.tokens.end());
  const auto from = static_cast<std::int64_t>(request.prompt.size()) - 1;
  const std::vector<float> logits = forward.pass({{&sequence, text}}, from);
  for (std::size_t i = 0; i < completion.tokens.size(); ++i) {
    const std::span<const float> row(logits.data() + i * 256, 256);
    double sum = 0;
    for (const float logit : row) sum += std::exp(static_cast<double>(logit));
    const double expected = row[static_cast<std::size_t>(completion.tokens[i])] - std::log(sum);
    EXPECT_NEAR(completion.log_probabilities[i], expected, 1e-12);
  }
  // An end token has one too, though it is none of the tokens.
  BatcherOptions options;
  options.is_end = [&](Token token) { return token == completion.tokens[3]; };
  const Completion ended = separate_run(*model, request, 0, options);
  EXPECT_EQ(ended.reason, FinishReason::end);
  EXPECT_EQ(ended.log_probabilities.size(), ended.tokens.size() + 1);
  EXPECT_EQ(separate_run(*model, {.prompt = {1}, .max_tokens = 2}, 0).log_probabilities.size(), 0u);
}

TEST(SampleOptions, AreRefused) {
  const auto model = random_model();
  Harness harness(*model, {}, {.max_running = 4});
  for (const int samples : {0, -1, 5}) {
    const auto id = harness.batcher().submit({.prompt = {1}, .samples = samples});
    ASSERT_FALSE(id);
    EXPECT_EQ(id.error().code(), ErrorCode::invalid_argument);
  }
  EXPECT_TRUE(harness.batcher().submit({.prompt = {1}, .samples = 4}));
}

}  // namespace
}  // namespace pagekv::testing
