// Churn of the prefix index: the pool is always full, so that every page passes from prompt to
// prompt, and now and then all that nobody reads is given up at once. The same few prompts come
// again and again, often beside what others made of their beginnings.
//
// A page that is found under the name of what it held before, or recycled while somebody reads it,
// shows: what is found, what runs and what is published is compared with its tokens every time.
// Guards rules 2, 8, 9, 10, 14 and 15. PAGEKV_TEST_SCALE multiplies the rounds, PAGEKV_TEST_SEED
// repeats them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <random>

#include "core/store_core.h"
#include "prefix_cache.h"
#include "support/random_history.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

constexpr int kRoundShare = kSanitized ? 10 : 1;

struct Running {
  Sequence sequence;
  Tokens tokens;
};

struct Published {
  View view;
  Tokens tokens;
};

class Churn {
 public:
  Churn(const HistorySetting& setting, unsigned seed)
      : setting_(setting),
        random_(seed),
        cache_(small_layout(setting.windows, *Format::parse(setting.format), setting.page_tokens,
                            setting.slack),
               setting.cap_pages) {}

  void run() {
    const int rounds = setting_.operations * test_scale();
    for (int round = 1; round <= rounds / kRoundShare && !::testing::Test::HasFailure(); ++round) {
      arrive();
      if (below(4) == 0) turn_back();
      if (below(4) == 0) publish();
      if (below(8) == 0) abandon();
      while (running_.size() > 4 || (!running_.empty() && below(3) == 0)) leave();
      if (round % 20 == 0) cache_.expect_good_books();
      if (round % 50 == 0) give_up_everything();
    }
    running_.clear();
    published_.clear();
    give_up_everything();
    EXPECT_EQ(cache_.index().stats().stored_pages, 0);
    EXPECT_EQ(cache_.index().stats().index_bytes, 0);
    for (int group = 0; group < groups(); ++group) EXPECT_EQ(cache_.pages_held(group), 0);
  }
  PrefixStats stats() { return cache_.index().stats(); }
  int full() const { return full_; }

 private:
  std::size_t below(std::size_t bound) { return random_() % bound; }
  int groups() { return cache_.store().layout().group_count(); }

  // One of twelve beginnings, and one of six ends of it, whole or cut.
  Tokens prompt() {
    const auto beginning = static_cast<std::uint32_t>(below(12));
    const auto end = static_cast<std::uint32_t>(below(6));
    Tokens tokens = join(count_up(1000 * beginning, 5 + 9 * beginning % 50),
                         count_up(1000 * beginning + 100 + 100 * end, 70));
    tokens.resize(1 + below(tokens.size()));
    return tokens;
  }

  // Room is made by those who run, the oldest first, only when the index has nothing left to give.
  bool append(Sequence& sequence, const Tokens& tokens) {
    for (;;) {
      const Status done = cache_.tokens().append(sequence, tokens);
      if (done) break;
      EXPECT_EQ(done.error().code(), ErrorCode::pool_exhausted) << done.error().message();
      EXPECT_EQ(done.error().number(3), 0) << done.error().message();
      if (!published_.empty()) {
        published_.pop_front();
      } else if (!running_.empty()) {
        leave();
      } else {
        ADD_FAILURE() << "one sequence does not fit: " << done.error().message();
        return false;
      }
    }
    std::int64_t bytes = 0;
    const StoreStats stats = cache_.store().stats();
    for (const GroupStats& group : stats.groups) bytes += group.referenced_pages * group.page_bytes;
    // What is given up for one group may free more pages of another than are wanted there.
    const std::int64_t room = groups() == 1 ? stats.groups[0].page_bytes : stats.cap_bytes / 5;
    full_ += bytes + room > stats.cap_bytes ? 1 : 0;
    return true;
  }

  void arrive() {
    const Tokens tokens = prompt();
    Running running{cache_.match(tokens, below(2) == 0 ? 0 : 1), {}};
    const Tokens rest(tokens.begin() + running.sequence.length(), tokens.end());
    if (!rest.empty() && !append(running.sequence, rest)) return;
    ASSERT_TRUE(cache_.tokens().holds(running.sequence, tokens));
    cache_.insert(tokens, running.sequence);
    running.tokens = tokens;
    running_.push_back(std::move(running));
  }

  // Forgets a part of what is stored, and stores what it goes on with instead.
  void turn_back() {
    if (running_.empty()) return;
    Running running = std::move(running_.front());
    running_.pop_front();
    const std::size_t length = running.tokens.size() - below(running.tokens.size() + 1) / 3;
    if (running.sequence.truncate(static_cast<std::int64_t>(length))) {
      running.tokens.resize(length);
      const Tokens other = count_up(20000 + 100 * static_cast<std::uint32_t>(below(5)),
                                    static_cast<std::int64_t>(1 + below(20)));
      if (!append(running.sequence, other)) return;
      running.tokens = join(running.tokens, other);
      cache_.insert(running.tokens, running.sequence);
    }
    ASSERT_TRUE(cache_.tokens().holds(running.sequence, running.tokens));
    running_.push_back(std::move(running));
  }

  void publish() {
    if (running_.empty()) return;
    const Running& running = running_.back();
    published_.push_back({*running.sequence.publish(), running.tokens});
    if (published_.size() <= 2) return;
    ASSERT_TRUE(cache_.tokens().holds(published_.front().view, published_.front().tokens));
    published_.pop_front();
  }

  // Writes behind a stored prompt, and drops that.
  void abandon() {
    if (running_.empty()) return;
    Running& running = running_.back();
    const Append more{&running.sequence, static_cast<std::int64_t>(1 + below(10))};
    auto step = cache_.store().reserve({&more, 1});
    if (step) cache_.tokens().write(*step, count_up(30000, more.tokens));
    step = Step();
    ASSERT_TRUE(cache_.tokens().holds(running.sequence, running.tokens));
  }

  void leave() {
    ASSERT_TRUE(cache_.tokens().holds(running_.front().sequence, running_.front().tokens));
    running_.pop_front();
  }

  // What the books call reclaimable is what becomes free, each page once.
  void give_up_everything() {
    const auto reclaimer = cache_.store().core()->reclaimer.lock();
    const bool one_group = groups() == 1;
    const std::int64_t reclaimable = reclaimer->pages(0).reclaimable;
    const std::int64_t held = cache_.pages_held();
    EXPECT_EQ(cache_.store().stats().groups[0].cached_pages, reclaimable) << "nothing is pinned";
    for (int group = 0; group < groups(); ++group) reclaimer->reclaim(group, 1 << 20);
    if (one_group) {
      EXPECT_EQ(cache_.pages_held(), held - reclaimable);
    }
    for (int group = 0; group < groups(); ++group) {
      EXPECT_EQ(reclaimer->pages(group).reclaimable, 0);
    }
    for (const Running& running : running_) {
      ASSERT_TRUE(cache_.tokens().holds(running.sequence, running.tokens));
    }
    for (const Published& published : published_) {
      ASSERT_TRUE(cache_.tokens().holds(published.view, published.tokens));
    }
    cache_.expect_good_books();
  }

  HistorySetting setting_;
  std::mt19937 random_;
  PrefixCache cache_;
  std::deque<Running> running_;
  std::deque<Published> published_;
  int full_ = 0;
};

class PrefixChurn : public ::testing::TestWithParam<HistorySetting> {};

TEST_P(PrefixChurn, RecycledPagesAreNeverTakenForWhatTheyHeld) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  Churn churn(GetParam(), seed);
  churn.run();
  const int rounds = GetParam().operations / kRoundShare;
  EXPECT_GT(churn.full(), rounds / 4) << "the pool is to be full";
  EXPECT_GT(churn.stats().hit_tokens, rounds);
  EXPECT_GT(churn.stats().evicted_pages, rounds);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, PrefixChurn,
    ::testing::Values(HistorySetting{"bf16", "bf16", {0}, 16, 0, 40, 4000},
                      HistorySetting{"kv8", "kv8", {0, 0}, 16, 0, 40, 4000},
                      HistorySetting{"kv4_large_pages", "kv4", {0}, 48, 0, 16, 3000},
                      HistorySetting{"k8v3", "k8v3", {0}, 16, 0, 24, 3000},
                      HistorySetting{
                          "codebooks", "k=codebook:4:rot,v=codebook:1", {0}, 16, 0, 40, 3000},
                      HistorySetting{"kv8_windows", "kv8", {0, 24}, 16, 16, 40, 3000},
                      HistorySetting{"k8v4_two_windows", "k8v4", {40, 7}, 16, 8, 30, 3000}),
    [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace pagekv::testing
