// Continuous batching: the same tokens as one request at a time, pages shared and given back.
#include "engine/batch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "tests/engine/batch_harness.h"

namespace pagekv::testing {
namespace {

constexpr std::uint64_t kSeed = 4711;

std::vector<Tokens> one_by_one(const engine::Model& model, const std::vector<Request>& requests) {
  std::vector<Tokens> tokens;
  for (const Request& request : requests) {
    Harness harness(model, {});
    const int id = harness.submit(request);
    harness.run();
    tokens.push_back(harness.completion(id).tokens);
  }
  return tokens;
}

TEST(Batcher, TogetherIsOneByOne) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  const auto model = random_model();
  std::mt19937_64 random(kSeed);
  const std::vector<Request> requests = random_requests(random, 20);
  const std::vector<Tokens> expected = one_by_one(*model, requests);
  struct Variant {
    ForwardSetup setup;
    std::int64_t rows_per_pass;
    int max_running;
    bool reuse;
  };
  for (const Variant& variant :
       {Variant{{}, 512, 64, true}, Variant{{.threads = 2}, 40, 8, true},
        Variant{{.threads = 2, .page_tokens = 16}, 7, 3, false}, Variant{{}, 3, 8, true}}) {
    Harness harness(*model, variant.setup,
                    {.rows_per_pass = variant.rows_per_pass,
                     .max_running = variant.max_running,
                     .reuse = variant.reuse});
    // They join over time: a few before every pass.
    std::size_t submitted = 0;
    while (submitted < requests.size() || !harness.batcher().idle()) {
      for (int i = 0; i < 2 && submitted < requests.size(); ++i) {
        harness.submit(requests[submitted++]);
      }
      harness.step();
    }
    for (std::size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(harness.completion(static_cast<int>(i)).tokens, expected[i]) << "request " << i;
      EXPECT_EQ(harness.completion(static_cast<int>(i)).reason, FinishReason::length);
    }
    EXPECT_EQ(harness.batcher().stats().shared_tokens > 0, variant.reuse);
  }
}

TEST(Batcher, FewPagesDelayButDoNotChangeTokens) {
  const auto model = random_model();
  std::mt19937_64 random(kSeed + 1);
  const std::vector<Request> requests = random_requests(random, 12);
  const std::vector<Tokens> expected = one_by_one(*model, requests);
  // Enough for the longest request and a little more.
  const std::int64_t bytes_per_token =
      Forward(*model, {.page_tokens = 16}).store().layout().bytes_per_token();
  Harness harness(*model, {.page_tokens = 16, .cap_bytes = bytes_per_token * 320});
  for (const Request& request : requests) harness.submit(request);
  harness.run();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Completion& completion = harness.completion(static_cast<int>(i));
    EXPECT_FALSE(completion.error) << completion.error->message();
    EXPECT_EQ(completion.tokens, expected[i]) << "request " << i;
  }
  EXPECT_GT(harness.batcher().stats().preemptions, 0);
}

TEST(Batcher, NobodyWaitsForOthersToEndWherePassesAreSmall) {
  const auto model = random_model();
  std::mt19937_64 random(kSeed + 4);
  Harness harness(*model, {}, {.rows_per_pass = 2, .max_running = 6});
  std::vector<int> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(harness.submit({.prompt = random_tokens(random, 8, 256), .max_tokens = 40}));
  }
  for (int pass = 0; pass < 8; ++pass) harness.step();
  // By now the slowest prompt is read, and from here on every request gets a token in every pass.
  std::vector<std::size_t> before;
  for (const int request : requests) before.push_back(harness.streamed(request));
  for (int pass = 0; pass < 10; ++pass) harness.step();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_GT(before[i], 0u) << "request " << i;
    EXPECT_EQ(harness.streamed(requests[i]), before[i] + 10) << "request " << i;
  }
}

TEST(Batcher, WhatIsSharedAgainAfterAPreemptionIsCountedOnce) {
  const auto model = random_model(0);
  std::mt19937_64 random(kSeed + 5);
  const Tokens common = random_tokens(random, 100, 256);
  const std::int64_t bytes_per_token =
      Forward(*model, {.page_tokens = 16}).store().layout().bytes_per_token();
  Harness harness(*model, {.page_tokens = 16, .cap_bytes = bytes_per_token * 200});
  std::int64_t shared = 0;
  for (int i = 0; i < 4; ++i) {
    Tokens prompt = common;
    prompt.push_back(i);
    harness.submit({.prompt = prompt, .max_tokens = 60});
  }
  harness.run();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(harness.completion(i).shared_tokens, i == 0 ? 0 : 100) << "request " << i;
    shared += harness.completion(i).shared_tokens;
  }
  EXPECT_EQ(harness.batcher().stats().shared_tokens, shared);
  EXPECT_GT(harness.batcher().stats().preemptions, 0);
}

TEST(Batcher, RequestThatNeverFitsFailsAloneAndSaysWhy) {
  const auto model = random_model(0);
  std::mt19937_64 random(kSeed + 2);
  const std::int64_t bytes_per_token =
      Forward(*model, {.page_tokens = 16}).store().layout().bytes_per_token();
  Harness harness(*model, {.page_tokens = 16, .cap_bytes = bytes_per_token * 100});
  const int small = harness.submit({.prompt = random_tokens(random, 20, 256), .max_tokens = 5});
  const int large = harness.submit({.prompt = random_tokens(random, 300, 256), .max_tokens = 5});
  const int grows = harness.submit({.prompt = random_tokens(random, 90, 256), .max_tokens = 50});
  harness.run();
  EXPECT_EQ(harness.completion(small).reason, FinishReason::length);
  EXPECT_EQ(harness.completion(large).reason, FinishReason::error);
  ASSERT_TRUE(harness.completion(large).error);
  EXPECT_EQ(harness.completion(large).error->code(), ErrorCode::pool_exhausted);
  EXPECT_EQ(harness.completion(grows).reason, FinishReason::error);
  EXPECT_GT(harness.completion(grows).tokens.size(), 0u);
}

TEST(Batcher, CommonBeginningsShareTheirPages) {
  const auto model = random_model(0);
  std::mt19937_64 random(kSeed + 3);
  const Tokens common = random_tokens(random, 200, 256);
  Harness harness(*model, {.page_tokens = 16}, {.rows_per_pass = 64});
  // Submitted at once: the second waits for the first to have computed what they share.
  Tokens first = common, second = common;
  first.push_back(1);
  second.push_back(2);
  const int a = harness.submit({.prompt = first, .max_tokens = 20});
  const int b = harness.submit({.prompt = second, .max_tokens = 3});
  harness.run();
  EXPECT_EQ(harness.completion(a).shared_tokens, 0);
  // All but what is less than a page: the pass of 64 rows that ends at 192 is the last one waited
  // for.
  EXPECT_EQ(harness.completion(b).shared_tokens, 192);
  EXPECT_GT(harness.batcher().stats().peak_shared_pages, 10);
  // A finished one is found too, as far as its own answer goes: a second turn.
  Tokens turn = first;
  const Tokens& answer = harness.completion(a).tokens;
  turn.insert(turn.end(), answer.begin(), answer.end());
  turn.push_back(7);
  const int c = harness.submit({.prompt = turn, .max_tokens = 1});
  harness.run();
  EXPECT_EQ(harness.completion(c).shared_tokens, 201 + 19);  // the last token was never computed
  // The same prompt again leaves one token to compute.
  const int d = harness.submit({.prompt = turn, .max_tokens = 1});
  harness.run();
  EXPECT_EQ(harness.completion(d).shared_tokens, static_cast<std::int64_t>(turn.size()) - 1);
  EXPECT_EQ(harness.completion(d).tokens, harness.completion(c).tokens);
}

TEST(Batcher, EndsAtEndTokensAndAtTheContext) {
  const auto model = random_model();
  const Request request = {.prompt = {1, 2, 3}, .max_tokens = 50};
  const std::vector<Tokens> free = one_by_one(*model, {request});
  const Token stop = free[0][20];
  BatcherOptions options;
  options.is_end = [stop](Token token) { return token == stop; };
  Harness harness(*model, {}, options);
  const int id = harness.submit(request);
  harness.run();
  const auto end = std::find(free[0].begin(), free[0].end(), stop);
  EXPECT_EQ(harness.completion(id).tokens, Tokens(free[0].begin(), end));
  EXPECT_EQ(harness.completion(id).reason, FinishReason::end);

  Harness small(*model, {}, {.context_tokens = 10});
  const int cut = small.submit(request);
  small.run();
  EXPECT_EQ(small.completion(cut).reason, FinishReason::context);
  EXPECT_EQ(small.completion(cut).tokens, Tokens(free[0].begin(), free[0].begin() + 7));
}

TEST(Batcher, RefusesBadRequests) {
  const auto model = random_model();
  Harness harness(*model, {}, {.context_tokens = 10});
  const auto code = [&](Request request) {
    const auto id = harness.batcher().submit(std::move(request));
    return id ? ErrorCode{} : id.error().code();
  };
  EXPECT_EQ(code({.prompt = {}}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.prompt = {1}, .max_tokens = 0}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.prompt = Tokens(10, 1)}), ErrorCode::too_long);
  EXPECT_EQ(code({.prompt = {1}, .sampling = {.temperature = -1}}), ErrorCode::invalid_argument);
  EXPECT_EQ(code({.prompt = Tokens(9, 1)}), ErrorCode{});
  Forward forward(*model, {});
  EXPECT_FALSE(Batcher::make(*model, forward.store(), {.rows_per_pass = 0}));
}

}  // namespace
}  // namespace pagekv::testing
