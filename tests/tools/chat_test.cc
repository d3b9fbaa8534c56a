// `pagekv chat`: turns, the commands between them, and what of a turn was in pages already.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/small_chat.h"

namespace pagekv::testing {
namespace {

class Chat : public SmallChat {
 protected:
  // Of every answer: prompt tokens that were in pages already, and all of them.
  static std::vector<std::pair<int, int>> found(const Outcome& outcome) {
    std::vector<std::pair<int, int>> pairs;
    std::istringstream lines(outcome.err);
    for (std::string line; std::getline(lines, line);) {
      int shared = 0, all = 0;
      if (std::sscanf(line.c_str(), "%d of %d prompt tokens", &shared, &all) == 2) {
        pairs.emplace_back(shared, all);
      }
    }
    return pairs;
  }
};

TEST_F(Chat, ATurnComputesItsOwnTokensOnly) {
  const Outcome outcome = talk("hello hello hello\nhello\nworld\n", {"--temp", "0"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto turns = found(outcome);
  ASSERT_EQ(turns.size(), 3u) << outcome.err;
  EXPECT_EQ(turns[0].first, 0);
  for (std::size_t turn = 1; turn < 3; ++turn) {
    // All of the turn before, and its answer but for the last token, which was never computed.
    EXPECT_GE(turns[turn].first, turns[turn - 1].second);
    EXPECT_LT(turns[turn].first, turns[turn].second);
  }
}

TEST_F(Chat, AnotherAnswerAndAnotherQuestion) {
  const std::vector<std::string> warm = {"--temp", "1.5", "--top-k", "0", "--top-p", "1"};
  const Outcome outcome =
      talk("hello\nworld\n/regenerate\n/regenerate\n/edit wor\n/edit world\n", warm);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto turns = found(outcome);
  ASSERT_EQ(turns.size(), 6u) << outcome.err;
  EXPECT_EQ(turns[2], std::pair(turns[1].second - 1, turns[1].second)) << "only the logits are new";
  EXPECT_EQ(turns[3], turns[2]);
  EXPECT_GE(turns[4].first, turns[1].first);
  EXPECT_EQ(turns[5], turns[2]);
  const Outcome again =
      talk("hello\nworld\n/regenerate\n/regenerate\n/edit wor\n/edit world\n", warm);
  EXPECT_EQ(again.out, outcome.out) << "the same seeds give the same talk";
  const Outcome straight = talk("hello\nworld\n", warm);
  EXPECT_TRUE(outcome.out.starts_with(straight.out));
  EXPECT_TRUE(outcome.out.ends_with(straight.out.substr(talk("hello\n", warm).out.size())))
      << "an edit back to the first question is answered as it was";
}

TEST_F(Chat, ForgettingIsExact) {
  const std::vector<std::string> cold = {"--temp", "0"};
  const std::string plain = talk("hello\nworld\n", cold).out;
  EXPECT_TRUE(talk("hello\nhe\n/undo\nworld\n", cold)
                  .out.ends_with(plain.substr(talk("hello\n", cold).out.size())));
  EXPECT_TRUE(talk("he\nhe\n/clear\nhello\nworld\n", cold).out.ends_with(plain));
  EXPECT_EQ(talk("hello\nworld\n/quit\nnever read\n", cold).out, plain);
  EXPECT_EQ(talk("hello\nworld\n", {"--temp", "0", "--speculate", "5", "-t", "2"}).out, plain);
  EXPECT_GT(found(talk("hello\n", {"--temp", "0", "-s", "other words"}))[0].second,
            found(talk("hello\n", cold))[0].second + 10);
}

TEST_F(Chat, WhatCannotBeDoneIsSaidAndTheTalkGoesOn) {
  const Outcome outcome =
      talk("/regenerate\n/undo\n/edit x\n/edit\n/what\n/quit now\n\n/help\nhello\n");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* text :
       {"pagekv: nothing was asked", "pagekv: /edit needs the new question",
        "pagekv: there is no /what; try /help", "pagekv: /quit takes nothing more; try /help",
        "/regenerate   another answer"}) {
    EXPECT_NE(outcome.err.find(text), std::string::npos) << text << "\n" << outcome.err;
  }
  EXPECT_EQ(found(outcome).size(), 1u);
}

TEST_F(Chat, ATurnThatDoesNotFitFailsAlone) {
  const Outcome outcome =
      talk("hello\n" + std::string(900, 'x') + "\nworld\n", {"--temp", "0", "--cap", "100K"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(found(outcome).size(), 2u) << outcome.err;
  EXPECT_NE(outcome.err.find("page pool"), std::string::npos) << outcome.err;
}

TEST_F(Chat, NeedsATemplate) {
  const Workplace place;
  const Outcome outcome =
      place.run({"chat", "-m", place.write("plain.gguf", SmallModel().gguf())}, "hello\n");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("chat_template"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace pagekv::testing
