// Batches: their event, deadlines, what cancelling and dropping them does, who owns which memory,
// and many threads at one tier.
#include <gtest/gtest.h>
#include <poll.h>

#include <condition_variable>
#include <mutex>
#include <thread>

#include "io/tier_client.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A place where threads wait until it is opened.
class Gate {
 public:
  std::optional<int> pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    --waiting_;
    return std::nullopt;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void close() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  void wait_for(int threads) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ == threads; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int waiting_ = 0;
};

// A tier of one thread with ten records, whose reads and writes wait at a gate.
class TierBatches : public ::testing::Test {
 protected:
  TierBatches() {
    gate_.open();
    engine_->on_read = [this] { return gate_.pass(); };
    engine_->on_write = [this] { return gate_.pass(); };
    tier_ = open_tier(folder_.path("tier"),
                      {.cap_bytes = 1 << 20, .threads = 1, .max_waiting_bytes = 5000},
                      {.engine = engine_});
    for (std::uint64_t number = 0; number < 10; ++number) {
      keys_.push_back(key_of(number));
      put(*tier_, keys_.back(), random_bytes(number, 1000));
    }
    tier_->clear_event();
    gate_.close();
  }
  ~TierBatches() override { gate_.open(); }

  bool event(int timeout_ms = 0) {
    pollfd entry{.fd = tier_->event_fd(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, timeout_ms) == 1;
  }
  TierBatch begin_get(std::span<const Digest> keys, TierOptions options = {}) {
    auto batch = tier_->get(keys, options);
    EXPECT_TRUE(batch);
    return std::move(*batch);
  }

  TemporaryFolder folder_;
  Gate gate_;
  std::shared_ptr<FaultyEngine> engine_ = std::make_shared<FaultyEngine>();
  std::unique_ptr<Tier> tier_;
  std::vector<Digest> keys_;
};

TEST_F(TierBatches, TheEventComesWithTheEnd) {
  const TierBatch batch = begin_get(keys_);
  EXPECT_FALSE(batch.poll());
  EXPECT_FALSE(batch.wait(Clock::now() + 5ms));
  EXPECT_FALSE(event());
  gate_.open();
  EXPECT_TRUE(event(60'000));
  EXPECT_TRUE(batch.poll());
  tier_->clear_event();
  EXPECT_FALSE(event());
  EXPECT_TRUE(batch.wait(Clock::time_point::min()));
  for (std::uint64_t at = 0; at < 10; ++at) {
    EXPECT_EQ(batch.answer(at).outcome, TierOutcome::ok);
    const auto value = batch.answer(at).value;
    EXPECT_EQ(Blob(value.begin(), value.end()), random_bytes(at, 1000));
  }
  const auto none = tier_->get({});
  EXPECT_TRUE(event());
}

TEST_F(TierBatches, WhatIsNotBegunByTheDeadlineIsExpired) {
  const TierBatch first = begin_get({keys_.data(), 1});
  gate_.wait_for(1);  // the only thread
  // Nobody polls and no thread is free: the event comes all the same.
  const TierBatch batch = begin_get(keys_, {.deadline = Clock::now() + 20ms});
  EXPECT_TRUE(event(60'000));
  EXPECT_TRUE(batch.poll());
  for (std::size_t at = 0; at < 10; ++at) {
    EXPECT_EQ(batch.answer(at).outcome, TierOutcome::expired);
  }
  EXPECT_FALSE(first.poll());
  gate_.open();
  EXPECT_TRUE(first.wait());
  EXPECT_EQ(first.answer(0).outcome, TierOutcome::ok);
  EXPECT_EQ(tier_->stats().expired, 10);
}

TEST_F(TierBatches, WhatIsBegunIsFinishedAfterTheDeadline) {
  const TierBatch batch = begin_get({keys_.data(), 2}, {.deadline = Clock::now() + 200ms});
  gate_.wait_for(1);
  EXPECT_FALSE(batch.wait(Clock::now() + 250ms));
  gate_.open();
  EXPECT_TRUE(batch.wait());
  EXPECT_EQ(batch.answer(0).outcome, TierOutcome::ok);
  EXPECT_EQ(batch.answer(1).outcome, TierOutcome::expired);
}

TEST_F(TierBatches, ADeadlineInThePast) {
  const TierBatch batch = begin_get(keys_, {.deadline = Clock::time_point::min()});
  EXPECT_TRUE(batch.wait());
  EXPECT_EQ(batch.answer(9).outcome, TierOutcome::expired);
}

TEST_F(TierBatches, CancelledOnesAnswerAtOnceForWhatIsNotBegun) {
  TierBatch batch = begin_get({keys_.data(), 3});
  gate_.wait_for(1);
  batch.cancel();
  EXPECT_FALSE(batch.poll());
  gate_.open();
  EXPECT_TRUE(batch.wait());
  EXPECT_EQ(batch.answer(0).outcome, TierOutcome::ok);
  EXPECT_EQ(batch.answer(1).outcome, TierOutcome::cancelled);
  EXPECT_EQ(batch.answer(2).outcome, TierOutcome::cancelled);
  EXPECT_EQ(tier_->stats().cancelled, 2);
  batch.cancel();  // changes nothing
  EXPECT_EQ(batch.answer(0).outcome, TierOutcome::ok);
}

// ASan sees it if a thread writes into the memory of a batch that is gone.
TEST_F(TierBatches, DroppedWhileReading) {
  {
    const TierBatch batch = begin_get(keys_);
    gate_.wait_for(1);
  }
  gate_.open();
  const TierBatch next = begin_get({keys_.data(), 1});
  EXPECT_TRUE(next.wait());
  EXPECT_EQ(tier_->stats().cancelled, 9);
}

TEST_F(TierBatches, BytesOfAPutLiveAsLongAsTheyAreRead) {
  auto bytes = std::make_shared<Blob>(random_bytes(77, 900));
  const std::weak_ptr<Blob> watched = bytes;
  {
    const TierPut records[] = {{.key = key_of(77), .value = {.bytes = *bytes, .owner = bytes}},
                               {.key = key_of(78), .value = {.bytes = *bytes, .owner = bytes}}};
    const auto batch = tier_->put(records);
    gate_.wait_for(1);
  }
  bytes.reset();
  EXPECT_EQ(watched.use_count(), 1);  // of the record that is being written
  gate_.open();
  EXPECT_TRUE(begin_get({keys_.data(), 1}).wait());
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(get(*tier_, key_of(77)).value, random_bytes(77, 900));
  EXPECT_FALSE(exists(*tier_, key_of(78)));
}

TEST_F(TierBatches, BytesWithoutAnOwnerAreCopied) {
  const TierBatch first = begin_get({keys_.data(), 1});
  gate_.wait_for(1);
  Blob value = random_bytes(80, 500), tag = random_bytes(81, 50);
  const TierPut record{.key = key_of(80), .value = {.bytes = value}, .tag = {.bytes = tag}};
  auto batch = tier_->put({&record, 1});
  value.assign(500, std::byte{0});
  tag.assign(50, std::byte{0});
  gate_.open();
  EXPECT_TRUE(batch->wait());
  EXPECT_EQ(get(*tier_, key_of(80)).value, random_bytes(80, 500));
  EXPECT_EQ(get(*tier_, key_of(80)).tag, random_bytes(81, 50));
}

TEST_F(TierBatches, DetachedOnesGoOn) {
  const Blob value = random_bytes(90, 500);
  const TierPut record{.key = key_of(90), .value = {.bytes = value}};
  auto batch = tier_->put({&record, 1});
  batch->detach();
  EXPECT_EQ(batch->size(), 0u);
  EXPECT_TRUE(batch->poll());
  batch = TierBatch();
  gate_.open();
  while (!exists(*tier_, key_of(90))) std::this_thread::sleep_for(1ms);
}

TEST_F(TierBatches, TooManyBytesWaiting) {
  const TierBatch first = begin_get({keys_.data(), 1});
  gate_.wait_for(1);
  std::vector<TierPut> records;
  const Blob value = random_bytes(1, 2000);
  for (std::uint64_t number = 100; number < 104; ++number) {
    records.push_back({.key = key_of(number), .value = {.bytes = value}});
  }
  const auto batch = tier_->put(records);
  EXPECT_EQ(tier_->stats().waiting_bytes, 4000);
  gate_.open();
  EXPECT_TRUE(batch->wait());
  EXPECT_EQ(batch->answer(1).outcome, TierOutcome::ok);
  EXPECT_EQ(batch->answer(2).outcome, TierOutcome::busy);
  EXPECT_EQ(batch->answer(3).outcome, TierOutcome::busy);
  EXPECT_EQ(tier_->stats().waiting_bytes, 0);
  EXPECT_EQ(tier_->stats().refused, 2);
  // A single one may always wait.
  EXPECT_EQ(put(*tier_, key_of(105), random_bytes(1, 50'000)).outcome, TierOutcome::ok);
}

TEST_F(TierBatches, ATierThatGoesAwayAnswersAll) {
  const TierBatch batch = begin_get(keys_);
  gate_.wait_for(1);
  std::thread opener([this] {
    std::this_thread::sleep_for(10ms);
    gate_.open();
  });
  tier_.reset();
  opener.join();
  EXPECT_TRUE(batch.poll());
  const auto value = batch.answer(0).value;
  EXPECT_EQ(Blob(value.begin(), value.end()), random_bytes(0, 1000));
  EXPECT_EQ(batch.answer(9).outcome, TierOutcome::cancelled);
}

TEST_F(TierBatches, ManyThreadsAtOneTier) {
  gate_.open();
  tier_ = open_tier(folder_.path("tier"), {.cap_bytes = 40'000, .threads = 3, .use_interval = {}});
  const int rounds = kSanitized ? 100 : 400;
  const auto client = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < rounds; ++round) {
      std::vector<Digest> keys;
      std::vector<Blob> values;
      std::vector<TierPut> records;
      for (int at = 0; at < 4; ++at) {
        const std::uint64_t number = 100 + random() % 60;
        keys.push_back(key_of(number));
        values.push_back(random_bytes(number, 500 + 10 * number));
        records.push_back({.key = keys.back(), .value = {.bytes = values.back()}});
      }
      auto written = tier_->put(records, {.deadline = Clock::now() + 1s});
      auto read = tier_->get(keys);
      if (random() % 8 == 0) continue;  // drops both
      ASSERT_TRUE(read->wait());
      switch (random() % 24) {
        case 0: ASSERT_TRUE(tier_->remove(keys)->wait()); break;
        case 1: ASSERT_TRUE(tier_->list(true)); break;
        case 2:
          ASSERT_TRUE(tier_->pin(keys));
          tier_->unpin(keys);
          break;
        default: break;
      }
      for (std::size_t at = 0; at < keys.size(); ++at) {
        const TierAnswer& answer = read->answer(at);
        if (answer.outcome == TierOutcome::absent) continue;
        ASSERT_EQ(answer.outcome, TierOutcome::ok);
        ASSERT_EQ(Blob(answer.value.begin(), answer.value.end()), values[at]);
      }
      ASSERT_LE(tier_->stats().bytes, 40'000);
    }
  };
  std::vector<std::thread> clients;
  for (unsigned seed = 0; seed < 4; ++seed) clients.emplace_back(client, seed);
  for (std::thread& thread : clients) thread.join();
  EXPECT_TRUE(tier_->verify()->corrupt.empty());
  EXPECT_EQ(tier_->stats().bytes, bytes_on_disk(folder_.path("tier")));
  EXPECT_EQ(tier_->stats().corrupt, 0);
  EXPECT_EQ(tier_->stats().io_errors, 0);
}

}  // namespace
}  // namespace pagekv::testing
