// Random histories of a prefix index against a naive model: a list of all token strings that were
// ever inserted.
//
// What is found must be the beginning of one of them, with its rows; without pressure and windows
// it must be the longest; what a running sequence holds and has inserted must be found whole.
// PAGEKV_TEST_SCALE multiplies the number of operations, PAGEKV_TEST_SEED repeats a history.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>

#include "prefix_cache.h"
#include "support/random_history.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

constexpr int kOperationShare = kSanitized ? 10 : 1;

struct Running {
  Sequence sequence;
  Tokens tokens;
  std::size_t found = 0;  // of its beginning, whole pages: those it shares with the index
  std::size_t space = 0;
};

class PrefixHistory {
 public:
  PrefixHistory(const HistorySetting& setting, unsigned seed)
      : setting_(setting),
        random_(seed),
        cache_(small_layout(setting.windows, *Format::parse(setting.format), setting.page_tokens,
                            setting.slack),
               setting.cap_pages) {
    for (const char* model : {"one", "two"}) {
      spaces_.push_back({.spec = {.model = model}, .handle = {}, .inserted = {}});
      spaces_.back().handle = *cache_.index().open(spaces_.back().spec);
    }
  }

  void run() {
    const int operations = setting_.operations * test_scale();
    for (int at = 0; at < operations / kOperationShare && !::testing::Test::HasFailure(); ++at) {
      one_operation();
      if (at % 16 == 0) cache_.expect_good_books();
    }
    running_.clear();
    pins_.clear();
    cache_.index().clear();
    cache_.expect_good_books();
    for (int group = 0; group < cache_.store().layout().group_count(); ++group) {
      EXPECT_EQ(cache_.pages_held(group), 0);
    }
  }
  PrefixStats stats() { return cache_.index().stats(); }
  std::int64_t refusals() const { return refusals_; }

 private:
  struct Space {
    NamespaceSpec spec;
    PrefixNamespace handle;
    std::set<Tokens> inserted;  // in order: who has most in common stands beside
  };

  std::size_t below(std::size_t bound) { return random_() % bound; }
  bool exact() const {
    return setting_.cap_pages >= 1000 &&
           std::ranges::all_of(setting_.windows, [](auto window) { return window == 0; });
  }

  void one_operation() {
    switch (below(20)) {
      case 0: return fork();
      case 1: return truncate();
      case 2:
      case 3:
      case 4: return leave();
      case 5: return pin();
      case 6: return below(60) == 0 ? invalidate() : unpin();
      case 7:
      case 8:
      case 9: return insert();
      case 10:
      case 11:
      case 12:
      case 13: return append();
      default: return arrive();
    }
  }

  // A prompt that begins like something known, as long as that or shorter, and goes on by itself.
  Tokens prompt(const Space& space) {
    Tokens tokens;
    if (!space.inserted.empty() && below(5) != 0) {
      const Tokens& from = any_of(space);
      const std::size_t keep = below(3) == 0 ? below(from.size() + 1) : from.size();
      tokens.assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(keep));
    }
    // Few different tokens, so that strings part late and meet again.
    for (std::size_t more = below(30); more > 0 && tokens.size() < kLongest; --more) {
      tokens.push_back(static_cast<std::uint32_t>(below(3)));
    }
    return tokens;
  }

  const Tokens& any_of(const Space& space) {
    Tokens start;
    for (std::size_t count = below(40); count > 0; --count) {
      start.push_back(static_cast<std::uint32_t>(below(3)));
    }
    const auto at = space.inserted.lower_bound(start);
    return at == space.inserted.end() ? *space.inserted.rbegin() : *at;
  }

  static std::size_t common(const Tokens& one, const Tokens& other) {
    return static_cast<std::size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
  }

  void arrive() {
    if (running_.size() >= kMostRunning) return leave();
    const std::size_t at = below(spaces_.size());
    Space& space = spaces_[at];
    const Tokens tokens = prompt(space);
    Sequence sequence = *cache_.index().match(space.handle, ids(tokens), {.leave_tokens = 0});
    const auto found = static_cast<std::size_t>(sequence.length());
    std::size_t known = 0;
    const auto beside = space.inserted.lower_bound(tokens);
    if (beside != space.inserted.end()) known = common(*beside, tokens);
    if (beside != space.inserted.begin()) {
      known = std::max(known, common(*std::prev(beside), tokens));
    }
    std::size_t held = 0;
    for (const Running& other : running_) {
      if (other.space != at) continue;
      held = std::max(held, std::min(other.found, common(other.tokens, tokens)));
    }
    ASSERT_LE(found, known);
    if (exact()) {
      ASSERT_EQ(found, known);
    }
    if (no_windows()) {
      ASSERT_GE(found, held) << "what is in use is not given up";
    }
    ASSERT_TRUE(cache_.tokens().holds(
        sequence, Tokens(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(found))));
    const auto rest = tokens.begin() + static_cast<std::ptrdiff_t>(found);
    const std::size_t page = static_cast<std::size_t>(setting_.page_tokens);
    Running running{std::move(sequence), {tokens.begin(), rest}, found / page * page, at};
    add_tokens(running, {rest, tokens.end()});
    running_.push_back(std::move(running));
  }
  bool no_windows() const {
    return std::ranges::all_of(setting_.windows, [](auto window) { return window == 0; });
  }
  void add_tokens(Running& running, const Tokens& tokens) {
    if (tokens.empty()) return;
    if (const Status done = cache_.tokens().append(running.sequence, tokens); !done) {
      ASSERT_EQ(done.error().code(), ErrorCode::pool_exhausted) << done.error().message();
      ASSERT_EQ(done.error().number(3), 0) << done.error().message();
      ++refusals_;
      return;
    }
    running.tokens = join(running.tokens, tokens);
  }

  void append() {
    if (running_.empty()) return;
    Running& running = running_[below(running_.size())];
    if (running.tokens.size() > kLongest) return;
    Tokens more;
    for (std::size_t count = 1 + below(below(3) == 0 ? 40 : 3); count > 0; --count) {
      more.push_back(static_cast<std::uint32_t>(below(3)));
    }
    add_tokens(running, more);
  }

  void insert() {
    if (running_.empty()) return;
    Running& running = running_[below(running_.size())];
    const std::size_t length =
        below(3) == 0 ? below(running.tokens.size() + 1) : running.tokens.size();
    const Tokens tokens(running.tokens.begin(),
                        running.tokens.begin() + static_cast<std::ptrdiff_t>(length));
    Space& space = spaces_[running.space];
    const auto done =
        cache_.index().insert(space.handle, ids(tokens), running.sequence,
                              {.priority = static_cast<int>(below(kPrefixPriorities))});
    ASSERT_TRUE(done) << done.error().message();
    space.inserted.insert(tokens);
    // A pinned prefix may need the very page of a window that the new one needs.
    if (length < running.tokens.size() || (!no_windows() && !pins_.empty())) return;
    ASSERT_EQ(*cache_.index().peek(space.handle, ids(tokens), {.leave_tokens = 0}),
              static_cast<std::int64_t>(length))
        << "what was just inserted is found, tails of windows included";
  }

  void fork() {
    if (running_.empty() || running_.size() >= kMostRunning) return;
    const Running& from = running_[below(running_.size())];
    running_.push_back({*from.sequence.fork(), from.tokens, from.found, from.space});
  }

  void truncate() {
    if (running_.empty()) return;
    Running& running = running_[below(running_.size())];
    const std::size_t length =
        running.tokens.size() - below(std::min<std::size_t>(running.tokens.size(), 20) + 1);
    if (!running.sequence.truncate(static_cast<std::int64_t>(length))) return;
    running.tokens.resize(length);
    running.found =
        std::min(running.found, length / static_cast<std::size_t>(setting_.page_tokens) *
                                    static_cast<std::size_t>(setting_.page_tokens));
  }

  void leave() {
    if (running_.empty()) return;
    const auto at = running_.begin() + static_cast<std::ptrdiff_t>(below(running_.size()));
    ASSERT_TRUE(cache_.tokens().holds(at->sequence, at->tokens));
    running_.erase(at);
  }

  void pin() {
    const Space& space = spaces_[below(spaces_.size())];
    if (space.inserted.empty() || pins_.size() >= 3) return;
    const Tokens& tokens = any_of(space);
    pins_.push_back(*cache_.index().pin(space.handle, ids(tokens)));
    pinned_.push_back({tokens.begin(), tokens.begin() + pins_.back().tokens()});
    pinned_space_.push_back(space.handle);
  }

  void unpin() {
    if (pins_.empty()) return;
    const auto at = static_cast<std::ptrdiff_t>(below(pins_.size()));
    const auto index = static_cast<std::size_t>(at);
    const bool ended =
        !cache_.index().insert(pinned_space_[index], {}, *cache_.store().create_sequence());
    ASSERT_EQ(*cache_.index().peek(pinned_space_[index], ids(pinned_[index]), {.leave_tokens = 0}),
              ended ? 0 : pins_[index].tokens());
    pins_.erase(pins_.begin() + at);
    pinned_.erase(pinned_.begin() + at);
    pinned_space_.erase(pinned_space_.begin() + at);
  }

  void invalidate() {
    const std::size_t at = below(spaces_.size());
    cache_.index().invalidate(spaces_[at].handle);
    for (const Running& running : running_) {
      if (running.space != at) continue;
      const auto stale =
          cache_.index().insert(spaces_[at].handle, ids(running.tokens), running.sequence);
      ASSERT_FALSE(stale);
      ASSERT_EQ(stale.error().code(), ErrorCode::invalidated);
    }
    std::erase_if(running_, [&](const Running& running) { return running.space == at; });
    spaces_[at].inserted.clear();
    spaces_[at].handle = *cache_.index().open(spaces_[at].spec);
  }

  static constexpr std::size_t kMostRunning = 6;
  static constexpr std::size_t kLongest = 200;

  HistorySetting setting_;
  std::mt19937 random_;
  PrefixCache cache_;
  std::vector<Space> spaces_;
  std::vector<Running> running_;
  std::vector<PrefixPin> pins_;
  std::vector<Tokens> pinned_;
  std::vector<PrefixNamespace> pinned_space_;
  std::int64_t refusals_ = 0;
};

class PrefixHistoryTest : public ::testing::TestWithParam<HistorySetting> {};

TEST_P(PrefixHistoryTest, FindsWhatANaiveModelKnows) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  PrefixHistory history(GetParam(), seed);
  history.run();
  EXPECT_GT(history.stats().hit_tokens, 0);
  if (GetParam().cap_pages < 100) {
    EXPECT_GT(history.stats().evicted_pages, 0);
  }
  if (GetParam().cap_pages < 20) {
    EXPECT_GT(history.refusals(), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, PrefixHistoryTest,
    ::testing::Values(HistorySetting{"roomy", "bf16", {0}, 16, 0, 20000, 6000},
                      HistorySetting{"tight", "bf16", {0}, 16, 0, 60, 10000},
                      HistorySetting{"few_pages", "f32", {0, 0}, 16, 0, 9, 10000},
                      HistorySetting{"quantized", "k8v4", {0}, 32, 0, 40, 4000},
                      HistorySetting{"hybrid", "bf16", {0, 24}, 16, 16, 60, 8000},
                      HistorySetting{"hybrid_few_pages", "bf16", {0, 20}, 16, 4, 12, 8000},
                      HistorySetting{"windows_only", "f32", {24, 60}, 16, 8, 24, 8000},
                      HistorySetting{"two_windows", "bf16", {40, 0, 7}, 48, 0, 20, 6000}),
    [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace pagekv::testing
