// What tests of the Batcher drive it with.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/batch.h"
#include "engine/random_model.h"
#include "tests/engine/forward.h"

namespace pagekv::testing {

using engine::Batcher;
using engine::BatcherOptions;
using engine::BatcherStats;
using engine::Completion;
using engine::FinishReason;
using engine::Request;

// A batcher that collects completions, and checks the streamed tokens against them.
class Harness {
 public:
  Harness(const engine::Model& model, const ForwardSetup& setup, BatcherOptions options = {})
      : forward_(model, setup) {
    make_batcher(model, std::move(options));
  }

  Batcher& batcher() { return *batcher_; }
  Store& store() { return forward_.store(); }
  int submit(const Request& request) {
    const auto id = batcher_->submit(request);
    EXPECT_TRUE(id) << id.error().message();
    return id ? *id : -1;
  }
  void step() {
    const Status status = batcher_->step();
    ASSERT_TRUE(status) << status.error().message();
    const Status books = store().check();
    ASSERT_TRUE(books) << books.error().message();
  }
  void run() {
    while (!batcher_->idle() && !::testing::Test::HasFatalFailure()) step();
  }
  const Completion& completion(int request, int sample = 0) {
    return completions_.at({request, sample});
  }
  bool finished(int request, int sample = 0) const {
    return completions_.contains({request, sample});
  }
  std::size_t completions() const { return completions_.size(); }
  std::size_t streamed(int request, int sample = 0) { return streamed_[{request, sample}].size(); }

 private:
  void make_batcher(const engine::Model& model, BatcherOptions options) {
    options.on_token = [this, then = options.on_token](const engine::NewToken& token) {
      streamed_[{token.request, token.sample}].push_back(token.token);
      if (then) then(token);
    };
    options.on_finish = [this, then = options.on_finish](const Completion& completion) {
      const std::pair key(completion.request, completion.sample);
      EXPECT_TRUE(completions_.emplace(key, completion).second);
      EXPECT_EQ(completion.tokens, streamed_[key]);
      if (then) then(completion);
    };
    auto batcher = Batcher::make(model, store(), std::move(options));
    ASSERT_TRUE(batcher) << batcher.error().message();
    batcher_ = std::move(*batcher);
  }

  Forward forward_;
  std::unique_ptr<Batcher> batcher_;
  std::map<std::pair<int, int>, Tokens> streamed_;         // by request and sample
  std::map<std::pair<int, int>, Completion> completions_;  // likewise
};

inline std::unique_ptr<engine::Model> random_model(std::int64_t window_tokens = 96) {
  auto model = engine::make_random_model({.window_tokens = window_tokens});
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

// What tests of reuse vary: the pages, and the window of some layers (0: none).
struct PageSetting {
  const char* name;
  const char* format;
  std::int64_t page_tokens;
  std::int64_t window_tokens;

  // A store with room for `tokens`.
  ForwardSetup setup(const engine::Model& model, std::int64_t tokens) const {
    ForwardSetup setup{.page_tokens = page_tokens, .format = format};
    Forward any(model, setup);
    setup.cap_bytes = any.store().layout().bytes_per_token() * tokens;
    return setup;
  }
};

// Prompts of many lengths, some with common beginnings; greedy and sampled.
inline std::vector<Request> random_requests(std::mt19937_64& random, int count) {
  const Tokens common = random_tokens(random, 150, 256);
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    if (random() % 2 == 0) {
      request.prompt.assign(common.begin(),
                            common.begin() + static_cast<std::ptrdiff_t>(1 + random() % 150));
    }
    const Tokens own = random_tokens(random, 1 + static_cast<std::int64_t>(random() % 60), 256);
    request.prompt.insert(request.prompt.end(), own.begin(), own.end());
    request.max_tokens = 1 + static_cast<std::int64_t>(random() % 30);
    if (random() % 2 == 0) {
      request.sampling = {.temperature = 1.0, .top_k = 40, .top_p = 0.9, .seed = random()};
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace pagekv::testing
