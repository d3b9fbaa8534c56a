// `pagekv run --session` and `/save`, `/load` of `pagekv chat`: texts that go on as if nothing had
// been in between.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/small_chat.h"

namespace pagekv::testing {
namespace {

const std::vector<std::string> kWarm = {"--temp", "1.5", "--top-k", "0", "--top-p", "1"};

class SessionFiles : public SmallChat {
 protected:
  Outcome run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"run", "-m", model_, "--page", "16"});
    return place_.run(arguments);
  }
  static std::vector<std::string> with(std::vector<std::string> first,
                                       const std::vector<std::string>& second) {
    first.insert(first.end(), second.begin(), second.end());
    return first;
  }
};

TEST_F(SessionFiles, GoOnAsIfTheyHadNeverStopped) {
  for (const std::string format : {"bf16", "k8v4"}) {
    for (const auto& sampling : {std::vector<std::string>{"--temp", "0"}, kWarm}) {
      const auto base = with({"-p", "hello world hello", "--kv", format, "--seed", "7"}, sampling);
      const Outcome whole = run(with(base, {"-n", "24"}));
      ASSERT_EQ(whole.exit_code, 0) << whole.err;
      const std::string file = place_.path(format + std::to_string(sampling.size()));
      const auto rest = with({"--kv", format, "--seed", "7", "--session", file}, sampling);
      const Outcome first = run(with({"-p", "hello world hello", "-n", "8"}, rest));
      const Outcome second = run(with({"-n", "1"}, rest));
      const Outcome third = run(with({"-n", "15"}, rest));
      ASSERT_EQ(third.exit_code, 0) << third.err;
      const auto text = [](const Outcome& outcome) {  // every run ends its text with a line
        return outcome.out.substr(0, outcome.out.size() - 1);
      };
      EXPECT_EQ(text(first) + text(second) + text(third), text(whole)) << format;
    }
  }
}

TEST_F(SessionFiles, AreRefusedByOtherFormatsAndLeftAsTheyAre) {
  const std::string file = place_.path("s");
  ASSERT_EQ(run({"-p", "hello", "-n", "3", "--session", file}).exit_code, 0);
  const std::string bytes = read_file(file);
  const Outcome other = run({"-n", "3", "--kv", "kv8", "--session", file});
  EXPECT_EQ(other.exit_code, 1);
  EXPECT_NE(other.err.find("format of layer 0"), std::string::npos) << other.err;
  const Outcome nothing = run({"-n", "3", "--session", place_.path("no")});
  EXPECT_EQ(nothing.exit_code, 1);
  EXPECT_EQ(run({"-p", "a", "-p", "b", "--session", file}).exit_code, 2);
  EXPECT_EQ(read_file(file), bytes);
}

TEST_F(SessionFiles, ATalkCanBeSavedAndLoaded) {
  const std::string file = place_.path("talk");
  const Outcome whole = talk("hello hello\nworld\nhello\n", {"--temp", "0"});
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const Outcome first = talk("hello hello\nworld\n/save " + file + "\n", {"--temp", "0"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Outcome second = talk("/load " + file + "\nhello\n", {"--temp", "0"});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_NE(second.err.find("2 questions"), std::string::npos) << second.err;
  EXPECT_EQ(first.out + second.out, whole.out);

  const Outcome undone = talk("/load " + file + "\n/undo\nworld\nhello\n", {"--temp", "0"});
  EXPECT_EQ(first.out.substr(0, first.out.find('\n') + 1) + undone.out, whole.out)
      << "turns can be taken back";
}

TEST_F(SessionFiles, WhatIsNoTalkIsRefusedAndTheTalkGoesOn) {
  const std::string file = place_.path("run");
  ASSERT_EQ(run({"-p", "hello", "-n", "3", "--session", file}).exit_code, 0);
  const Outcome outcome = talk("/save\n/save " + file + "\n/load\n/load " + file + "\n/load " +
                                   place_.path("no") + "\nhello\n",
                               {"--temp", "0"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* why : {"/save needs the name of a file", "nothing was asked",
                          "/load needs the name of a file", "holds no talk", "No such file"}) {
    EXPECT_NE(outcome.err.find(why), std::string::npos) << why << "\n" << outcome.err;
  }
  EXPECT_FALSE(outcome.out.empty());
}

TEST_F(SessionFiles, ATierServesTheNextRun) {
  const std::vector<std::string> arguments = {
      "-p",     std::string(60, 'w') + " hello world", "-n", "4", "--temp", "0", "--json",
      "--tier", "dir:" + place_.path("t") + ":8M"};
  std::vector<nlohmann::json> figures;
  std::vector<std::string> texts;
  for (int i = 0; i < 2; ++i) {
    const Outcome outcome = run(arguments);
    ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
    const std::size_t line = outcome.out.find('\n');
    texts.push_back(nlohmann::json::parse(outcome.out.substr(0, line))["text"]);
    figures.push_back(nlohmann::json::parse(outcome.out.substr(line + 1))["figures"]);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(figures[0]["fetched_tokens"], 0);
  EXPECT_GT(figures[1]["fetched_tokens"], 0);
  EXPECT_LT(figures[1]["prefill_tokens"], figures[0]["prefill_tokens"]);
  for (const std::string bad : {"foo", "dir:", "dir:x:0", "dir:x:5Q", "dir::1G"}) {
    const Outcome outcome = run({"-p", "a", "--tier", bad});
    EXPECT_EQ(outcome.exit_code, 2) << bad;
    EXPECT_NE(outcome.err.find("write dir:PATH"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(run({"-p", "a", "--tier", "dir:" + place_.path("no/such")}).exit_code, 1);
}

}  // namespace
}  // namespace pagekv::testing
