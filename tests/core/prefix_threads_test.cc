// Eight threads on one index and one small pool: match, compute, insert, fork, evict, invalidate,
// announce requests, look at counters and books. What ThreadSanitizer is for; contents are checked
// too.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "prefix_cache.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

class Crowd {
 public:
  explicit Crowd(const LayoutSpec& spec) : cache_(spec, 120, {.max_events = 64}) {}

  void run() {
    std::vector<std::thread> threads;
    for (unsigned worker = 0; worker < 6; ++worker) {
      threads.emplace_back([this, worker] { serve(worker); });
    }
    threads.emplace_back([this] { invalidate(); });
    threads.emplace_back([this] { audit(); });
    for (std::size_t at = 0; at < 6; ++at) threads[at].join();
    done_ = true;
    threads[6].join();
    threads[7].join();
    cache_.expect_good_books();
    EXPECT_GT(served_, 0);
    EXPECT_GT(cache_.index().stats().hit_tokens, 0);
    EXPECT_GT(cache_.index().stats().evicted_pages, 0);
    cache_.index().clear();
    EXPECT_EQ(cache_.pages_held(), 0);
  }

 private:
  // Prompts of a common beginning, one of four middles and an end of its own.
  static Tokens prompt(std::mt19937& random) {
    Tokens tokens = count_up(0, 20);
    const auto middle = static_cast<std::uint32_t>(random() % 4);
    tokens =
        join(tokens, count_up(1000 * (middle + 1), 10 + static_cast<std::int64_t>(random() % 40)));
    return join(tokens, count_up(static_cast<std::uint32_t>(10000 + random() % 20),
                                 1 + static_cast<std::int64_t>(random() % 20)));
  }

  void serve(unsigned worker) {
    std::mt19937 random(worker);
    const int rounds = kSanitized ? 150 : 1500;
    for (int round = 0; round < rounds && !::testing::Test::HasFailure(); ++round) {
      const PrefixNamespace space = *cache_.index().open({.model = "model"});
      const Tokens tokens = prompt(random);
      PrefixRequest request = *cache_.index().request(space, ids(tokens));
      for (int polls = 0; polls < 50 && !request.poll(); ++polls) std::this_thread::yield();
      Sequence sequence = *cache_.index().match(space, ids(tokens));
      const Tokens rest(tokens.begin() + sequence.length(), tokens.end());
      if (!cache_.tokens().append(sequence, rest)) continue;  // others hold too much
      ASSERT_TRUE(cache_.tokens().holds(sequence, tokens));
      const auto inserted = cache_.index().insert(space, ids(tokens), sequence);
      ASSERT_TRUE(inserted || inserted.error().code() == ErrorCode::invalidated)
          << inserted.error().message();
      if (random() % 3 == 0) go_on(sequence, tokens, random);
      const auto pin = random() % 5 == 0 ? cache_.index().pin(space, ids(tokens)) : PrefixPin();
      ++served_;
    }
  }

  void go_on(const Sequence& from, const Tokens& tokens, std::mt19937& random) {
    Sequence fork = *from.fork();
    const Tokens more = count_up(static_cast<std::uint32_t>(50000 + random() % 1000), 5);
    if (!cache_.tokens().append(fork, more)) return;
    ASSERT_TRUE(cache_.tokens().holds(fork, join(tokens, more)));
    ASSERT_TRUE(cache_.tokens().holds(from, tokens));
  }

  // Paced by requests, not by the clock: on slow machines, too, the pool is to be full in between.
  void invalidate() {
    int next = 0;
    while (!done_) {
      if (served_ >= next) {
        cache_.index().invalidate(*cache_.index().open({.model = "model"}));
        next = served_ + 150;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  void audit() {
    while (!done_) {
      cache_.expect_good_books();
      cache_.index().take_events();
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  PrefixCache cache_;
  std::atomic<bool> done_{false};
  std::atomic<int> served_{0};
};

TEST(PrefixThreads, NobodyReadsForeignRows) {
  Crowd(small_layout({0}, *Format::parse("bf16"))).run();
}

TEST(PrefixThreads, NobodyReadsForeignRowsBehindWindows) {
  Crowd(small_layout({0, 24}, *Format::parse("k8v4"), 16, 8)).run();
}

}  // namespace
}  // namespace pagekv::testing
