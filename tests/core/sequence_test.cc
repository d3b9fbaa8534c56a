// Sequences and views: fork, truncate, publish, copy-on-write, windows, donors; in dense, affine
// and codebook pages.
#include "pagekv/sequence.h"

#include <gtest/gtest.h>

#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

constexpr StoreOptions kRoomy{.cap_bytes = 4 << 20, .max_sequence_tokens = 1024};

class SequenceTest : public ::testing::TestWithParam<const char*> {
 protected:
  static Format format() { return *Format::parse(GetParam()); }
  TokenCache cache(const std::vector<std::int64_t>& windows = {0, 0}, std::int64_t slack = 0) {
    return TokenCache(test_.device, small_layout(windows, format(), 16, slack), kRoomy);
  }
  static GroupStats stats(TokenCache& cache, int group = 0) {
    return cache.store().stats().groups.at(static_cast<std::size_t>(group));
  }

  TestDevice test_;
};

TEST_P(SequenceTest, HoldsWhatWasAppendedInAnyChunks) {
  auto tokens = cache();
  auto sequence = *tokens.store().create_sequence();
  Tokens all;
  for (const std::int64_t count : {1, 15, 1, 16, 17, 3, 64}) {
    const Tokens more = count_up(static_cast<std::uint32_t>(all.size()), count);
    ASSERT_TRUE(tokens.append(sequence, more));
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_TRUE(tokens.holds(sequence, all));
  }
  EXPECT_EQ(stats(tokens).referenced_pages, 8);
  EXPECT_TRUE(tokens.store().check());
}

// Rule 10: the first append after a fork copies at most one tail page.
TEST_P(SequenceTest, ForkSharesPagesAndTheSecondWriterCopiesOne) {
  auto tokens = cache();
  auto parent = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(parent, count_up(0, 40)));
  auto child = *parent.fork();
  EXPECT_EQ(stats(tokens).referenced_pages, 3);
  EXPECT_EQ(stats(tokens).shared_pages, 3);

  ASSERT_TRUE(tokens.append(parent, {100}));  // in place: row 8 of the tail is unclaimed
  EXPECT_EQ(test_.backend->copies, 0);
  ASSERT_TRUE(tokens.append(child, {200, 201}));  // row 8 is claimed now
  EXPECT_EQ(test_.backend->copies, 2) << "one page, two layers";
  EXPECT_EQ(stats(tokens).referenced_pages, 4);

  Tokens of_parent = count_up(0, 40), of_child = of_parent;
  of_parent.push_back(100);
  of_child.insert(of_child.end(), {200, 201});
  EXPECT_TRUE(tokens.holds(parent, of_parent));
  EXPECT_TRUE(tokens.holds(child, of_child));
  EXPECT_TRUE(tokens.store().check());
}

TEST_P(SequenceTest, ForkAtAPageEdgeCopiesNothing) {
  auto tokens = cache();
  auto parent = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(parent, count_up(0, 32)));
  auto child = *parent.fork();
  ASSERT_TRUE(tokens.append(parent, {100}));
  ASSERT_TRUE(tokens.append(child, {200}));
  EXPECT_EQ(test_.backend->copies, 0);
}

// Rule 10: a view never changes.
TEST_P(SequenceTest, ViewOutlivesEverythingThatHappensToItsSequence) {
  auto tokens = cache();
  View view;
  const Tokens prefix = count_up(0, 25);
  {
    auto sequence = *tokens.store().create_sequence();
    ASSERT_TRUE(tokens.append(sequence, count_up(0, 40)));
    view = *sequence.publish(25);
    EXPECT_TRUE(tokens.holds(view, prefix));
    ASSERT_TRUE(sequence.truncate(20));
    ASSERT_TRUE(tokens.append(sequence, count_up(500, 30)));
    EXPECT_TRUE(tokens.holds(view, prefix));
  }
  EXPECT_TRUE(tokens.holds(view, prefix));
  EXPECT_EQ(stats(tokens).referenced_pages, 2);
  auto again = *tokens.store().create_sequence(view);
  const View copy = view;
  view = View();
  EXPECT_TRUE(tokens.holds(again, prefix));
  EXPECT_TRUE(tokens.holds(copy, prefix));
  EXPECT_TRUE(tokens.store().check());
}

// Rule 9: a page with a single holder is written in place after a truncation; a shared one
// is never lowered.
TEST_P(SequenceTest, TruncatedRowsAreWrittenInPlaceOnlyByASoleHolder) {
  auto tokens = cache();
  auto sequence = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(sequence, count_up(0, 30)));
  ASSERT_TRUE(sequence.truncate(20));
  ASSERT_TRUE(tokens.append(sequence, {77}));
  EXPECT_EQ(test_.backend->copies, 0);

  const View view = *sequence.publish();
  ASSERT_TRUE(sequence.truncate(18));
  ASSERT_TRUE(tokens.append(sequence, {88}));
  EXPECT_EQ(test_.backend->copies, 2);
  Tokens expected = count_up(0, 20);
  expected.push_back(77);
  EXPECT_TRUE(tokens.holds(view, expected));
  expected.resize(18);
  expected.push_back(88);
  EXPECT_TRUE(tokens.holds(sequence, expected));
}

TEST_P(SequenceTest, TruncateToNothingGivesEveryPageBack) {
  auto tokens = cache();
  auto sequence = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(sequence, count_up(0, 100)));
  ASSERT_TRUE(sequence.truncate(0));
  EXPECT_EQ(stats(tokens).referenced_pages, 0);
  EXPECT_EQ(sequence.length(), 0);
}

TEST_P(SequenceTest, TruncateAndPublishRefuseLengthsOutOfRange) {
  auto tokens = cache();
  auto sequence = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(sequence, count_up(0, 5)));
  EXPECT_EQ(sequence.truncate(6).error().message(), "cannot truncate to 6 tokens a sequence of 5");
  EXPECT_EQ(sequence.truncate(-1).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(sequence.publish(6).error().message(), "cannot publish 6 tokens of a sequence of 5");
  EXPECT_TRUE(tokens.holds(sequence, count_up(0, 5)));
  Sequence empty;
  EXPECT_EQ(empty.truncate(0).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(empty.fork().error().code(), ErrorCode::invalid_argument);
}

// Rule 11.
TEST_P(SequenceTest, WindowGroupFreesPagesBehindWindowAndSlack) {
  auto tokens = cache({0, 32}, 16);
  auto sequence = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(sequence, count_up(0, 200)));
  // The next token, 200, sees 169..200; slack keeps 153 on: page 9 of 13.
  EXPECT_EQ(sequence.first(0), 0);
  EXPECT_EQ(sequence.first(1), 144);
  EXPECT_EQ(stats(tokens, 0).referenced_pages, 13);
  EXPECT_EQ(stats(tokens, 1).referenced_pages, 4);
  EXPECT_TRUE(tokens.holds(sequence, count_up(0, 200)));

  ASSERT_TRUE(sequence.truncate(180)) << "the slack is for this";
  const auto lost = sequence.truncate(170);
  EXPECT_EQ(lost.error().code(), ErrorCode::window_lost);
  EXPECT_EQ(lost.error().message(),
            "a prefix of 170 tokens needs rows from token 139 on, the window of group 1 keeps them "
            "from token 144 on");
  EXPECT_EQ(sequence.publish(100).error().code(), ErrorCode::window_lost);
  EXPECT_TRUE(tokens.holds(sequence, count_up(0, 180)));
  EXPECT_TRUE(tokens.store().check());
}

TEST_P(SequenceTest, NothingIsNeededOfNothing) {
  auto tokens = cache({0, 32});
  auto sequence = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(sequence, count_up(0, 200)));
  EXPECT_EQ((*sequence.publish(0)).length(), 0);
  ASSERT_TRUE(sequence.truncate(0));
  EXPECT_EQ(sequence.first(1), 0);
  ASSERT_TRUE(tokens.append(sequence, count_up(500, 40)));
  EXPECT_TRUE(tokens.holds(sequence, count_up(500, 40)));
  EXPECT_TRUE(tokens.store().check());
}

TEST_P(SequenceTest, WindowOfOneTokenKeepsNothingAtAPageEdge) {
  auto tokens = cache({1});
  auto sequence = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(sequence, count_up(0, 32)));
  EXPECT_EQ(stats(tokens).referenced_pages, 0);
  ASSERT_TRUE(tokens.append(sequence, {9}));
  EXPECT_EQ(stats(tokens).referenced_pages, 1);
  EXPECT_TRUE(tokens.store().check());
}

TEST_P(SequenceTest, ForkOfAWindowedSequenceContinuesAlone) {
  auto tokens = cache({0, 20});
  auto parent = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(parent, count_up(0, 100)));
  auto child = *parent.fork();
  ASSERT_TRUE(tokens.append(child, count_up(300, 50)));
  ASSERT_TRUE(tokens.append(parent, count_up(100, 50)));
  Tokens expected = count_up(0, 100);
  const Tokens more = count_up(300, 50);
  expected.insert(expected.end(), more.begin(), more.end());
  EXPECT_TRUE(tokens.holds(child, expected));
  EXPECT_TRUE(tokens.holds(parent, count_up(0, 150)));
  EXPECT_TRUE(tokens.store().check());
}

TEST_P(SequenceTest, DonorLayersReadTheirDonorsPages) {
  LayoutSpec spec = small_layout({0, 0, 0}, format());
  spec.layers[1].format = *Format::parse("kv2");
  spec.layers[2].donor = 0;
  TokenCache tokens(test_.device, spec, kRoomy);
  auto sequence = *tokens.store().create_sequence();
  ASSERT_TRUE(tokens.append(sequence, count_up(0, 33)));
  EXPECT_TRUE(tokens.holds(sequence, count_up(0, 33))) << "layer 2 gathers layer 0";

  const Append append{&sequence, 1};
  Step step = *tokens.store().reserve({&append, 1});
  const std::vector<float> row(32, 1.0f);
  const Rows rows = Rows::packed(row.data(), DType::f32, 2, 16);
  EXPECT_EQ(step.write(2, rows, rows).error().code(), ErrorCode::invalid_argument);
  tokens.write(step, count_up(33, 1));  // the refusal did no harm
  ASSERT_TRUE(step.commit());
  EXPECT_TRUE(tokens.holds(sequence, count_up(0, 34)));
}

TEST_P(SequenceTest, HandlesKeepTheStoreAlive) {
  Sequence sequence;
  View view;
  {
    auto tokens = cache();
    sequence = *tokens.store().create_sequence();
    ASSERT_TRUE(tokens.append(sequence, count_up(0, 20)));
    view = *sequence.publish(10);
  }
  ASSERT_TRUE(sequence.truncate(3));
  EXPECT_EQ(view.length(), 10);
  EXPECT_EQ((*sequence.fork()).length(), 3);
}

TEST_P(SequenceTest, ViewOfAnotherStoreIsRefused) {
  auto one = cache(), two = cache();
  auto sequence = *one.store().create_sequence();
  ASSERT_TRUE(one.append(sequence, {1}));
  const View view = *sequence.publish();
  EXPECT_EQ(two.store().create_sequence(view).error().code(), ErrorCode::wrong_store);
  EXPECT_EQ(two.store().gather(view, 0, {}, {}).error().code(), ErrorCode::wrong_store);
}

INSTANTIATE_TEST_SUITE_P(Formats, SequenceTest,
                         ::testing::Values("bf16", "kv4", "k8v3",
                                           "k=codebook:5:rot:f16,v=affine:3:8:rot:f32"),
                         [](const auto& format) {
                           return "format" + std::to_string(format.index);
                         });

}  // namespace
}  // namespace pagekv::testing
