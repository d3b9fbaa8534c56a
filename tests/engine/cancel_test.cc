// Requests that are cancelled: their pages are free, and nobody else notices.
//
// PAGEKV_TEST_SCALE multiplies how many of the last test come and go.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "support/random_history.h"
#include "support/sanitized.h"
#include "tests/engine/batch_harness.h"

namespace pagekv::testing {
namespace {

constexpr std::uint64_t kSeed = 77;

// But for what the prefix index alone keeps.
std::int64_t pages_in_use(const Store& store) {
  std::int64_t pages = 0;
  for (const GroupStats& group : store.stats().groups) {
    pages += group.referenced_pages - group.cached_pages;
  }
  return pages;
}

TEST(Cancel, SurvivorsGetTheSameLogits) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  const auto model = random_model();
  std::mt19937_64 random(kSeed);
  std::vector<Request> requests = random_requests(random, 24);
  for (Request& request : requests) request.log_probabilities = true;
  // With and without speculation; in the second, few run and some are cancelled while they wait.
  for (const BatcherOptions& options :
       {BatcherOptions{}, BatcherOptions{.rows_per_pass = 40, .max_running = 6},
        BatcherOptions{.draft_tokens = 3, .drafter = engine::PromptLookup{.ngram_min = 1}}}) {
    Harness alone(*model, {});
    Harness harness(*model, {.page_tokens = 16}, options);
    for (const Request& request : requests) {
      alone.submit(request);
      harness.submit(request);
    }
    alone.run();
    int cancelled = 0;
    for (int pass = 0; !harness.batcher().idle(); ++pass) {
      harness.step();
      const int victim = static_cast<int>(random() % requests.size());
      if (pass % 2 == 0 && harness.batcher().cancel(victim)) {
        ++cancelled;
        EXPECT_TRUE(harness.finished(victim));
        EXPECT_FALSE(harness.batcher().cancel(victim));
        EXPECT_TRUE(harness.store().check());
      }
    }
    EXPECT_GT(cancelled, 3);
    for (int i = 0; i < static_cast<int>(requests.size()); ++i) {
      const Completion& all = alone.completion(i);
      const Completion& got = harness.completion(i);
      if (got.reason != FinishReason::cancelled) {
        EXPECT_EQ(got.tokens, all.tokens) << "request " << i;
        EXPECT_EQ(got.log_probabilities, all.log_probabilities) << "request " << i;
        continue;
      }
      --cancelled;
      ASSERT_LE(got.tokens.size(), all.tokens.size());
      EXPECT_TRUE(std::equal(got.tokens.begin(), got.tokens.end(), all.tokens.begin()));
    }
    EXPECT_EQ(cancelled, 0);
  }
}

TEST(Cancel, GivesPagesBackAtOnceAndKeepsNothing) {
  const auto model = random_model();
  Harness harness(*model, {});
  const int running = harness.submit({.prompt = Tokens(100, 1), .max_tokens = 50, .samples = 3});
  for (int pass = 0; pass < 5; ++pass) harness.step();
  const int waiting = harness.submit({.prompt = {1, 2}, .samples = 2});
  EXPECT_GT(pages_in_use(harness.store()), 0);
  EXPECT_TRUE(harness.batcher().cancel(running));
  EXPECT_EQ(pages_in_use(harness.store()), 0);
  EXPECT_TRUE(harness.batcher().cancel(waiting));
  EXPECT_TRUE(harness.batcher().idle());
  EXPECT_EQ(harness.completions(), 5u);
  for (int sample = 0; sample < 3; ++sample) {
    EXPECT_EQ(harness.completion(running, sample).reason, FinishReason::cancelled);
    EXPECT_EQ(harness.completion(running, sample).tokens.size(), 5u);
  }
  EXPECT_EQ(harness.completion(waiting, 1).reason, FinishReason::cancelled);
  EXPECT_FALSE(harness.batcher().cancel(running));
  EXPECT_FALSE(harness.batcher().cancel(99));
}

TEST(Cancel, MayBeCalledFromCallbacks) {
  const auto model = random_model();
  Batcher* batcher = nullptr;
  BatcherOptions options = {.draft_tokens = 4, .drafter = engine::PromptLookup{.ngram_min = 1}};
  // Request 0 ends itself at its fifth token and takes request 1 along; that one's end asks for
  // another request, and cancels one that waits.
  int tokens = 0;
  int late = -1;
  options.on_token = [&](const engine::NewToken& token) {
    if (token.request != 0 || ++tokens < 5) return;
    EXPECT_TRUE(batcher->cancel(0));
    EXPECT_TRUE(batcher->cancel(1));
    EXPECT_FALSE(batcher->cancel(0));
  };
  options.on_finish = [&](const Completion& completion) {
    if (completion.request != 1) return;
    EXPECT_TRUE(batcher->cancel(2));
    late = *batcher->submit({.prompt = {5, 6}, .max_tokens = 3});
  };
  options.max_running = 2;
  Harness harness(*model, {}, options);
  batcher = &harness.batcher();
  for (int i = 0; i < 3; ++i) harness.submit({.prompt = {1, 2, i}, .max_tokens = 40});
  harness.run();
  EXPECT_EQ(harness.completion(0).tokens.size(), 5u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(harness.completion(i).reason, FinishReason::cancelled) << "request " << i;
  }
  EXPECT_EQ(harness.completion(late).reason, FinishReason::length);
  EXPECT_EQ(harness.completion(late).tokens.size(), 3u);
}

// Somebody always waits, somebody always runs, and most are cancelled, at any age.
TEST(Cancel, ManyLeaveNothingBehind) {
  const int requests = (kSanitized ? 1'000 : 10'000) * test_scale();
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  const auto model = engine::make_random_model({.layers = 2,
                                                .query_heads = 2,
                                                .kv_heads = 1,
                                                .head_dim = 16,
                                                .hidden = 16,
                                                .vocabulary = 16,
                                                .context_tokens = 128,
                                                .window_tokens = 20,
                                                .donors = false});
  ASSERT_TRUE(model) << model.error().message();
  Forward forward(**model, {.page_tokens = 16});
  std::int64_t finished = 0;
  std::int64_t cancelled = 0;
  BatcherOptions options = {.max_running = 32, .reuse = false, .draft_tokens = 2};
  options.on_finish = [&](const Completion& completion) {
    ++finished;
    if (completion.reason == FinishReason::cancelled) ++cancelled;
  };
  const auto batcher = Batcher::make(**model, forward.store(), std::move(options));
  ASSERT_TRUE(batcher) << batcher.error().message();
  std::mt19937_64 random(kSeed);
  std::int64_t samples = 0;
  for (int id = 0; id < requests; ++id) {
    Request request = {.prompt = random_tokens(random, 1 + static_cast<int>(random() % 20), 16),
                       .max_tokens = 1 + static_cast<int>(random() % 40),
                       .samples = random() % 8 == 0 ? 3 : 1};
    samples += request.samples;
    ASSERT_TRUE((*batcher)->submit(std::move(request)));
    for (int i = 0; i < 2; ++i) (*batcher)->cancel(id - static_cast<int>(random() % 40));
    if (id % 8 == 0) {
      ASSERT_TRUE((*batcher)->step());
    }
    if (id % 1000 == 0) {
      ASSERT_TRUE(forward.store().check());
    }
  }
  for (int id = requests - 50; id < requests; ++id) (*batcher)->cancel(id);
  ASSERT_TRUE((*batcher)->run());
  std::printf("%lld samples, %lld of them cancelled\n", static_cast<long long>(samples),
              static_cast<long long>(cancelled));
  EXPECT_EQ(finished, samples);
  EXPECT_GT(cancelled, samples / 2);
  EXPECT_TRUE(forward.store().check());
  EXPECT_EQ(pages_in_use(forward.store()), 0);
  const StoreStats stats = forward.store().stats();
  EXPECT_EQ(stats.sequences + stats.views + stats.live_steps + stats.tokens, 0);
}

}  // namespace
}  // namespace pagekv::testing
