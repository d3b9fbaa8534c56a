// Hit is miss, through the whole engine: requests give the same tokens and the same logits whether
// their prompts were found or computed, after pages were given up and computed again too.
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/batch_harness.h"

namespace pagekv::testing {
namespace {

class EngineReuse : public ::testing::TestWithParam<PageSetting> {
 protected:
  const std::unique_ptr<engine::Model> model_ = random_model(GetParam().window_tokens);

  // Each request once all before it have ended, so that only the index can share.
  std::vector<Completion> one_by_one(const std::vector<Request>& requests, bool reuse,
                                     std::int64_t tokens, BatcherStats* stats = nullptr) {
    Harness harness(*model_, GetParam().setup(*model_, tokens), {.reuse = reuse});
    std::vector<Completion> completions;
    for (const Request& request : requests) {
      const int id = harness.submit(request);
      harness.run();
      completions.push_back(harness.completion(id));
    }
    if (stats != nullptr) *stats = harness.batcher().stats();
    return completions;
  }
};

TEST_P(EngineReuse, FoundOrComputedGivesTheSameLogits) {
  std::mt19937_64 random(31);
  std::vector<Request> requests = random_requests(random, 8);
  for (Request& request : requests) request.log_probabilities = true;
  const std::vector<Request> first = requests;  // and all of them again
  requests.insert(requests.end(), first.begin(), first.end());

  const auto expected = one_by_one(requests, false, 5000);
  for (const std::int64_t tokens : {5000, 500}) {  // the second cannot keep them all
    BatcherStats stats;
    const auto actual = one_by_one(requests, true, tokens, &stats);
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(actual[i].tokens, expected[i].tokens) << "request " << i;
      EXPECT_EQ(actual[i].log_probabilities, expected[i].log_probabilities) << "request " << i;
      EXPECT_EQ(expected[i].shared_tokens, 0);
    }
    EXPECT_GT(stats.shared_tokens, 0);
    std::int64_t prompt_tokens = 0;
    for (const Request& request : requests) {
      prompt_tokens += static_cast<std::int64_t>(request.prompt.size());
    }
    EXPECT_EQ(stats.shared_tokens + stats.prefill_rows, prompt_tokens)
        << "what is found is not computed";
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, EngineReuse,
                         ::testing::Values(PageSetting{"bf16", "bf16", 64, 0},
                                           PageSetting{"bf16_small_pages", "bf16", 16, 0},
                                           PageSetting{"kv8", "kv8", 32, 0},
                                           PageSetting{"k8v3", "k8v3", 16, 0},
                                           PageSetting{"kv4_windows", "kv4", 16, 96},
                                           PageSetting{"f32_windows", "f32", 32, 96}),
                         [](const auto& setting) { return std::string(setting.param.name); });

// Sixteen requests with one long beginning: the beginning is computed once and held once.
TEST(EngineReuseMemory, GrowsByTheRequestsOwnTokens) {
  const auto model = random_model(0);
  std::mt19937_64 random(32);
  const Tokens common = random_tokens(random, 640, 256);
  Harness harness(*model, {.page_tokens = 16}, {.rows_per_pass = 256});
  std::int64_t own_pages = 0;
  std::int64_t own_tokens = 0;
  for (int i = 0; i < 16; ++i) {
    Tokens prompt = common;
    const Tokens own = random_tokens(random, 1 + i, 256);
    prompt.insert(prompt.end(), own.begin(), own.end());
    harness.submit({.prompt = prompt, .max_tokens = 3});
    own_tokens += 1 + i;
    own_pages += (1 + i + 2 + 15) / 16;  // the last token that was generated is not stored
  }
  harness.run();
  for (int i = 1; i < 16; ++i) EXPECT_GE(harness.completion(i).shared_tokens, 640);
  // Passes that compute prompts have the rows of those who generate, too.
  EXPECT_LE(harness.batcher().stats().prefill_rows, 640 + own_tokens + 16);
  const std::int64_t groups = harness.store().layout().group_count();
  EXPECT_LE(harness.batcher().stats().peak_pages, groups * (640 / 16 + own_pages));
}

TEST(EngineReuseTenants, ShareNothing) {
  const auto model = random_model(0);
  std::mt19937_64 random(33);
  const Tokens prompt = random_tokens(random, 100, 256);
  Harness harness(*model, {.page_tokens = 16});
  const int mine = harness.submit({.prompt = prompt, .max_tokens = 2, .salt = "mine"});
  harness.run();
  const int theirs = harness.submit({.prompt = prompt, .max_tokens = 2, .salt = "theirs"});
  const int again = harness.submit({.prompt = prompt, .max_tokens = 2, .salt = "mine"});
  harness.run();
  EXPECT_EQ(harness.completion(mine).shared_tokens, 0);
  EXPECT_EQ(harness.completion(theirs).shared_tokens, 0);
  EXPECT_EQ(harness.completion(again).shared_tokens, 99);
  EXPECT_EQ(harness.completion(theirs).tokens, harness.completion(mine).tokens);
}

}  // namespace
}  // namespace pagekv::testing
