// What the command prints when all is well.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "pagekv/version.h"
#include "tests/engine/small_model.h"
#include "tests/tools/command.h"

namespace pagekv::testing {
namespace {

using nlohmann::json;

class Run : public ::testing::Test {
 protected:
  void SetUp() override { model_ = place_.write("small.gguf", SmallModel().gguf()); }

  Outcome run(std::vector<std::string> arguments, std::string_view input = {}) const {
    if (std::find(arguments.begin(), arguments.end(), "--temp") == arguments.end()) {
      arguments.insert(arguments.end(), {"--temp", "0"});
    }
    arguments.insert(arguments.begin(), {"run", "-m", model_, "-n", "12"});
    const Outcome outcome = place_.run(arguments, input);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome;
  }
  std::vector<json> run_json(std::vector<std::string> arguments,
                             std::string_view input = {}) const {
    arguments.push_back("--json");
    std::istringstream lines(run(arguments, input).out);
    std::vector<json> objects;
    for (std::string line; std::getline(lines, line);) objects.push_back(json::parse(line));
    return objects;
  }

  Workplace place_;
  std::string model_;
};

TEST_F(Run, PrintsTheTextAloneAndTheFiguresBeside) {
  const Outcome plain = run({"-p", "hello world"});
  const std::vector<json> objects = run_json({"-p", "hello world"});
  ASSERT_EQ(objects.size(), 2u);
  EXPECT_EQ(plain.out, objects[0]["text"].get<std::string>() + "\n");
  EXPECT_EQ(objects[0]["prompt"], 0);
  EXPECT_EQ(objects[0]["finish"], "length");
  EXPECT_EQ(objects[0]["tokens"].size(), 12u);
  const json& figures = objects[1]["figures"];
  EXPECT_EQ(figures["decode_tokens"], 11);
  EXPECT_EQ(figures["prefill_tokens"], objects[0]["prompt_tokens"]);
  EXPECT_EQ(figures["kv_bytes_per_token"], 2 * 2 * 2 * 16 * 2);
  for (const char* word : {"prefill", "decode", "tokens/s", "per token", "used", "shared", "cap"}) {
    EXPECT_NE(plain.err.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(plain.err.find('\x1b'), std::string::npos);  // no colours into a file
  EXPECT_EQ(plain.err.find('\r'), std::string::npos);    // nor progress
}

TEST_F(Run, TextDoesNotDependOnThreadsPagesOrCompany) {
  const std::string expected = run({"-p", "hello world"}).out;
  EXPECT_EQ(run({"-p", "hello world", "-t", "1"}).out, expected);
  EXPECT_EQ(run({"-p", "hello world", "-t", "3", "--page", "16"}).out, expected);
  EXPECT_EQ(run({"-p", "hello world", "--page", "128", "--parallel", "1"}).out, expected);
  EXPECT_EQ(run({"-f", place_.write("prompt.txt", "hello world")}).out, expected);
  EXPECT_EQ(run({"-f", "-"}, "hello world").out, expected);
  const std::string other = run({"-p", "12 12"}).out;
  EXPECT_EQ(run({"-p", "hello world", "-p", "12 12"}).out,
            "==> prompt 1 <==\n" + expected + "\n==> prompt 2 <==\n" + other);
  EXPECT_EQ(run({"-f", "-", "--lines", "--parallel", "2"}, "hello world\n\n12 12\n").out,
            "==> prompt 1 <==\n" + expected + "\n==> prompt 2 <==\n" + other);
}

TEST_F(Run, PromptsWithACommonBeginningShareIt) {
  const std::string begin(60, 'x');
  const std::vector<json> objects =
      run_json({"--page", "16", "-p", begin + "1", "-p", begin + "2", "-p", begin + "3"});
  ASSERT_EQ(objects.size(), 4u);
  EXPECT_EQ(objects[0]["shared_tokens"], 0);
  EXPECT_EQ(objects[1]["shared_tokens"], objects[1]["prompt_tokens"].get<int>() - 1);
  EXPECT_GT(objects[3]["figures"]["pages_shared"], 0);
  EXPECT_EQ(objects[3]["figures"]["shared_tokens"],
            objects[1]["shared_tokens"].get<int>() + objects[2]["shared_tokens"].get<int>());
}

TEST_F(Run, SeedsGiveRepeatableText) {
  const auto sampled = [&](const char* seed) {
    return place_
        .run({"run", "-m", model_, "-p", "hello", "-n", "20", "--temp", "1.5", "--top-k", "0",
              "--top-p", "1", "--seed", seed})
        .out;
  };
  EXPECT_EQ(sampled("1"), sampled("1"));
  EXPECT_NE(sampled("1"), sampled("2"));
}

TEST_F(Run, SpeculationChangesTheFiguresAndNotTheText) {
  const std::vector<std::string> prompts = {"-p", "12 12 12 12 12 12", "-p", "hello hello hello"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), prompts.begin(), prompts.end());
    return more;
  };
  for (const std::vector<std::string>& sampling :
       {std::vector<std::string>{}, {"--temp", "1.2", "--seed", "3"}}) {
    const std::vector<json> plain = run_json(with(sampling));
    std::vector<std::string> arguments = sampling;
    arguments.insert(arguments.end(), {"--speculate", "6"});
    const std::vector<json> guessed = run_json(with(arguments));
    ASSERT_EQ(guessed.size(), plain.size());
    EXPECT_EQ(guessed[0], plain[0]);
    EXPECT_EQ(guessed[1]["text"], plain[1]["text"]);
    const json& figures = guessed[2]["figures"];
    EXPECT_GT(figures["drafted_tokens"], 0);
    EXPECT_LE(figures["accepted_tokens"], figures["drafted_tokens"]);
    EXPECT_EQ(figures["decode_tokens"].get<int>() + figures["prefill_tokens"].get<int>(),
              plain[2]["figures"]["decode_tokens"].get<int>() +
                  plain[2]["figures"]["prefill_tokens"].get<int>());
    EXPECT_EQ(plain[2]["figures"]["drafted_tokens"], 0);
  }
  EXPECT_NE(run(with({"--speculate", "6"})).err.find("guesses "), std::string::npos);
  EXPECT_EQ(run(with({})).err.find("guesses "), std::string::npos);
}

TEST_F(Run, BestOfPrintsTheLikeliestSample) {
  const std::vector<std::string> sampling = {"--temp", "1.5", "--top-k", "0", "--top-p", "1"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), sampling.begin(), sampling.end());
    return more;
  };
  const std::vector<json> objects =
      run_json(with({"-p", "hello", "-p", "12 12", "--best-of", "4", "--seed", "8"}));
  ASSERT_EQ(objects.size(), 3u);
  for (int prompt = 0; prompt < 2; ++prompt) {
    const json& object = objects[static_cast<std::size_t>(prompt)];
    EXPECT_EQ(object["prompt"], prompt);
    ASSERT_EQ(object["samples"].size(), 4u);
    for (int sample = 0; sample < 4; ++sample) {
      const json& one = object["samples"][static_cast<std::size_t>(sample)];
      EXPECT_EQ(one["sample"], sample);
      EXPECT_EQ(one["seed"], 8 + sample);
      EXPECT_LE(one["mean_log_probability"], object["mean_log_probability"]);
      const json alone = run_json(
          with({"-p", prompt == 0 ? "hello" : "12 12", "--seed", std::to_string(8 + sample)}))[0];
      EXPECT_EQ(one["tokens"], alone["tokens"]);
      EXPECT_EQ(one["text"], alone["text"]);
    }
    EXPECT_EQ(object["text"], object["samples"][object["sample"].get<std::size_t>()]["text"]);
  }
  const Outcome text = run(with({"-p", "hello", "--best-of", "4", "--seed", "8"}));
  EXPECT_EQ(text.out, objects[0]["text"].get<std::string>() + "\n");
  EXPECT_NE(text.err.find("best of 4: seed"), std::string::npos) << text.err;
}

TEST_F(Run, FormatsAndWeightsAreOptions) {
  const std::vector<std::pair<std::string, int>> formats = {
      {"f32", 4 * 16 + 4 * 16}, {"f16", 2 * 16 + 2 * 16}, {"k=bf16,v=f32", 2 * 16 + 4 * 16}};
  for (const auto& [format, bytes] : formats) {
    const std::vector<json> objects = run_json({"-p", "hello", "--kv", format});
    const json& figures = objects.back()["figures"];
    EXPECT_EQ(figures["kv_format"], format);
    EXPECT_EQ(figures["kv_bytes_per_token"], 2 * 2 * bytes);  // layers, heads
  }
  run({"-p", "hello", "--weights", "bf16", "--arithmetic", "fast", "--cap", "1M"});
}

TEST_F(Run, LayersMayHaveFormatsOfTheirOwn) {
  const std::vector<std::string> arguments = {"-p",   "hello",       "--kv",
                                              "bf16", "--kv-layers", "1=f32"};
  const json figures = run_json(arguments).back()["figures"];
  EXPECT_EQ(figures["kv_format"], "bf16 with 1=f32");
  EXPECT_EQ(figures["kv_bytes_per_token"], 2 * 2 * 16 * (2 + 4));
  EXPECT_NE(run(arguments).err.find("384 B per token as bf16 with 1=f32"), std::string::npos);
}

TEST_F(Run, OneFailingPromptLeavesTheOthers) {
  const Outcome outcome = place_.run({"run", "-m", model_, "--temp", "0", "-n", "2", "--page", "16",
                                      "--cap", "8K", "-p", std::string(100, 'x'), "-p", "12"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("prompt 1"), std::string::npos);
  EXPECT_EQ(outcome.out.find("==> prompt 1 <==\n\n==> prompt 2 <==\n"), 0u) << outcome.out;
}

TEST_F(Run, SaysWhenNobodyTakesTheText) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const Outcome outcome = place_.run({"run", "-m", model_, "-p", "hello"}, {}, {}, "/dev/full");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("pagekv: "), std::string::npos) << outcome.err;
}

TEST(Info, DescribesMachineAndModel) {
  const Workplace place;
  const std::string model = place.write("small.gguf", SmallModel().gguf());
  const Outcome text = place.run({"info", "-m", model, "--memory", "1M"});
  EXPECT_EQ(text.exit_code, 0);
  for (const char* word : {"cpu/", "processors", "huge pages", "small.gguf", "f32", "f16", "bf16",
                           "kv8", "kv4", "k8v4"}) {
    EXPECT_NE(text.out.find(word), std::string::npos) << word;
  }
  const Outcome outcome = place.run({"info", "-m", model, "--memory", "1M", "--json"});
  const json object = json::parse(outcome.out);
  EXPECT_EQ(object["model"]["layers"], 2);
  EXPECT_EQ(object["model"]["formats"][2]["format"], "bf16");
  EXPECT_EQ(object["model"]["formats"][2]["bytes_per_token"], 256);
  EXPECT_EQ(object["model"]["formats"][2]["tokens"], 4096);
  // A head of 16: 16 codes of 8 bits, a scale and a bias of 2 bytes.
  EXPECT_EQ(object["model"]["formats"][3]["format"], "kv8");
  EXPECT_EQ(object["model"]["formats"][3]["bytes_per_token"], 2 * 2 * 2 * (16 + 4));
  EXPECT_FALSE(object["targets"].empty());
  // Without a model it still describes the machine.
  const Outcome machine = place.run({"info"}, {}, {"XDG_CACHE_HOME=" + place.path("none")});
  EXPECT_EQ(machine.exit_code, 0);
  EXPECT_NE(machine.out.find("scripts/demo"), std::string::npos);
}

TEST(Help, ExitsWell) {
  const Workplace place;
  EXPECT_EQ(place.run({"--version"}).out, "pagekv " PAGEKV_VERSION_STRING "\n");
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"run", "--help"},
                                                    {"ppl", "--help"},
                                                    {"info", "--help"}}) {
    const Outcome outcome = place.run(arguments);
    EXPECT_EQ(outcome.exit_code, 0);
    EXPECT_FALSE(outcome.out.empty());
  }
  EXPECT_NE(place.run({"--help"}).out.find("Exit codes"), std::string::npos);
}

}  // namespace
}  // namespace pagekv::testing
