// What prompt lookup guesses.
#include "engine/prompt_lookup.h"

#include <gtest/gtest.h>

#include <vector>

namespace pagekv::testing {
namespace {

using engine::PromptLookup;
using Tokens = std::vector<engine::Token>;

Tokens guess(const Tokens& tokens, std::size_t count, const PromptLookup& lookup = {}) {
  Tokens drafts(count, -1);
  drafts.resize(lookup(tokens, drafts));
  return drafts;
}

TEST(PromptLookup, FollowsWhatFollowedTheSameTokens) {
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 9, 1, 2}, 3), Tokens({3, 4, 5}));
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 9, 1, 2}, 1), Tokens({3}));
  EXPECT_EQ(guess({1, 2, 3, 4, 5}, 3), Tokens());
  EXPECT_EQ(guess({}, 3), Tokens());
  EXPECT_EQ(guess({7}, 3), Tokens());
  EXPECT_EQ(guess({1, 2, 3, 1, 2}, 0), Tokens());
}

TEST(PromptLookup, PrefersTheLongestMatchThenTheLatest) {
  EXPECT_EQ(guess({1, 2, 3, 10, 8, 2, 3, 20, 1, 2, 3}, 1), Tokens({10}));
  EXPECT_EQ(guess({2, 3, 10, 8, 2, 3, 20, 2, 3}, 1), Tokens({20}));
  // Beyond the maximum longer is no better.
  EXPECT_EQ(guess({1, 2, 3, 10, 8, 2, 3, 20, 1, 2, 3}, 1, {.ngram_max = 2}), Tokens({20}));
}

TEST(PromptLookup, WantsAMatchOfTheMinimum) {
  const Tokens tokens = {5, 6, 9, 6};
  EXPECT_EQ(guess(tokens, 1), Tokens());
  EXPECT_EQ(guess(tokens, 1, {.ngram_min = 1}), Tokens({9}));
}

TEST(PromptLookup, GoesOnWithALoopForAsLongAsThereIsRoom) {
  EXPECT_EQ(guess({7, 7, 7}, 5), Tokens({7, 7, 7, 7, 7}));
  EXPECT_EQ(guess({9, 1, 2, 3, 1, 2}, 7), Tokens({3, 1, 2, 3, 1, 2, 3}));
}

}  // namespace
}  // namespace pagekv::testing
