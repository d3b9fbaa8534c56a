// The prefix index: what it finds, shares, keeps and gives up.
#include "pagekv/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/prefix/index_state.h"
#include "prefix_cache.h"

namespace pagekv::testing {
namespace {

const Format kBf16 = *Format::parse("bf16");

class PrefixIndexTest : public ::testing::Test {
 protected:
  ~PrefixIndexTest() override { cache_.expect_good_books(); }
  PrefixCache cache_{small_layout({0}, kBf16)};
};

TEST_F(PrefixIndexTest, FindsTheLongestPrefixTokenByToken) {
  const Tokens stored = count_up(0, 75);  // four pages and eleven tokens
  cache_.insert(stored, cache_.compute(stored));
  for (std::int64_t length = 0; length <= 75; ++length) {
    const Tokens beginning(stored.begin(), stored.begin() + length);
    EXPECT_EQ(cache_.match(beginning, 0).length(), length);
    EXPECT_EQ(cache_.match(join(beginning, count_up(900, 30))).length(), length);
    EXPECT_EQ(cache_.match(beginning).length(), std::max<std::int64_t>(0, length - 1))
        << "one token is left to compute";
  }
  EXPECT_EQ(cache_.match(join(stored, stored)).length(), 75);
}

TEST_F(PrefixIndexTest, OfSiblingsTheOneWithMostInCommonServes) {
  const Tokens base = count_up(0, 20);
  for (std::uint32_t tail = 0; tail < 40; ++tail) {
    Tokens tokens = base;
    for (std::uint32_t at = 0; at < 10; ++at) {
      tokens.push_back(at < tail % 10 ? 500 + at : 1000 * (tail + 1) + at);
    }
    cache_.serve(tokens);
  }
  EXPECT_EQ(cache_.found(join(base, count_up(500, 10))), 29);
  EXPECT_EQ(cache_.found(join(base, {500, 501, 7})), 22);
  EXPECT_EQ(cache_.found(join(base, {7})), 20);
}

TEST_F(PrefixIndexTest, SharesPagesAndCopiesOneOnlyWhenSomebodyWrites) {
  const Tokens stored = count_up(0, 40);
  cache_.insert(stored, cache_.compute(stored));
  EXPECT_EQ(cache_.pages_held(), 3);
  Sequence one = cache_.match(join(stored, {900}));
  Sequence other = cache_.match(join(stored, {901}));
  Sequence shorter = cache_.match(Tokens(stored.begin(), stored.begin() + 36));
  EXPECT_EQ(cache_.pages_held(), 3);
  EXPECT_EQ(cache_.backend().copies, 0);
  ASSERT_TRUE(cache_.tokens().append(one, {900}));
  EXPECT_EQ(cache_.backend().copies, 0) << "the first writes behind the stored rows in place";
  ASSERT_TRUE(cache_.tokens().append(other, {901}));
  ASSERT_TRUE(cache_.tokens().append(shorter, {902}));
  EXPECT_EQ(cache_.backend().copies, 2);
  EXPECT_EQ(cache_.pages_held(), 5);
  EXPECT_TRUE(cache_.tokens().holds(one, join(stored, {900})));
  EXPECT_EQ(cache_.match(stored, 0).length(), 40) << "what is stored stays as it was";
}

TEST_F(PrefixIndexTest, RequestsThatComputedTheSameShareOnePageInTheEnd) {
  const Tokens base = count_up(0, 48);
  const Tokens first = join(base, count_up(100, 5)), second = join(base, count_up(200, 5));
  Sequence one = cache_.compute(first);
  Sequence other = cache_.compute(second);
  EXPECT_EQ(cache_.pages_held(), 8);
  cache_.insert(first, one);
  EXPECT_EQ(*cache_.index().insert(cache_.space(), ids(second), other), 5)
      << "tokens that were not there";
  EXPECT_TRUE(cache_.tokens().holds(other, second)) << "a running sequence keeps its own pages";
  EXPECT_EQ(cache_.index().stats().duplicate_pages, 3);
  one = {};
  other = {};
  EXPECT_EQ(cache_.pages_held(), 5);
  EXPECT_EQ(cache_.found(first), 53);
  EXPECT_EQ(cache_.found(second), 53);
}

TEST_F(PrefixIndexTest, AStoredPageThatNobodyReadsIsExchangedForOneThatIsInUse) {
  const Tokens tokens = count_up(0, 32);
  Sequence late = cache_.compute(tokens);
  cache_.insert(tokens, cache_.compute(tokens));
  EXPECT_EQ(cache_.pages_held(), 4);
  cache_.insert(tokens, late);
  EXPECT_EQ(cache_.pages_held(), 2) << "one copy is free at once";
  EXPECT_TRUE(cache_.tokens().holds(late, tokens));
}

TEST_F(PrefixIndexTest, ALastPageGrowsWithItsSequence) {
  Sequence sequence = cache_.compute({});
  Tokens tokens;
  for (std::uint32_t at = 0; at < 40; ++at) {
    ASSERT_TRUE(cache_.tokens().append(sequence, {at}));
    tokens.push_back(at);
    cache_.insert(tokens, sequence);
    cache_.expect_good_books();
  }
  EXPECT_EQ(cache_.index().stats().stored_pages, 3);
  EXPECT_EQ(cache_.index().stats().stored_tokens, 40);
  EXPECT_EQ(cache_.pages_held(), 3);
  EXPECT_EQ(cache_.found(tokens), 40);
}

TEST_F(PrefixIndexTest, AFullPageIsNotPartOfAnother) {
  const Tokens shorter = count_up(0, 20), longer = count_up(0, 32);
  cache_.serve(longer);
  cache_.serve(shorter);
  EXPECT_EQ(cache_.index().stats().stored_pages, 2) << "a beginning of what is there adds nothing";
  EXPECT_EQ(cache_.found(longer), 32);
}

TEST_F(PrefixIndexTest, ForksThatPartInsideAPageAreAllFound) {
  Sequence trunk = cache_.compute(count_up(0, 20));
  Sequence left = *trunk.fork(), right = *trunk.fork();
  const Tokens left_tokens = join(count_up(0, 20), count_up(100, 20));
  const Tokens right_tokens = join(count_up(0, 20), count_up(200, 3));
  cache_.insert(count_up(0, 20), trunk);
  ASSERT_TRUE(cache_.tokens().append(left, count_up(100, 20)));
  ASSERT_TRUE(cache_.tokens().append(right, count_up(200, 3)));
  cache_.insert(right_tokens, right);
  cache_.insert(left_tokens, left);
  trunk = {};
  left = {};
  right = {};
  EXPECT_EQ(cache_.match(left_tokens, 0).length(), 40);
  EXPECT_EQ(cache_.match(right_tokens, 0).length(), 23);
}

TEST_F(PrefixIndexTest, CountsPerNamespaceAndInAll) {
  const PrefixNamespace other = *cache_.index().open({.model = "other"});
  cache_.serve(count_up(0, 32));
  cache_.serve(count_up(0, 48));
  const PrefixStats stats = cache_.index().stats(cache_.space());
  EXPECT_EQ(stats.matches, 2);
  EXPECT_EQ(stats.hits, 1);
  EXPECT_EQ(stats.matched_tokens, 80);
  EXPECT_EQ(stats.hit_tokens, 32);
  EXPECT_EQ(stats.inserted_pages, 3);
  EXPECT_EQ(stats.stored_tokens, 48);
  EXPECT_GT(stats.index_bytes, 48 * 4);
  EXPECT_EQ(cache_.index().stats().hit_tokens, 32);
  EXPECT_EQ(cache_.index().stats(other).matches, 0);
  cache_.index().clear();
  EXPECT_EQ(cache_.index().stats().index_bytes, 0);
  EXPECT_EQ(cache_.index().stats().stored_pages, 0);
}

TEST_F(PrefixIndexTest, RefusesWhatMakesNoSense) {
  PrefixCache other(small_layout({0}, kBf16));
  Sequence sequence = cache_.compute(count_up(0, 20));
  const auto insert = [&](const PrefixNamespace& space, const Tokens& tokens, const Sequence& from,
                          int priority = 0) {
    const auto done = cache_.index().insert(space, ids(tokens), from, {.priority = priority});
    EXPECT_FALSE(done);
    return done ? std::string() : done.error().message();
  };
  EXPECT_EQ(insert(cache_.space(), count_up(0, 21), sequence),
            "cannot insert 21 tokens of a sequence that has committed 20");
  EXPECT_EQ(insert({}, count_up(0, 20), sequence), "an empty namespace handle");
  EXPECT_EQ(insert(other.space(), count_up(0, 20), sequence),
            "the namespace is one of another index");
  EXPECT_EQ(insert(cache_.space(), {}, Sequence()),
            "an empty sequence handle has no tokens to insert");
  EXPECT_EQ(insert(cache_.space(), count_up(0, 20), other.compute(count_up(0, 20))),
            "the sequence is of another store than the index");
  EXPECT_EQ(insert(cache_.space(), count_up(0, 20), sequence, 4), "priority 4; legal are 0 to 3");
  const auto nothing = cache_.index().match(cache_.space(), {}, {.leave_tokens = -1});
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().message(), "cannot leave -1 tokens");
  EXPECT_FALSE(PrefixIndex::make(cache_.store(), {.max_events = -1}));
  EXPECT_EQ(cache_.index().stats().stored_pages, 0);
}

// Rows of one tenant, or of an old model, under another name: the pages know where they are stored.
TEST_F(PrefixIndexTest, APageIsStoredUnderOneNameOnly) {
  const PrefixNamespace other = *cache_.index().open({.model = "other"});
  const Tokens tokens = count_up(0, 40);
  Sequence sequence = cache_.compute(tokens);
  cache_.insert(tokens, sequence);
  const auto foreign = cache_.index().insert(other, ids(tokens), sequence);
  ASSERT_FALSE(foreign);
  EXPECT_EQ(foreign.error().message(),
            "page 0 of the sequence is stored already, under other tokens or in another namespace");
  const auto lie = cache_.index().insert(cache_.space(), ids(count_up(500, 40)), sequence);
  EXPECT_FALSE(lie);
  EXPECT_EQ(cache_.index().stats().stored_tokens, 40);
}

TEST_F(PrefixIndexTest, ASequenceInALiveStepIsStoredAsCommitted) {
  const Tokens tokens = count_up(0, 40);
  Sequence sequence = cache_.compute(tokens);
  const Append more{&sequence, 30};
  {
    auto step = *cache_.store().reserve({&more, 1});
    cache_.tokens().write(step, count_up(100, 30));
    EXPECT_FALSE(
        cache_.index().insert(cache_.space(), ids(join(tokens, count_up(100, 30))), sequence));
    cache_.insert(tokens, sequence);
    cache_.expect_good_books();
  }
  EXPECT_EQ(cache_.match(join(tokens, count_up(100, 30))).length(), 40);
}

// What is found does not hang on digests: here all of them are equal.
TEST_F(PrefixIndexTest, EqualDigestsServeNoForeignTokens) {
  const Tokens one = count_up(0, 32), other = count_up(1000, 32);
  cache_.serve(one);
  cache_.serve(other);
  for (const auto& child : cache_.space().state()->root.children) {
    child->digest = Digest{};
    child->children.front()->digest = Digest{};
  }
  EXPECT_EQ(cache_.match(join(one, {5})).length(), 32);
  EXPECT_EQ(cache_.match(join(other, {5})).length(), 32);
  EXPECT_EQ(cache_.found(count_up(2000, 32)), 0);
}

TEST_F(PrefixIndexTest, TokensCountInAllTheirBits) {
  const Tokens tokens = count_up(0, 32);
  cache_.serve(tokens);
  const auto chain = *cache_.index().digests(cache_.space(), ids(tokens));
  for (int bit = 0; bit < 32; ++bit) {
    for (const std::size_t at : {0u, 15u, 16u, 31u}) {
      Tokens other = tokens;
      other[at] ^= 1u << bit;
      EXPECT_EQ(cache_.found(other), static_cast<std::int64_t>(at)) << "bit " << bit;
      const auto others = *cache_.index().digests(cache_.space(), ids(other));
      EXPECT_EQ(others[0] == chain[0], at >= 16) << "bit " << bit;
      EXPECT_NE(others[1], chain[1]) << "bit " << bit;
    }
  }
}

TEST(PrefixNamespaces, FieldsAreNeverTakenForEachOther) {
  PrefixCache cache(small_layout({0}, kBf16));
  const std::vector<NamespaceSpec> specs = {
      {.model = "ab"},
      {.model = "a", .adapter = "b"},
      {.model = "a", .salt = "b"},
      {.model = "a"},
      {.model = "", .adapter = "a"},
      {.model = "a", .arithmetic = Arithmetic::fast},
      {.model = std::string("a\0b", 3)},
      {.model = std::string("a\4\1\0\0\0\0\0\0\0b", 11)},  // what a salt of "b" is written as
      {.model = "a", .adapter = std::string("\4\1\0\0\0\0\0\0\0b", 10)},
  };
  std::set<Digest> digests;
  for (const NamespaceSpec& spec : specs) {
    const PrefixNamespace space = *cache.index().open(spec);
    digests.insert(space.digest());
    EXPECT_EQ(cache.index().open(spec)->state(), space.state());
    EXPECT_EQ(*cache.index().peek(space, ids(count_up(0, 32))), 0);
    const Sequence sequence = cache.compute(count_up(0, 32));
    ASSERT_TRUE(cache.index().insert(space, ids(count_up(0, 32)), sequence));
  }
  EXPECT_EQ(digests.size(), specs.size());
}

TEST(PrefixNamespaces, LayoutAndFormatArePartOfThem) {
  std::set<Digest> digests;
  for (const LayoutSpec& spec :
       {small_layout({0}, kBf16), small_layout({0}, kBf16, 32), small_layout({0, 0}, kBf16),
        small_layout({40}, kBf16), small_layout({0}, *Format::parse("f32")),
        small_layout({0}, *Format::parse("kv8"))}) {
    digests.insert(PrefixCache(spec).space().digest());
  }
  EXPECT_EQ(digests.size(), 6u);
  LayoutSpec other_order = small_layout({0}, kBf16, 16, 8);
  other_order.order = PageOrder::layer_major;
  other_order.arrangement = TileArrangement::row_major;
  EXPECT_EQ(digests.count(PrefixCache(other_order).space().digest()), 1u)
      << "how pages lie in memory changes no value";
}

TEST(PrefixNamespaces, ATenantSeesNothingOfAnother) {
  PrefixCache cache(small_layout({0}, kBf16));
  const PrefixNamespace mine = *cache.index().open({.model = "m", .salt = "mine"});
  const PrefixNamespace theirs = *cache.index().open({.model = "m", .salt = "theirs"});
  const Tokens tokens = count_up(0, 64);
  const Sequence sequence = cache.compute(tokens);
  ASSERT_TRUE(cache.index().insert(theirs, ids(tokens), sequence));
  EXPECT_EQ(cache.index().match(mine, ids(tokens))->length(), 0);
  EXPECT_EQ(cache.index().match(theirs, ids(tokens))->length(), 63);
  const PrefixStats stats = cache.index().stats(mine);
  EXPECT_EQ(stats.hits, 0);
  EXPECT_EQ(stats.inserts, 0);
  EXPECT_EQ(stats.stored_pages, 0);
  EXPECT_NE(cache.index().digests(mine, ids(tokens))->front(),
            cache.index().digests(theirs, ids(tokens))->front());
  const PrefixRequest leader = *cache.index().request(theirs, ids(count_up(500, 64)));
  PrefixRequest same = *cache.index().request(mine, ids(count_up(500, 64)));
  EXPECT_TRUE(same.poll()) << "nor does it wait for what another computes";
}

TEST(PrefixNamespaces, ThoseThatCameAndWentAreForgotten) {
  PrefixCache cache(small_layout({0}, kBf16));
  for (int tenant = 0; tenant < 10000; ++tenant) {
    ASSERT_TRUE(cache.index().open({.model = "m", .salt = std::to_string(tenant)}));
  }
  EXPECT_LT(cache.index().state()->namespace_count(), 64u);
}

TEST(PrefixDigests, AreAChainOverFullPages) {
  PrefixCache cache(small_layout({0}, kBf16), 1000, {.max_events = 100});
  const Tokens tokens = count_up(0, 40);
  const auto chain = *cache.index().digests(cache.space(), ids(tokens));
  ASSERT_EQ(chain.size(), 2u);
  cache.serve(tokens);
  cache.serve(join(count_up(0, 16), count_up(100, 16)));
  const std::vector<PrefixEvent> events = cache.index().take_events();
  ASSERT_EQ(events.size(), 3u) << "the page of eight tokens is no event";
  EXPECT_EQ(events[0].parent, cache.space().digest());
  EXPECT_EQ(events[0].digest, chain[0]);
  EXPECT_EQ(events[0].tokens, ids(count_up(0, 16)));
  EXPECT_EQ(events[1].parent, chain[0]);
  EXPECT_EQ(events[1].digest, chain[1]);
  EXPECT_EQ(events[2].parent, chain[0]);
  EXPECT_NE(events[2].digest, chain[1]);
}

// Known answers, computed by Python's hashlib from the description in docs/reuse.md.
TEST(PrefixDigests, AreTheDocumentedOnes) {
  Digest parent{};
  parent.fill(std::byte{7});
  const Digest digest = internal::page_digest(parent, ids({1, 2, 0x7fffffff}));
  std::string hex;
  for (const std::byte byte : digest) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<int>(byte) >> 4];
    hex += kDigits[static_cast<int>(byte) & 15];
  }
  EXPECT_EQ(hex, "41fbb0c8641e60b29f2e53451e30aec3634ea1ca23458c2935b379f84452ceaf");
}

TEST(PrefixEvents, TellWhatIsStoredAndAreNumbered) {
  PrefixCache cache(small_layout({0}, kBf16), 8, {.max_events = 1000});
  std::set<Digest> known;
  std::int64_t next = 0;
  for (std::uint32_t prompt = 0; prompt < 30; ++prompt) {
    cache.serve(count_up(100 * (prompt % 7), 16 + 16 * (prompt % 3)));
    for (const PrefixEvent& event : cache.index().take_events()) {
      EXPECT_EQ(event.number, next++);
      EXPECT_EQ(event.space, cache.space().digest());
      const bool done = event.kind == PrefixEvent::Kind::stored ? known.insert(event.digest).second
                                                                : known.erase(event.digest) == 1;
      EXPECT_TRUE(done);
    }
    EXPECT_EQ(static_cast<std::int64_t>(known.size()), cache.index().stats().stored_pages);
  }
  EXPECT_GT(cache.index().stats().evicted_pages, 0);
  cache.index().invalidate(cache.space());
  const auto events = cache.index().take_events();
  EXPECT_TRUE(std::ranges::any_of(
      events, [](const auto& event) { return event.kind == PrefixEvent::Kind::cleared; }));
}

TEST(PrefixEvents, ThatNobodyTakesAreLostVisibly) {
  PrefixCache cache(small_layout({0}, kBf16), 1000, {.max_events = 4});
  cache.serve(count_up(0, 160));
  const auto events = cache.index().take_events();
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events.front().number, 6);
}

}  // namespace
}  // namespace pagekv::testing
