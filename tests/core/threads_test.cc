// Views read on other threads while their sequences append, fork, truncate and die (rules 10
// and 13). What ThreadSanitizer is for; the contents are checked too.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>

#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

struct Published {
  View view;
  Tokens tokens;
};

// Hands views from the writers to the readers.
class Queue {
 public:
  void push(Published item) {
    {
      const std::lock_guard lock(mutex_);
      if (items_.size() >= 32) items_.pop_front();
      items_.push_back(std::move(item));
    }
    ready_.notify_one();
  }
  bool pop(Published& item) {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (items_.empty()) return false;
    item = items_.front();  // a copy: several readers may hold one view
    items_.pop_front();
    return true;
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Published> items_;
  bool closed_ = false;
};

void write_and_publish(TokenCache& cache, Queue& queue, unsigned seed) {
  std::mt19937 random(seed);
  auto next = static_cast<std::uint32_t>(seed * 1000000);
  auto sequence = *cache.store().create_sequence();
  Tokens tokens;
  for (int round = 0; round < 250; ++round) {
    const Tokens more = count_up(next, 1 + static_cast<std::int64_t>(random() % 20));
    next += 20;
    if (static_cast<std::int64_t>(tokens.size() + more.size()) > 300) {
      sequence = *cache.store().create_sequence();  // the old one dies while its views are read
      tokens.clear();
    }
    ASSERT_TRUE(cache.append(sequence, more));
    tokens.insert(tokens.end(), more.begin(), more.end());
    queue.push({*sequence.publish(), tokens});
    if (random() % 3 == 0) {
      const std::size_t length =
          tokens.size() - random() % std::min<std::size_t>(tokens.size(), 12);
      ASSERT_TRUE(sequence.truncate(static_cast<std::int64_t>(length)));
      tokens.resize(length);
    }
    if (random() % 4 == 0) sequence = *sequence.fork();
  }
}

class Threads : public ::testing::TestWithParam<const char*> {};

TEST_P(Threads, ViewsStayAsTheyWereWhileSequencesGoOn) {
  TestDevice test(2);
  TokenCache cache(test.device, small_layout({0, 64}, *Format::parse(GetParam()), 16, 32),
                   {.cap_bytes = 64 << 20, .max_sequence_tokens = 512});
  Queue queue;
  std::atomic<int> reads{0};
  std::vector<std::thread> writers, readers;
  for (unsigned writer = 1; writer <= 2; ++writer) {
    writers.emplace_back([&, writer] { write_and_publish(cache, queue, writer); });
  }
  for (int reader = 0; reader < 2; ++reader) {
    readers.emplace_back([&] {
      for (Published item; queue.pop(item); ++reads) {
        ASSERT_TRUE(cache.holds(item.view, item.tokens));
      }
    });
  }
  std::thread auditor([&] {
    for (int round = 0; round < 100; ++round) {
      const Status books = cache.store().check();
      ASSERT_TRUE(books) << books.error().message();
      std::this_thread::yield();
    }
  });
  for (auto& writer : writers) writer.join();
  queue.close();
  for (auto& reader : readers) reader.join();
  auditor.join();
  EXPECT_GT(reads, 0);
  EXPECT_TRUE(cache.store().check());
  EXPECT_EQ(cache.store().stats().groups[0].referenced_pages, 0);
}

INSTANTIATE_TEST_SUITE_P(Formats, Threads, ::testing::Values("bf16", "k3v4"));

}  // namespace
}  // namespace pagekv::testing
