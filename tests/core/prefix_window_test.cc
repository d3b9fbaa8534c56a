// The prefix index over layers with windows: it keeps the tails that hits need, and reports nothing
// that it cannot serve.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "core/store_core.h"
#include "prefix_cache.h"

namespace pagekv::testing {
namespace {

const Format kBf16 = *Format::parse("bf16");

struct Setting {
  const char* name;
  std::vector<std::int64_t> windows;  // of the layers
  std::int64_t page_tokens;
  std::int64_t slack;
};

// Appends in steps of ten tokens, so that pages behind the window go while it grows.
void grow_in(PrefixCache& cache, Sequence& sequence, const Tokens& tokens) {
  for (std::size_t at = 0; at < tokens.size(); at += 10) {
    const std::size_t end = std::min(at + 10, tokens.size());
    ASSERT_TRUE(
        cache.tokens().append(sequence, {tokens.begin() + static_cast<std::ptrdiff_t>(at),
                                         tokens.begin() + static_cast<std::ptrdiff_t>(end)}));
  }
}

class PrefixWindow : public ::testing::TestWithParam<Setting> {
 protected:
  ~PrefixWindow() override { cache_.expect_good_books(); }

  std::int64_t slack() const { return GetParam().slack; }
  void grow(Sequence& sequence, const Tokens& tokens) { grow_in(cache_, sequence, tokens); }
  // Computes them so, and leaves them to the index.
  void keep(const Tokens& tokens) {
    Sequence sequence = cache_.compute({});
    grow(sequence, tokens);
    cache_.insert(tokens, sequence);
  }

  PrefixCache cache_{
      small_layout(GetParam().windows, kBf16, GetParam().page_tokens, GetParam().slack), 200};
};

TEST_P(PrefixWindow, ATailServesItsPrefix) {
  const Tokens tokens = count_up(0, 300);
  keep(tokens);
  EXPECT_EQ(cache_.match(join(tokens, count_up(900, 30))).length(), 300);
}

TEST_P(PrefixWindow, AnEditedLastTurnStillHits) {
  const Tokens tokens = count_up(0, 300);
  keep(tokens);
  for (std::int64_t back = 0; back <= slack(); ++back) {
    const Tokens kept(tokens.begin(), tokens.end() - back);
    EXPECT_EQ(cache_.match(join(kept, count_up(900, 30))).length(), 300 - back);
  }
}

TEST_P(PrefixWindow, TailsOfEarlierTurnsStay) {
  const Tokens tokens = count_up(0, 500);
  Sequence sequence = cache_.compute({});
  for (std::ptrdiff_t turn = 0; turn < 500; turn += 125) {
    grow(sequence, {tokens.begin() + turn, tokens.begin() + turn + 125});
    cache_.insert({tokens.begin(), tokens.begin() + turn + 125}, sequence);
  }
  sequence = {};
  for (std::ptrdiff_t end = 125; end <= 500; end += 125) {
    const std::int64_t found =
        cache_.match(join(Tokens(tokens.begin(), tokens.begin() + end), count_up(900, 9))).length();
    EXPECT_EQ(found, end) << "though the last page of the turn has grown since";
  }
}

TEST_P(PrefixWindow, WhatNoTailServesIsNotReported) {
  const Tokens tokens = count_up(0, 300);
  keep(tokens);
  for (std::int64_t length = 1; length <= 300; ++length) {
    // match() compares the rows of every group, from what its window would see on.
    const Sequence found = cache_.match(Tokens(tokens.begin(), tokens.begin() + length), 0);
    for (int group = 0; group < cache_.store().layout().group_count(); ++group) {
      const std::int64_t window = cache_.store().layout().group(group).window_tokens;
      EXPECT_LE(found.first(group),
                window == 0 ? 0 : std::max<std::int64_t>(0, found.length() + 1 - window));
    }
  }
}

TEST_P(PrefixWindow, WhatIsFoundGoesOn) {
  const Tokens tokens = count_up(0, 300);
  cache_.insert(tokens, cache_.compute(tokens));
  Sequence found = cache_.match(join(tokens, {900}));
  const std::int64_t length = found.length();
  grow(found, count_up(2000, 100));
  EXPECT_TRUE(cache_.tokens().holds(
      found, join({tokens.begin(), tokens.begin() + length}, count_up(2000, 100))));
}

TEST_P(PrefixWindow, ATailIsGivenUpTogetherWithItsPrefix) {
  const Tokens tokens = count_up(0, 300);
  keep(tokens);
  const bool windows_only =
      std::ranges::none_of(GetParam().windows, [](std::int64_t window) { return window == 0; });
  const int pages = static_cast<int>(cache_.index().stats().stored_pages);
  for (int round = 0; round < pages && cache_.index().stats().stored_pages > 0; ++round) {
    cache_.store().core()->reclaimer.lock()->reclaim(0, 1);
    cache_.expect_good_books();
    const std::int64_t stored = cache_.index().stats().stored_tokens;
    if (!windows_only && cache_.found(tokens) == 0) {
      EXPECT_EQ(stored, 0) << "nothing is kept that cannot be served";
    }
  }
  EXPECT_EQ(cache_.pages_held(), 0);
}

// A pool of a window that is short while the prefix itself is in use: old tails go.
TEST_P(PrefixWindow, OldTailsOfARunningSequenceCanGo) {
  Sequence sequence = cache_.compute({});
  Tokens tokens;
  for (std::uint32_t turn = 0; turn < 8; ++turn) {
    grow(sequence, count_up(100 * turn, 100));
    tokens = join(tokens, count_up(100 * turn, 100));
    cache_.insert(tokens, sequence);
  }
  const auto reclaimer = cache_.store().core()->reclaimer.lock();
  for (int group = 0; group < cache_.store().layout().group_count(); ++group) {
    reclaimer->reclaim(group, 1000);
    EXPECT_EQ(reclaimer->pages(group).reclaimable, 0) << "group " << group;
    EXPECT_EQ(cache_.store().stats().groups[static_cast<std::size_t>(group)].cached_pages, 0);
  }
  EXPECT_TRUE(cache_.tokens().holds(sequence, tokens));
  EXPECT_EQ(cache_.match(join(tokens, {5})).length(), 800) << "its last tail is in use";
}

// Conversations take turns until the pool is full, and strangers come. Tails are not what goes
// first: as long as there is room every conversation is found whole, and then those that nobody has
// looked for lately go, while the younger ones are still found whole.
TEST_P(PrefixWindow, TailsDoNotGoBeforeTheirPrefixes) {
  constexpr std::uint32_t kConversations = 4;
  std::vector<Tokens> conversations(kConversations);
  for (std::uint32_t turn = 0; turn < 5; ++turn) {
    for (std::uint32_t number = 0; number < kConversations; ++number) {
      Tokens& tokens = conversations[number];
      const Tokens more = count_up(1000 * number + 100 * turn, 43);
      Sequence sequence = cache_.match(join(tokens, more));
      EXPECT_EQ(sequence.length(), static_cast<std::int64_t>(tokens.size()));
      tokens = join(tokens, more);
      grow(sequence, Tokens(tokens.begin() + sequence.length(), tokens.end()));
      cache_.insert(tokens, sequence);
    }
  }
  ASSERT_EQ(cache_.index().stats().evicted_pages, 0) << "all of that fits";
  std::vector<std::int64_t> found;
  for (std::uint32_t stranger = 0; cache_.found(conversations.front()) > 0; ++stranger) {
    ASSERT_LT(stranger, 1000u);
    cache_.serve(count_up(100000 + 100 * stranger, 60));
    found.clear();
    for (const Tokens& tokens : conversations) found.push_back(cache_.found(tokens));
    const auto whole = [&](std::size_t at) {
      return found[at] == static_cast<std::int64_t>(conversations[at].size());
    };
    for (std::size_t older = 0; older + 1 < kConversations; ++older) {
      EXPECT_TRUE(whole(older + 1) || found[older] == 0)
          << "a younger one goes before " << older << ", of which " << found[older] << " are left";
    }
  }
  EXPECT_EQ(found.back(), static_cast<std::int64_t>(conversations.back().size()));
}

INSTANTIATE_TEST_SUITE_P(Layouts, PrefixWindow,
                         ::testing::Values(Setting{"hybrid", {0, 40}, 16, 8},
                                           Setting{"no_slack", {0, 40}, 16, 0},
                                           Setting{"two_windows", {24, 0, 100}, 16, 20},
                                           Setting{"windows_only", {24, 70}, 32, 32},
                                           Setting{"smaller_than_a_page", {7, 0}, 48, 5}),
                         [](const auto& setting) { return std::string(setting.param.name); });

// By length: whether a prefix of that many tokens is found whole, after three turns.
std::vector<bool> served_lengths(const std::vector<std::int64_t>& windows) {
  PrefixCache cache(small_layout(windows, kBf16, 16, 12), 200);
  const Tokens tokens = count_up(0, 300);
  Sequence sequence = cache.compute({});
  for (const auto& [begin, end] : {std::pair{0, 90}, {90, 210}, {210, 300}}) {
    grow_in(cache, sequence, {tokens.begin() + begin, tokens.begin() + end});
    cache.insert({tokens.begin(), tokens.begin() + end}, sequence);
  }
  sequence = {};
  std::vector<bool> served;
  std::int64_t longest = 0;
  for (std::int64_t length = 0; length <= 300; ++length) {
    const std::int64_t found = cache.found(Tokens(tokens.begin(), tokens.begin() + length));
    served.push_back(found == length);
    if (found == length) longest = length;
    EXPECT_EQ(found, longest) << "of " << length << ": the longest that every window serves";
  }
  return served;
}

// Of several windows the smallest may have nothing left where the others could still serve: what is
// found is what all of them serve, whatever their order.
TEST(PrefixWindows, FoundIsWhatTheLeastOfThemServes) {
  const std::vector<bool> small = served_lengths({24}), large = served_lengths({100});
  ASSERT_NE(small, large);
  std::vector<bool> both;
  for (std::size_t length = 0; length < small.size(); ++length) {
    both.push_back(small[length] && large[length]);
  }
  EXPECT_FALSE(both[250]) << "the large window has it, the small one has not";
  EXPECT_TRUE(both[290]);
  for (const std::vector<std::int64_t>& windows :
       {std::vector<std::int64_t>{24, 100}, {100, 24}, {100, 0, 24}, {24, 0, 24, 100}}) {
    EXPECT_EQ(served_lengths(windows), both);
  }
}

// Full and window layers of different heads, dims and formats in one store.
TEST(PrefixHybrid, LayersDifferInEverything) {
  LayoutSpec spec;
  spec.page_tokens = 16;
  spec.window_slack_tokens = 16;
  spec.layers = {
      {.kv_heads = 2, .key_dim = 32, .value_dim = 16, .format = *Format::parse("kv8")},
      {.kv_heads = 4, .key_dim = 16, .value_dim = 16, .format = kBf16, .window_tokens = 48},
      {.kv_heads = 1, .key_dim = 64, .value_dim = 64, .format = *Format::parse("k8v3")},
      {.kv_heads = 4,
       .key_dim = 16,
       .value_dim = 16,
       .format = kBf16,
       .window_tokens = 48,
       .donor = 1}};
  PrefixCache cache(spec, 100);
  const Tokens tokens = count_up(0, 200);
  cache.serve(tokens);
  EXPECT_EQ(cache.match(join(tokens, {7})).length(), 200);
  EXPECT_EQ(cache.match(join(count_up(0, 190), {7})).length(), 190);
  cache.expect_good_books();
}

}  // namespace
}  // namespace pagekv::testing
