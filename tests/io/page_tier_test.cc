// Pages that went down and came up again: the rows that were computed, or nothing. Found in RAM,
// found in a folder, computed from nothing: the same bits.
#include "pagekv/page_tier.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <vector>

#include "core/test_backend.h"
#include "core/token_cache.h"
#include "io/settings.h"
#include "support/files.h"
#include "support/random_history.h"

namespace pagekv::testing {
namespace {

const Setting kPlain{"plain", "bf16", "", {0, 0}};

std::int64_t cap_bytes(const LayoutSpec& spec, std::int64_t pages) {
  const CacheLayout layout = *CacheLayout::make(spec);
  std::int64_t bytes = 0;
  for (int group = 0; group < layout.group_count(); ++group) {
    bytes += layout.group(group).page_bytes;
  }
  return pages * bytes;
}

std::shared_ptr<Tier> open_tier(const std::string& path, std::int64_t bytes = 64 << 20) {
  auto tier = open_directory_tier(path, {.cap_bytes = bytes, .threads = 2});
  EXPECT_TRUE(tier) << tier.error().message();
  return std::move(*tier);
}

// A process: a store, its index, and pages below it.
class Side {
 public:
  Side(std::shared_ptr<Tier> tier, const LayoutSpec& spec, std::int64_t cap_pages = 1000,
       const NamespaceSpec& identity = {.model = "m"}, PageTierOptions options = {})
      : cache_(test_.device, spec, {.cap_bytes = cap_bytes(spec, cap_pages)}),
        pages_(*PageTier::make(cache_.store(), std::move(tier), options)),
        index_(*PrefixIndex::make(cache_.store(), {.sink = pages_.sink()})),
        space_(*index_.open(identity)) {
    const Status attached = pages_.attach(space_);
    EXPECT_TRUE(attached) << attached.error().message();
  }

  TokenCache& cache() { return cache_; }
  PageTier& pages() { return pages_; }
  PrefixIndex& index() { return index_; }
  const PrefixNamespace& space() { return space_; }
  void open_again() {
    space_ = *index_.open({.model = "m"});
    EXPECT_TRUE(pages_.attach(space_));
  }

  std::int64_t fetch(const Tokens& tokens, FetchOptions options = {.leave_tokens = 0}) {
    auto fetch = pages_.fetch(index_, space_, ids(tokens), options);
    EXPECT_TRUE(fetch) << fetch.error().message();
    EXPECT_TRUE(fetch->wait());
    EXPECT_TRUE(fetch->status()) << fetch->status().error().message();
    return fetch->tokens();
  }
  // What a scheduler does with a prompt. Tokens found.
  std::int64_t serve(const Tokens& tokens) {
    fetch(tokens);
    Sequence sequence = match(tokens);
    const std::int64_t found = sequence.length();
    if (found < static_cast<std::int64_t>(tokens.size())) {
      EXPECT_TRUE(cache_.append(sequence, {tokens.begin() + found, tokens.end()}));
    }
    EXPECT_TRUE(index_.insert(space_, ids(tokens), sequence));
    return found;
  }
  Sequence match(const Tokens& tokens) {
    Sequence sequence = *index_.match(space_, ids(tokens), {.leave_tokens = 0});
    EXPECT_TRUE(cache_.holds(sequence, {tokens.begin(), tokens.begin() + sequence.length()}));
    return sequence;
  }
  std::int64_t store(const Tokens& tokens, const Sequence& sequence) {
    const auto stored = pages_.store(space_, ids(tokens), sequence.ref());
    EXPECT_TRUE(stored) << stored.error().message();
    EXPECT_TRUE(pages_.flush());
    return *stored;
  }
  std::vector<float> attend(const Sequence& sequence) { return attend_all(cache_, sequence); }
  void expect_good_books() {
    EXPECT_TRUE(cache_.store().check());
    EXPECT_TRUE(index_.check());
  }

 private:
  TestDevice test_{2};
  TokenCache cache_;
  PageTier pages_;
  PrefixIndex index_;
  PrefixNamespace space_;
};

class PageTierOf : public ::testing::TestWithParam<Setting> {
 protected:
  TemporaryFolder folder_;
};

// Found in RAM, found in the folder by another process, computed from nothing.
TEST_P(PageTierOf, HitsAreMisses) {
  const LayoutSpec spec = layout(GetParam());
  const Tokens prompt = count_up(5, 208);
  const Tokens more = count_up(700, 30);
  std::vector<std::vector<float>> results;
  const auto finish = [&](Side& side, std::int64_t found) {
    Sequence sequence = side.match(prompt);
    EXPECT_EQ(sequence.length(), found);
    if (found < 208) {
      EXPECT_TRUE(side.cache().append(sequence, {prompt.begin() + found, prompt.end()}));
    }
    EXPECT_TRUE(side.cache().append(sequence, more));
    EXPECT_TRUE(side.cache().holds(sequence, join(prompt, more)));
    results.push_back(side.attend(sequence));
    side.expect_good_books();
  };
  {
    Side first(open_tier(folder_.path("t")), spec);
    finish(first, 0);
    EXPECT_EQ(first.serve(prompt), 0);
    finish(first, 208);
    const Sequence sequence = first.match(prompt);
    EXPECT_GT(first.store(prompt, sequence), 0);
    EXPECT_EQ(first.store(prompt, sequence), 0) << "all is there";
  }
  Side second(open_tier(folder_.path("t")), spec);
  EXPECT_EQ(second.fetch(prompt), 208);
  finish(second, 208);
  for (const auto& result : results) {
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * sizeof(float)), 0);
  }
}

TEST_P(PageTierOf, GivenUpInMemoryComesUpAgain) {
  const LayoutSpec spec = layout(GetParam());
  Side side(open_tier(folder_.path("t")), spec, 11);
  const Tokens prompts[] = {count_up(1, 160), count_up(1000, 160), count_up(2000, 160)};
  for (int round = 0; round < 3; ++round) {
    for (const Tokens& prompt : prompts) {
      EXPECT_EQ(side.serve(prompt), round == 0 ? 0 : 160);
      EXPECT_TRUE(side.pages().flush());
      side.expect_good_books();
    }
  }
  EXPECT_GT(side.pages().stats().offered_pages, 0);
  EXPECT_GT(side.pages().stats().fetched_pages, 0);
  EXPECT_EQ(side.pages().stats().wrong_records, 0);
}

INSTANTIATE_TEST_SUITE_P(Settings, PageTierOf, ::testing::ValuesIn(all_settings()),
                         [](const auto& setting) { return std::string(setting.param.name); });

class PagesBelow : public ::testing::Test {
 protected:
  // Another process computes the prompt and stores it.
  void store(const Tokens& tokens, const Setting& setting = kPlain) {
    Side side(open_tier(folder_.path("t")), layout(setting));
    side.serve(tokens);
    side.store(tokens, side.match(tokens));
  }
  std::vector<std::filesystem::path> records() {
    std::vector<std::filesystem::path> paths;
    for (const auto& at : std::filesystem::recursive_directory_iterator(folder_.path("t"))) {
      if (at.is_regular_file() && at.file_size() > 4096) paths.push_back(at.path());
    }
    return paths;
  }
  TemporaryFolder folder_;
};

TEST_F(PagesBelow, OnlyWholePagesThatBeginAlikeAreFound) {
  store(count_up(0, 100));
  Side side(open_tier(folder_.path("t")), layout(kPlain));
  EXPECT_EQ(side.fetch(join(count_up(0, 70), count_up(500, 30))), 64);
  EXPECT_EQ(side.fetch(count_up(0, 100)), 32) << "behind the 64 that are there";
  EXPECT_EQ(side.fetch(count_up(0, 100)), 0);
  EXPECT_EQ(side.fetch(count_up(1, 100)), 0);
  EXPECT_EQ(side.match(count_up(0, 100)).length(), 96);
}

TEST_F(PagesBelow, ATokenToComputeIsLeft) {
  store(count_up(0, 96));
  Side side(open_tier(folder_.path("t")), layout(kPlain));
  EXPECT_EQ(side.fetch(count_up(0, 96), {.leave_tokens = 1}), 80);
}

TEST_F(PagesBelow, WhatAnotherIdentityStoredIsNotFound) {
  store(count_up(0, 96));
  const std::shared_ptr<Tier> tier = open_tier(folder_.path("t"));
  const LayoutSpec spec = layout(kPlain);
  for (const NamespaceSpec& identity :
       {NamespaceSpec{.model = "n"}, NamespaceSpec{.model = "m", .adapter = "a"},
        NamespaceSpec{.model = "m", .salt = "s"},
        NamespaceSpec{.model = "m", .arithmetic = Arithmetic::fast}}) {
    Side side(tier, spec, 1000, identity);
    EXPECT_EQ(side.fetch(count_up(0, 96)), 0);
  }
  Side other_pages(tier, layout(kPlain, 32));
  EXPECT_EQ(other_pages.fetch(count_up(0, 96)), 0);
  Side other_format(tier, layout({"", "kv8", "", {0, 0}}));
  EXPECT_EQ(other_format.fetch(count_up(0, 96)), 0);
  Side same(tier, spec);
  EXPECT_EQ(same.fetch(count_up(0, 96)), 96);
}

TEST_F(PagesBelow, WhatWasInvalidatedIsNeverServedAgain) {
  store(count_up(0, 96));
  Side here(open_tier(folder_.path("t")), layout(kPlain));
  Side elsewhere(open_tier(folder_.path("t")), layout(kPlain));
  EXPECT_EQ(here.fetch(count_up(0, 48)), 48);
  here.index().invalidate(here.space());
  here.open_again();
  EXPECT_EQ(here.fetch(count_up(0, 96)), 0);
  EXPECT_EQ(elsewhere.fetch(count_up(0, 96)), 0) << "another process that had attached before";
  Side later(open_tier(folder_.path("t")), layout(kPlain));
  EXPECT_EQ(later.fetch(count_up(0, 96)), 0);
  EXPECT_EQ(later.serve(count_up(0, 96)), 0);
  later.store(count_up(0, 96), later.match(count_up(0, 96)));
  EXPECT_EQ(here.fetch(count_up(0, 96)), 96) << "what is computed from then on";
  EXPECT_EQ(here.pages().stats().failed_invalidations, 0);
}

// A page that was taken out before its namespace ended, and comes late; a view that outlives it.
TEST_F(PagesBelow, WhatComesLateIsNotStoredUnderTheNewName) {
  struct Late final : PageSink {
    void give_up(const Page& page) noexcept override { pages.push_back(page); }
    void invalidate(const Digest& space) noexcept override { below->invalidate(space); }
    std::shared_ptr<PageSink> below;
    std::vector<Page> pages;
  };
  const auto late = std::make_shared<Late>();
  TestDevice test{1};
  TokenCache cache(test.device, layout(kPlain), {.cap_bytes = cap_bytes(layout(kPlain), 20)});
  PageTier pages = *PageTier::make(cache.store(), open_tier(folder_.path("t")));
  late->below = pages.sink();
  PrefixIndex index = *PrefixIndex::make(cache.store(), {.sink = late});
  const auto compute = [&](std::uint32_t first) {
    Sequence sequence = *cache.store().create_sequence();
    EXPECT_TRUE(cache.append(sequence, count_up(first, 96)));
    return sequence;
  };
  const PrefixNamespace old_space = *index.open({.model = "m"});
  ASSERT_TRUE(pages.attach(old_space));
  ASSERT_TRUE(index.insert(old_space, ids(count_up(0, 96)), compute(0)));
  Sequence running = compute(5000);
  const Append too_much{&running, 9 * 16};  // pages are taken out, and still held
  EXPECT_FALSE(cache.store().reserve({&too_much, 1}));
  ASSERT_FALSE(late->pages.empty());

  index.invalidate(old_space);
  const PrefixNamespace space = *index.open({.model = "m"});
  EXPECT_EQ(pages.store(old_space, ids(count_up(5000, 96)), running.ref()).error().code(),
            ErrorCode::invalid_argument);
  for (const PageSink::Page& page : late->pages) late->below->give_up(page);
  EXPECT_EQ(pages.stats().skipped_pages, static_cast<std::int64_t>(late->pages.size()));
  ASSERT_TRUE(pages.attach(space));
  EXPECT_EQ(pages.store(old_space, ids(count_up(5000, 96)), running.ref()).error().code(),
            ErrorCode::invalid_argument)
      << "the handle of before";
  EXPECT_TRUE(pages.flush());
  EXPECT_EQ(pages.tier().list(false)->size(), 1u) << "the new name alone";
}

// A tier that does not take the new name: this process serves nothing of the old one all the same.
TEST_F(PagesBelow, ANameThatCannotBeChangedIsNotUsed) {
  store(count_up(0, 96));
  auto read_only = open_directory_tier(folder_.path("t"), {.read_only = true});
  ASSERT_TRUE(read_only);
  Side side(std::move(*read_only), layout(kPlain));
  EXPECT_EQ(side.fetch(count_up(0, 48)), 48);
  side.index().invalidate(side.space());
  EXPECT_EQ(side.pages().stats().failed_invalidations, 1);
  const PrefixNamespace again = *side.index().open({.model = "m"});
  const Status attached = side.pages().attach(again);
  ASSERT_FALSE(attached);
  EXPECT_EQ(attached.error().code(), ErrorCode::io_error);
  auto fetch = side.pages().fetch(side.index(), again, ids(count_up(0, 96)));
  ASSERT_TRUE(fetch);
  EXPECT_TRUE(fetch->wait());
  EXPECT_EQ(fetch->tokens(), 0);
}

TEST_F(PagesBelow, ABrokenRecordEndsThePrefix) {
  store(count_up(0, 96));
  const auto all = records();
  ASSERT_EQ(all.size(), 6u);
  for (std::size_t broken = 0; broken < all.size(); ++broken) {
    TemporaryFolder copy;
    std::filesystem::copy(folder_.path("t"), copy.path("t"),
                          std::filesystem::copy_options::recursive);
    const auto name = std::filesystem::relative(all[broken], folder_.path("t"));
    const std::string path = copy.path("t") + "/" + name.string();
    std::string bytes = read_file(path);
    bytes[bytes.size() / 2] ^= 1;
    write_file(path, bytes);
    Side side(open_tier(copy.path("t")), layout(kPlain));
    const std::int64_t found = side.fetch(count_up(0, 96));
    EXPECT_LT(found, 96);
    EXPECT_EQ(side.match(count_up(0, 96)).length(), found);
    EXPECT_FALSE(std::filesystem::exists(path)) << "removed";
    side.expect_good_books();
    EXPECT_EQ(side.serve(count_up(0, 96)), found);
    side.store(count_up(0, 96), side.match(count_up(0, 96)));
    EXPECT_TRUE(std::filesystem::exists(path)) << "and written anew";
  }
}

TEST_F(PagesBelow, ABrokenRecordOfAWindowIsAMiss) {
  const Setting windows{"", "bf16", "", {0, 40}};
  store(count_up(0, 160), windows);
  for (const auto& path : records()) {
    std::string bytes = read_file(path);
    bytes.back() ^= 1;
    write_file(path, bytes);
    break;
  }
  Side side(open_tier(folder_.path("t")), layout(windows));
  const std::int64_t found = side.fetch(count_up(0, 160));
  EXPECT_EQ(side.match(count_up(0, 160)).length(), found);
  side.expect_good_books();
  EXPECT_EQ(side.cache().store().stats().sequences, 0);
}

TEST_F(PagesBelow, WindowsThatCannotBeServedAreNotFetched) {
  const Setting windows{"", "bf16", "", {0, 40}};
  store(count_up(0, 160), windows);  // of the window's pages only the last ones are there
  Side side(open_tier(folder_.path("t")), layout(windows));
  EXPECT_EQ(side.fetch(join(count_up(0, 96), count_up(700, 40))), 0);
  EXPECT_EQ(side.fetch(join(count_up(0, 160), count_up(700, 40))), 160);
  Sequence sequence = side.match(count_up(0, 160));
  EXPECT_EQ(sequence.length(), 160);
  for (std::int64_t length = 159; length > 100; --length) {
    Sequence fork = *sequence.fork();
    if (!fork.truncate(length)) continue;
    EXPECT_TRUE(side.cache().holds(fork, count_up(0, length))) << "nothing that was never written";
  }
}

TEST_F(PagesBelow, AFullPoolEndsAFetchAndChangesNothing) {
  store(count_up(0, 320));
  Side side(open_tier(folder_.path("t")), layout(kPlain), 25);
  Sequence running = *side.cache().store().create_sequence();
  ASSERT_TRUE(side.cache().append(running, count_up(5000, 200)));
  auto fetch = side.pages().fetch(side.index(), side.space(), ids(count_up(0, 320)));
  ASSERT_TRUE(fetch);
  EXPECT_TRUE(fetch->wait());
  ASSERT_FALSE(fetch->status());
  EXPECT_EQ(fetch->status().error().code(), ErrorCode::pool_exhausted);
  EXPECT_EQ(fetch->tokens(), 0);
  EXPECT_TRUE(side.cache().holds(running, count_up(5000, 200)));
  side.expect_good_books();
  ASSERT_TRUE(side.cache().append(running, count_up(6000, 150))) << "no page was lost";
}

TEST_F(PagesBelow, PiecesComeOneAfterTheOther) {
  store(count_up(0, 320));
  Side side(open_tier(folder_.path("t")), layout(kPlain), 1000, {.model = "m"}, {.batch_bytes = 1});
  EXPECT_EQ(side.fetch(count_up(0, 320)), 320);
  EXPECT_EQ(side.match(count_up(0, 320)).length(), 320);
}

TEST_F(PagesBelow, ALateFetchFindsNothing) {
  store(count_up(0, 96));
  Side side(open_tier(folder_.path("t")), layout(kPlain));
  const auto past = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  EXPECT_EQ(side.fetch(count_up(0, 96), {.leave_tokens = 0, .deadline = past}), 0);
  EXPECT_EQ(side.fetch(count_up(0, 96)), 96);
}

TEST_F(PagesBelow, ADroppedFetchLeavesNothingBehind) {
  store(count_up(0, 320));
  Side side(open_tier(folder_.path("t")), layout(kPlain), 1000, {.model = "m"}, {.batch_bytes = 1});
  for (int polls = 0; polls < 6; ++polls) {
    auto fetch = side.pages().fetch(side.index(), side.space(), ids(count_up(0, 320)));
    for (int i = 0; i < polls; ++i) fetch->poll();
    *fetch = PageFetch();
    side.expect_good_books();
    EXPECT_EQ(side.cache().store().stats().sequences, 0);
  }
}

TEST_F(PagesBelow, BadCallsAreRefused) {
  Side side(open_tier(folder_.path("t")), layout(kPlain));
  Side other(open_tier(folder_.path("t")), layout(kPlain));
  EXPECT_EQ(PageTier::make(side.cache().store(), nullptr).error().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(side.pages().attach({}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(side.pages().fetch(side.index(), other.space(), ids(count_up(0, 5))).error().code(),
            ErrorCode::invalid_argument);
  const Sequence sequence = *other.cache().store().create_sequence();
  EXPECT_EQ(side.pages().store(side.space(), {}, sequence.ref()).error().code(),
            ErrorCode::wrong_store);
  const PrefixNamespace unattached = *side.index().open({.model = "unattached"});
  Sequence own = *side.cache().store().create_sequence();
  ASSERT_TRUE(side.cache().append(own, count_up(0, 20)));
  EXPECT_EQ(side.pages().store(side.space(), ids(count_up(0, 19)), own.ref()).error().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(side.pages().store(unattached, ids(count_up(0, 20)), own.ref()).error().code(),
            ErrorCode::invalid_argument);
  EXPECT_TRUE(side.pages().fetch(side.index(), unattached, ids(count_up(0, 20)))->poll());
}

TEST_F(PagesBelow, TagsSayWhoseTheyAre) {
  store(count_up(7, 32));
  const std::shared_ptr<Tier> tier = open_tier(folder_.path("t"));
  std::size_t pages = 0;
  const auto records = tier->list(true);
  ASSERT_TRUE(records);
  for (const TierRecord& record : *records) {
    const auto info = read_page_tag(record.tag);
    if (!info) {
      EXPECT_EQ(info.error().code(), ErrorCode::corrupt_file);
      continue;  // the namespace's name
    }
    ++pages;
    EXPECT_EQ(info->group, 0);
    EXPECT_EQ(info->tokens.size(), 16u);
    EXPECT_EQ(info->tokens[0] == 7, info->parent == info->space);
    for (std::size_t bytes = 0; bytes < record.tag.size(); ++bytes) {
      EXPECT_FALSE(read_page_tag(std::span(record.tag).first(bytes)));
    }
  }
  EXPECT_EQ(pages, 2u);
}

// A process that is killed while its pages go down and come up: who comes next finds whole records,
// within the cap, and the rows that were asked for.
TEST_F(PagesBelow, KilledWhilePagesMove) {
  constexpr std::int64_t kCap = 200 << 10;
  std::mt19937 random(test_seed());
  const auto prompt = [](std::mt19937& engine) {
    return join(count_up(static_cast<std::uint32_t>(1000 * (engine() % 3)), 64),
                count_up(static_cast<std::uint32_t>(5000 + 100 * (engine() % 9)), 96));
  };
  const int rounds = 20 * test_scale();
  std::int64_t fetched = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto seed = static_cast<unsigned>(random());
    const pid_t child = fork();
    if (child == 0) {
      Side side(open_tier(folder_.path("t"), kCap), layout(kPlain), 20);
      for (std::mt19937 own(seed);;) side.serve(prompt(own));
    }
    ::usleep(5'000 + random() % 40'000);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "ended by itself: " << WEXITSTATUS(status);
    Side side(open_tier(folder_.path("t"), kCap), layout(kPlain));
    const auto check = side.pages().tier().verify();
    ASSERT_TRUE(check);
    EXPECT_TRUE(check->corrupt.empty());
    EXPECT_LE(side.pages().tier().stats().bytes, kCap);
    for (int i = 0; i < 4; ++i) {
      const Tokens tokens = prompt(random);
      fetched += side.fetch(tokens);
      side.match(tokens);  // compares the rows
    }
    EXPECT_EQ(side.pages().stats().wrong_records, 0);
    side.expect_good_books();
  }
  std::printf("%d rounds, %lld tokens came up\n", rounds, static_cast<long long>(fetched));
  EXPECT_GT(fetched, 0);
}

// Many prompts through little memory and a small folder, with restarts: what is found is always
// what was asked for.
TEST_F(PagesBelow, RandomHistoriesServeNothingElse) {
  std::mt19937 random(test_seed());
  const auto below = [&](int bound) {
    return static_cast<int>(random() % static_cast<unsigned>(bound));
  };
  for (const Setting& setting : {kPlain, Setting{"", "kv4", "", {0, 40}}}) {
    std::filesystem::remove_all(folder_.path("t"));
    std::int64_t found = 0;
    std::int64_t fetched = 0;
    for (int restart = 0; restart < 3 * test_scale(); ++restart) {
      Side side(open_tier(folder_.path("t"), 200 << 10), layout(setting), 40);
      for (int request = 0; request < 60; ++request) {
        Tokens prompt = count_up(static_cast<std::uint32_t>(1000 * below(3)), 16 + below(100));
        prompt =
            join(prompt, count_up(static_cast<std::uint32_t>(5000 + 100 * below(4)), below(120)));
        found += side.serve(prompt);
        if (below(4) == 0) side.store(prompt, side.match(prompt));
        if (below(40) == 0) {
          side.index().invalidate(side.space());
          side.open_again();
        }
      }
      side.expect_good_books();
      EXPECT_EQ(side.pages().stats().wrong_records, 0);
      fetched += side.pages().stats().fetched_pages;
      EXPECT_LE(side.pages().tier().stats().bytes, 200 << 10);
    }
    EXPECT_GT(found, 0);
    EXPECT_GT(fetched, 0);
  }
}

}  // namespace
}  // namespace pagekv::testing
