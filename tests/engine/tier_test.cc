// A tier below the store, through the whole engine: tokens and logits are those of a batch without,
// whether prefixes were found in RAM, came up from a folder, or were computed.
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/batch_harness.h"
#include "tests/support/files.h"

namespace pagekv::testing {
namespace {

class EngineTier : public ::testing::TestWithParam<PageSetting> {
 protected:
  std::shared_ptr<Tier> open_tier() const {
    auto tier = open_directory_tier(folder_.path("t"), {.cap_bytes = 64 << 20, .threads = 2});
    EXPECT_TRUE(tier) << tier.error().message();
    return std::move(*tier);
  }
  // All requests at once, in a process of its own as far as pages go.
  std::vector<Completion> run(const std::vector<Request>& requests, std::shared_ptr<Tier> tier,
                              std::int64_t tokens, BatcherStats* stats = nullptr) {
    Harness harness(*model_, GetParam().setup(*model_, tokens),
                    {.max_running = 3, .tier = std::move(tier)});
    std::vector<int> ids;
    for (const Request& request : requests) ids.push_back(harness.submit(request));
    harness.run();
    EXPECT_TRUE(harness.batcher().flush());
    if (stats != nullptr) *stats = harness.batcher().stats();
    std::vector<Completion> completions;
    for (const int id : ids) completions.push_back(harness.completion(id));
    return completions;
  }

  const std::unique_ptr<engine::Model> model_ = random_model(GetParam().window_tokens);
  TemporaryFolder folder_;
};

TEST_P(EngineTier, HitsInTheFolderGiveTheSameLogits) {
  std::mt19937_64 random(41);
  std::vector<Request> requests = random_requests(random, 10);
  for (Request& request : requests) request.log_probabilities = true;
  const auto expected = run(requests, nullptr, 5000);
  for (const std::int64_t tokens : {5000, 500}) {  // the second cannot keep them all
    for (int process = 0; process < 2; ++process) {
      BatcherStats stats;
      const auto actual = run(requests, open_tier(), tokens, &stats);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(actual[i].tokens, expected[i].tokens) << "request " << i;
        EXPECT_EQ(actual[i].log_probabilities, expected[i].log_probabilities) << "request " << i;
      }
      if (process == 1) {
        EXPECT_GT(stats.fetched_tokens, 0);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, EngineTier,
                         ::testing::Values(PageSetting{"bf16", "bf16", 16, 0},
                                           PageSetting{"k8v3", "k8v3", 16, 0},
                                           PageSetting{"kv8_pages_of_32", "kv8", 32, 0},
                                           PageSetting{"kv4_windows", "kv4", 16, 96}),
                         [](const auto& setting) { return std::string(setting.param.name); });

TEST(EngineTierOptions, ATierNeedsReuse) {
  const auto model = random_model(0);
  Forward forward(*model, {});
  TemporaryFolder folder;
  auto tier = open_directory_tier(folder.path("t"), {.cap_bytes = 1 << 20});
  ASSERT_TRUE(tier);
  const auto batcher =
      Batcher::make(*model, forward.store(), {.reuse = false, .tier = std::move(*tier)});
  ASSERT_FALSE(batcher);
  EXPECT_EQ(batcher.error().code(), ErrorCode::invalid_argument);
}

TEST(EngineTierCancel, WhileItsPrefixComesUp) {
  const auto model = random_model(0);
  TemporaryFolder folder;
  std::mt19937_64 random(42);
  const Request request{.prompt = random_tokens(random, 200, 256), .max_tokens = 3};
  for (int process = 0; process < 2; ++process) {
    auto tier = open_directory_tier(folder.path("t"), {.cap_bytes = 8 << 20});
    ASSERT_TRUE(tier);
    Harness harness(*model, {.page_tokens = 16}, {.tier = std::move(*tier)});
    const int kept = harness.submit(request);
    const int cancelled = harness.submit(request);
    EXPECT_TRUE(harness.batcher().cancel(cancelled));
    harness.run();
    EXPECT_EQ(harness.completion(kept).tokens.size(), 3u);
    EXPECT_EQ(harness.completion(kept).shared_tokens, process == 0 ? 0 : 192);
    EXPECT_TRUE(harness.batcher().flush());
  }
}

}  // namespace
}  // namespace pagekv::testing
