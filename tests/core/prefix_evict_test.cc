// What the prefix index gives up when the pool is full, in which order, and what it never gives up.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/store_core.h"
#include "prefix_cache.h"

namespace pagekv::testing {
namespace {

const Format kBf16 = *Format::parse("bf16");

class PrefixEvict : public ::testing::Test {
 protected:
  ~PrefixEvict() override { cache_.expect_good_books(); }
  // The prompts are of 16-token pages; the pool has eight.
  static Tokens prompt(std::uint32_t number, std::int64_t pages) {
    return count_up(1000 * number, 16 * pages);
  }
  PrefixCache cache_{small_layout({0}, kBf16), 8};
};

TEST_F(PrefixEvict, LeastRecentlyUsedFirstFromTheEnd) {
  cache_.serve(prompt(1, 3));
  cache_.serve(prompt(2, 3));
  EXPECT_EQ(cache_.match(prompt(1, 3), 0).length(), 48);  // 2 is the older now
  cache_.serve(prompt(3, 4));
  EXPECT_EQ(cache_.found(prompt(1, 3)), 48);
  EXPECT_EQ(cache_.found(prompt(2, 3)), 16) << "only as many pages as were missing, from the end";
  EXPECT_EQ(cache_.found(prompt(3, 4)), 64);
  EXPECT_EQ(cache_.index().stats().evicted_pages, 2);
}

TEST_F(PrefixEvict, LookingIsNoUse) {
  cache_.serve(prompt(1, 4));
  cache_.serve(prompt(2, 4));
  EXPECT_EQ(cache_.found(prompt(1, 4)), 64);
  cache_.serve(prompt(3, 1));
  EXPECT_EQ(cache_.found(prompt(1, 4)), 48);
}

TEST_F(PrefixEvict, WhatIsInUseStays) {
  cache_.serve(prompt(1, 3));
  const Sequence user = cache_.match(prompt(1, 3), 0);
  cache_.serve(prompt(2, 5));
  cache_.serve(prompt(3, 5));
  EXPECT_EQ(cache_.found(prompt(1, 3)), 48);
  EXPECT_TRUE(cache_.tokens().holds(user, prompt(1, 3)));
  const auto full =
      cache_.tokens().append(*std::make_unique<Sequence>(cache_.compute({})), prompt(4, 6));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().message(),
            "the page pool of group 0 is full: 6 pages needed, 5 free, 0 reclaimable, 0 pinned, "
            "cap 8 pages");
}

TEST_F(PrefixEvict, ItsLastUseIsWhenTheLastUserLeaves) {
  cache_.serve(prompt(1, 2));
  {
    const Sequence user = cache_.match(prompt(1, 2), 0);
    cache_.serve(prompt(2, 2));
    cache_.serve(prompt(3, 4));
    cache_.serve(prompt(4, 3));  // gives up 2, and finds 1 in use
    EXPECT_EQ(cache_.found(prompt(2, 2)), 0);
  }
  cache_.serve(prompt(5, 2));
  EXPECT_EQ(cache_.found(prompt(1, 2)), 32) << "older in the index than 3, but used after it";
}

TEST_F(PrefixEvict, LowerPrioritiesFirst) {
  cache_.serve(prompt(1, 4), {.priority = 2});
  cache_.serve(prompt(2, 3));
  cache_.serve(prompt(3, 4));
  EXPECT_EQ(cache_.found(prompt(1, 4)), 64);
  EXPECT_EQ(cache_.found(prompt(2, 3)), 0);
  cache_.serve(join(prompt(1, 2), prompt(9, 1)));  // its own end has no priority
  cache_.serve(prompt(4, 4));
  EXPECT_EQ(cache_.found(prompt(1, 4)), 64);
}

TEST_F(PrefixEvict, PinnedPrefixesStayUntilUnpinned) {
  cache_.serve(prompt(1, 3));
  PrefixPin pin = *cache_.index().pin(cache_.space(), ids(join(prompt(1, 2), {7})));
  EXPECT_EQ(pin.tokens(), 32);
  PrefixPin again = *cache_.index().pin(cache_.space(), ids(prompt(1, 1)));
  EXPECT_EQ(cache_.store().stats().groups[0].pinned_pages, 2);
  cache_.serve(prompt(2, 6));
  EXPECT_EQ(cache_.found(prompt(1, 3)), 32) << "the page behind the pinned ones was free to go";
  auto sequence = cache_.compute({});
  const auto full = cache_.tokens().append(sequence, prompt(3, 7));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().number(4), 2) << full.error().message();
  pin = {};
  EXPECT_EQ(cache_.store().stats().groups[0].pinned_pages, 1);
  again = {};
  ASSERT_TRUE(cache_.tokens().append(sequence, prompt(3, 8)));
  EXPECT_EQ(cache_.index().stats().stored_pages, 0);
}

// Two requests computed the same beginning; one's is stored, the other's end is. While the second
// runs, the stored beginning is nobody's.
TEST_F(PrefixEvict, ABeginningThatOnlyItsEndUsesCanGo) {
  Sequence first = cache_.compute(prompt(1, 2));
  Sequence second = cache_.compute(join(prompt(1, 2), prompt(2, 1)));
  cache_.insert(prompt(1, 2), first);
  cache_.insert(join(prompt(1, 2), prompt(2, 1)), second);
  first = {};
  EXPECT_EQ(cache_.pages_held(), 5);
  Sequence third = cache_.compute(prompt(3, 5));
  EXPECT_TRUE(cache_.tokens().holds(second, join(prompt(1, 2), prompt(2, 1))));
  EXPECT_EQ(cache_.found(prompt(1, 2)), 0);
  EXPECT_EQ(cache_.store().stats().groups[0].cached_pages, 0);
}

TEST_F(PrefixEvict, CountsWhatItAloneHolds) {
  cache_.serve(prompt(1, 3));
  EXPECT_EQ(cache_.store().stats().groups[0].cached_pages, 3);
  const Sequence user = cache_.match(prompt(1, 2), 0);
  EXPECT_EQ(cache_.store().stats().groups[0].cached_pages, 1);
  EXPECT_EQ(cache_.store().stats().groups[0].shared_pages, 2);
}

TEST_F(PrefixEvict, InvalidationReachesEveryHolder) {
  const Tokens tokens = prompt(1, 3);
  cache_.serve(tokens);
  Sequence user = cache_.match(join(tokens, {5}));
  PrefixPin pin = *cache_.index().pin(cache_.space(), ids(tokens));
  PrefixRequest leader = *cache_.index().request(cache_.space(), ids(prompt(2, 3)));
  PrefixRequest waiter = *cache_.index().request(cache_.space(), ids(prompt(2, 3)));
  EXPECT_TRUE(leader.poll());
  EXPECT_FALSE(waiter.poll());
  cache_.index().invalidate(cache_.space());
  EXPECT_EQ(cache_.found(tokens), 0) << "by the old handle";
  EXPECT_EQ(cache_.index().stats().stored_pages, 0);
  EXPECT_TRUE(cache_.tokens().holds(user, tokens)) << "running sequences go on";
  const auto stale = cache_.index().insert(cache_.space(), ids(tokens), user);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code(), ErrorCode::invalidated);
  leader = {};
  EXPECT_TRUE(waiter.poll());
  const PrefixNamespace renewed = *cache_.index().open({.model = "model"});
  EXPECT_EQ(renewed.digest(), cache_.space().digest());
  EXPECT_EQ(*cache_.index().peek(renewed, ids(tokens)), 0);
  pin = {};
  user = {};
  EXPECT_EQ(cache_.pages_held(), 0);
}

TEST_F(PrefixEvict, ClearEndsEveryNamespace) {
  const PrefixNamespace other = *cache_.index().open({.model = "other"});
  cache_.serve(prompt(1, 3));
  const Sequence sequence = cache_.compute(prompt(1, 2));
  ASSERT_TRUE(cache_.index().insert(other, ids(prompt(1, 2)), sequence));
  cache_.index().clear();
  EXPECT_EQ(cache_.found(prompt(1, 3)), 0);
  EXPECT_EQ(*cache_.index().peek(other, ids(prompt(1, 2))), 0);
  EXPECT_EQ(cache_.pages_held(), 2);
}

// A prefix as long as a store allows is freed without deep recursion.
TEST(PrefixEvictLong, PrefixesAreFreedWithoutRecursion) {
  LayoutSpec spec;
  spec.layers.push_back({.kv_heads = 1, .key_dim = 8, .value_dim = 8, .format = kBf16});
  spec.page_tokens = 16;
  const std::int64_t tokens = 16 * 60000;
  TestDevice test;
  TokenCache cache(test.device, spec, {.cap_bytes = 1 << 30, .max_sequence_tokens = tokens});
  auto index = *PrefixIndex::make(cache.store());
  const auto space = *index.open({});
  auto sequence = *cache.store().create_sequence();
  const Tokens all = count_up(0, tokens);
  ASSERT_TRUE(cache.append(sequence, all));
  ASSERT_TRUE(index.insert(space, ids(all), sequence));
  EXPECT_EQ(*index.peek(space, ids(all)), tokens - 1);
  index.invalidate(space);
  EXPECT_EQ(index.stats().stored_pages, 0);
}

class Collector final : public PageSink {
 public:
  void give_up(const Page& page) noexcept override { pages.push_back(page); }
  void invalidate(const Digest& space) noexcept override { ended.push_back(space); }
  std::vector<Page> pages;
  std::vector<Digest> ended;
};

TEST(PrefixSink, KeepsAPageAsLongAsItsView) {
  auto sink = std::make_shared<Collector>();
  PrefixCache cache(small_layout({0}, kBf16), 4, {.sink = sink});
  const Tokens first = count_up(0, 40);
  cache.serve(first);
  auto hungry = cache.compute({});
  const auto full = cache.tokens().append(hungry, count_up(500, 64));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().number(3), 0) << "nothing is left in the index";
  EXPECT_EQ(sink->pages.size(), 2u) << "the page of eight tokens is not worth keeping";
  EXPECT_EQ(cache.pages_held(), 2);
  cache.expect_good_books();
  sink->pages.clear();
  EXPECT_TRUE(cache.tokens().append(hungry, count_up(500, 64)));
  cache.index().invalidate(cache.space());
  EXPECT_EQ(sink->ended, std::vector<Digest>{cache.space().digest()});
}

TEST(PrefixSink, SeesWhatThePageHolds) {
  auto sink = std::make_shared<Collector>();
  PrefixCache cache(small_layout({0, 20}, kBf16), 10, {.sink = sink});
  const Tokens first = count_up(0, 80);
  cache.serve(first);
  const auto chain = *cache.index().digests(cache.space(), ids(first));
  cache.store().core()->reclaimer.lock()->reclaim(0, 5);
  ASSERT_EQ(sink->pages.size(), 5u);
  for (std::size_t at = 0; at < 5; ++at) {
    const PageSink::Page& page = sink->pages[at];
    const std::size_t depth = 4 - at;  // the end of the prefix comes first
    EXPECT_EQ(page.digest, chain[depth]);
    EXPECT_EQ(page.parent, depth == 0 ? cache.space().digest() : chain[depth - 1]);
    EXPECT_EQ(page.tokens, ids(count_up(static_cast<std::uint32_t>(16 * depth), 16)));
    EXPECT_EQ(page.view.first(0), static_cast<std::int64_t>(16 * depth));
    EXPECT_EQ(page.view.first(1), depth >= 3 ? page.view.first(0) : page.view.length())
        << "of the window's page only what was still there";
    EXPECT_TRUE(
        cache.tokens().holds(page.view, count_up(0, static_cast<std::int64_t>(16 * (depth + 1)))));
  }
  EXPECT_EQ(cache.pages_held(), 5);
  cache.expect_good_books();
  sink->pages.clear();
  EXPECT_EQ(cache.pages_held(), 0);
}

}  // namespace
}  // namespace pagekv::testing
