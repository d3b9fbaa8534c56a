// `pagekv replay`: counts that a few lines of LRU over lists give too, outputs, and bad traces.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/engine/test_data.h"
#include "tests/support/files.h"
#include "tests/tools/command.h"

namespace pagekv::testing {
namespace {

using nlohmann::json;
using Ids = std::vector<int>;

// Conversations that go on, in any order, over prompts that begin alike.
std::vector<Ids> chained_requests(unsigned seed, int count) {
  std::mt19937 random(seed);
  std::vector<Ids> requests;
  int next = 0;
  for (int at = 0; at < count; ++at) {
    Ids ids;
    if (!requests.empty() && random() % 5 != 0) {
      ids = requests[random() % requests.size()];
      ids.resize(1 + random() % ids.size());
    }
    for (unsigned more = 1 + random() % 6; more > 0; --more) ids.push_back(next++);
    requests.push_back(std::move(ids));
  }
  return requests;
}

std::string trace_of(const std::vector<Ids>& requests, int block) {
  std::string text;
  for (std::size_t at = 0; at < requests.size(); ++at) {
    const auto tokens = static_cast<int>(requests[at].size()) * block - static_cast<int>(at % 5);
    text +=
        json{{"timestamp", 10 * at}, {"input_length", tokens}, {"hash_ids", requests[at]}}.dump() +
        "\n";
  }
  return text;
}

// Blocks found by a cache of single blocks that forgets the least recently used one; the end of a
// request counts as used before its beginning.
std::int64_t count_hits(const std::vector<Ids>& requests, std::size_t capacity) {
  std::list<int> order;  // most recently used first
  std::map<int, std::list<int>::iterator> stored;
  std::int64_t hits = 0;
  for (const Ids& ids : requests) {
    std::size_t run = 0;
    while (run < ids.size() && stored.contains(ids[run])) ++run;
    hits += static_cast<std::int64_t>(run);
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
      if (const auto at = stored.find(*id); at != stored.end()) order.erase(at->second);
      order.push_front(*id);
      stored[*id] = order.begin();
      if (stored.size() > capacity) {
        stored.erase(order.back());
        order.pop_back();
      }
    }
  }
  return hits;
}

json replay(const Workplace& place, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "replay");
  arguments.insert(arguments.end(), {"-o", "json"});
  const Outcome outcome = place.run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return json::parse(outcome.out, nullptr, false);
}

TEST(Replay, FindsWhatAListOfBlocksFinds) {
  const Workplace place;
  for (const unsigned seed : {1u, 2u, 3u}) {
    const std::vector<Ids> requests = chained_requests(seed, 400);
    std::size_t longest = 0;
    for (const Ids& ids : requests) longest = std::max(longest, ids.size());
    const std::string file = place.write("trace.jsonl", trace_of(requests, 64));
    const std::vector<std::size_t> capacities = {longest, longest + 20, 200, 500, 5000};
    std::string list;
    for (const std::size_t capacity : capacities) list += std::to_string(capacity) + ",";
    const json rows = replay(place, {file, "--block", "64", "--capacity", list + "unlimited"});
    ASSERT_EQ(rows.size(), capacities.size() + 1);
    for (std::size_t at = 0; at < capacities.size(); ++at) {
      const json& row = rows[at];
      EXPECT_EQ(row["hit_blocks"], count_hits(requests, capacities[at])) << row;
      EXPECT_NEAR(row["hit_rate"].get<double>(),
                  row["hit_blocks"].get<double>() / row["blocks"].get<double>(), 1e-12);
      EXPECT_EQ(row["inserted"].get<int>() - row["evicted"].get<int>(),
                std::min<int>(row["inserted"].get<int>(), static_cast<int>(capacities[at])));
      EXPECT_LE(row["peak"].get<std::size_t>(), capacities[at]);
    }
    EXPECT_TRUE(rows.back()["capacity"].is_null());
    EXPECT_EQ(rows.back()["evicted"], 0);
  }
}

TEST(Replay, ALongRequestKeepsItsBeginning) {
  const Workplace place;
  const std::vector<Ids> requests = {{0, 1, 2, 3, 4, 5}, {0, 1, 2, 3, 4, 6}, {7}, {0, 1, 2}};
  const std::string file = place.write("trace.jsonl", trace_of(requests, 64));
  const json row = replay(place, {file, "--block", "64", "--capacity", "4"})[0];
  EXPECT_EQ(row["hit_blocks"], count_hits(requests, 4));
  EXPECT_EQ(row["cut_requests"], 2);
}

TEST(Replay, TokensOfTheLastBlockCountAsTheyAre) {
  const Workplace place;
  const std::string line = R"({"hash_ids": [1, 2], "input_length": 100, "output_length": 5})";
  const json row =
      replay(place, {place.write("t", line + "\n" + line + "\n\n"), "--block", "64"})[0];
  EXPECT_EQ(row["hit_blocks"], 2);
  EXPECT_EQ(row["hit_tokens"], 100);
  EXPECT_EQ(row["hit_rate"], 0.5);
  EXPECT_EQ(row["block_bytes"], 64 * 32 * 8 * 128 * 2 * 2);
}

TEST(Replay, RequestsInWorkKeepTheirPages) {
  const Workplace place;
  const std::vector<Ids> requests = chained_requests(9, 200);
  const std::string file = place.write("trace.jsonl", trace_of(requests, 16));
  const json rows = replay(place, {file, "--block", "16", "--capacity", "60", "--concurrency", "8",
                                   "--policy", "lru,slru", "--kv", "kv4", "--shape", "2x1x64"});
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    EXPECT_LE(row["peak"], 60);
    EXPECT_GT(row["shared"], 0);
    EXPECT_GT(row["hit_blocks"], 0);
    EXPECT_EQ(row["concurrency"], 8);
  }
}

// All that was ever stored is found again; memory alone finds what it did without a tier.
TEST(Replay, ATierFindsWhatMemoryGaveUp) {
  const Workplace place;
  const std::vector<Ids> requests = chained_requests(12, 300);
  const std::string file = place.write("trace.jsonl", trace_of(requests, 64));
  const std::vector<std::string> arguments = {file,
                                              "--block",
                                              "64",
                                              "--capacity",
                                              "40,100",
                                              "--tier",
                                              "dir:" + place.path("t"),
                                              "--plot",
                                              place.path("plot.svg")};
  const json rows = replay(place, arguments);
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    const std::int64_t all = count_hits(requests, 100000);
    const std::int64_t in_memory = count_hits(requests, row["capacity"].get<std::size_t>());
    EXPECT_EQ(row["hit_blocks"], all);
    EXPECT_EQ(row["up_blocks"], all - in_memory);
    EXPECT_GT(row["down_blocks"], 0);
    EXPECT_EQ(row["up_bytes"],
              row["up_blocks"].get<std::int64_t>() * row["block_bytes"].get<std::int64_t>());
  }
  EXPECT_NE(read_file(place.path("plot.svg")).find("lru, of them in memory"), std::string::npos);

  std::vector<std::string> again = {"replay"};
  again.insert(again.end(), arguments.begin(), arguments.end());
  const Outcome outcome = place.run(again);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_NE(outcome.err.find("a replay begins with nothing"), std::string::npos) << outcome.err;
}

// A tier that cannot hold all gives up what was used longest ago, and never too much is found.
TEST(Replay, ASmallTierFindsLess) {
  const Workplace place;
  const std::vector<Ids> requests = chained_requests(13, 300);
  const std::string file = place.write("trace.jsonl", trace_of(requests, 64));
  const json row = replay(place, {file, "--block", "64", "--capacity", "40", "--tier",
                                  "dir:" + place.path("t") + ":60K"})[0];
  EXPECT_LT(row["hit_blocks"], count_hits(requests, 100000));
  EXPECT_GE(row["hit_blocks"], count_hits(requests, 40));
}

TEST(Replay, OutputsAndThePlot) {
  const Workplace place;
  const std::string file = place.write("trace.jsonl", trace_of(chained_requests(4, 50), 512));
  const auto output = [&](const char* kind) {
    const Outcome outcome = place.run(
        {"replay", file, "--capacity", "40,80", "-o", kind, "--plot", place.path("plot.svg")});
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_EQ(std::ranges::count(output("md"), '\n'), 4);
  EXPECT_EQ(std::ranges::count(output("jsonl"), '\n'), 2);
  EXPECT_TRUE(output("csv").starts_with("capacity,policy,"));
  const std::string svg = read_file(place.path("plot.svg"));
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_NE(svg.find(">Hit rate<"), std::string::npos);
  EXPECT_NE(svg.find(">Use over time<"), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  const Outcome nowhere = place.run({"replay", file, "--plot", "/no/such/folder/plot.svg"});
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_NE(nowhere.err.find("cannot write /no/such/folder/plot.svg"), std::string::npos);
}

TEST(Replay, BadTracesAreRefusedByTheirLine) {
  const Workplace place;
  const std::string good = R"({"hash_ids": [1, 2], "input_length": 1000})"
                           "\n";
  const auto refused = [&](const std::string& text, const std::string& why) {
    const Outcome outcome = place.run({"replay", place.write("bad.jsonl", text)});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_EQ(outcome.out, "");
    EXPECT_NE(outcome.err.find(why), std::string::npos) << outcome.err;
  };
  refused("", "bad.jsonl has no requests");
  refused(good + "{\"hash_ids\": [1\n", "line 2: not a JSON object");
  refused(good + "[1, 2]\n", "line 2: not a JSON object");
  refused(good + "{}\n", "line 2: a request has either \"hash_ids\" or a \"prompt\"");
  refused(good + "{\"prompt\": \"a\"}\n", "cannot stand in one trace");
  refused(R"({"hash_ids": [1, 2], "input_length": 100})",
          "100 tokens are 1 blocks of 512, but there are 2 hash_ids; --block says");
  refused(R"({"hash_ids": [1.5], "input_length": 100})", "no list of block ids");
  refused(R"({"hash_ids": "1", "input_length": 100})", "no list of block ids");
  refused(R"({"hash_ids": [1], "input_length": -1})", "\"input_length\" is no number of tokens");
  refused(R"({"hash_ids": [1]})", "\"input_length\" is no number of tokens");
  refused(R"({"hash_ids": [1], "input_length": 1e300})", "\"input_length\" is no number of tokens");
  refused(R"({"hash_ids": [1], "input_length": 5, "timestamp": "now"})", "\"timestamp\"");
  refused(R"({"hash_ids": [1], "input_length": 5, "timestamp": -5})", "\"timestamp\"");
  EXPECT_EQ(place.run({"replay", place.path("absent")}).exit_code, 1);
}

TEST(Replay, BadOptionsAreRefused) {
  const Workplace place;
  const std::string file = place.write("t", R"({"hash_ids": [1], "input_length": 5})");
  for (const std::vector<std::string>& options : {std::vector<std::string>{"--capacity", "0"},
                                                  {"--capacity", "1,,2"},
                                                  {"--capacity", "many"},
                                                  {"--policy", "fifo"},
                                                  {"--concurrency", "0"},
                                                  {"--block", "0"},
                                                  {"--kv", "kv9"},
                                                  {"--shape", "32x8"},
                                                  {"--shape", "32x8x12"},
                                                  {"-o", "xml"}}) {
    std::vector<std::string> arguments = {"replay", file};
    arguments.insert(arguments.end(), options.begin(), options.end());
    EXPECT_EQ(place.run(arguments).exit_code, 2) << options.front() << " " << options.back();
  }
  EXPECT_EQ(place.run({"replay"}).exit_code, 2);
}

TEST(Replay, PromptsAreReadByAModelsTokenizer) {
  const std::string folder = (data_folder() / "stories260K").string();
  if (!std::filesystem::exists(folder + "/stories260K.bin")) {
    GTEST_SKIP() << "no model in " << folder << "; set PAGEKV_DATA";
  }
  const Workplace place;
  std::string text;
  const std::string begin = "Once upon a time there was a little girl who lived in a big house. ";
  for (const char* end : {"She had a cat.", "She had a dog.", "She had a dog."}) {
    text += json{{"prompt", begin + end}}.dump() + "\n";
  }
  const json row = replay(place, {place.write("prompts.jsonl", text), "--block", "16", "-m",
                                  folder + "/stories260K.bin"})[0];
  EXPECT_EQ(row["requests"], 3);
  EXPECT_GT(row["hit_tokens"], row["tokens"].get<int>() / 3) << "found token by token";
  EXPECT_LT(row["hit_tokens"], row["tokens"]);
}

struct Known {
  const char* file;
  const char* block;
  const char* capacity;
  double hit_rate;
};

class ReplayTraces : public ::testing::TestWithParam<Known> {};

TEST_P(ReplayTraces, GiveTheirKnownRates) {
  const std::string file = (data_folder() / GetParam().file).string();
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file << "; set PAGEKV_DATA";
  const Workplace place;
  const json row =
      replay(place, {file, "--block", GetParam().block, "--capacity", GetParam().capacity})[0];
  EXPECT_NEAR(row["hit_rate"].get<double>(), GetParam().hit_rate, 5e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Public, ReplayTraces,
    ::testing::Values(Known{"mooncake/conversation_trace.jsonl", "512", "unlimited", 0.3664},
                      Known{"mooncake/conversation_trace.jsonl", "512", "50000", 0.3546},
                      Known{"mooncake/conversation_trace.jsonl", "512", "20000", 0.2878},
                      Known{"mooncake/conversation_trace.jsonl", "512", "5000", 0.1118},
                      Known{"mooncake/conversation_trace.jsonl", "512", "1000", 0.0445},
                      Known{"agent-traces/miniswe.jsonl", "16", "unlimited", 0.9345},
                      Known{"agent-traces/magagent.jsonl", "16", "unlimited", 0.8382}));

// The same traces at other capacities, counted here.
class ReplayCounts : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(ReplayCounts, AreThoseOfAListOfBlocks) {
  const auto& [name, block] = GetParam();
  const std::string file = (data_folder() / name).string();
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no " << file << "; set PAGEKV_DATA";
  std::vector<Ids> requests;
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    requests.push_back(json::parse(line)["hash_ids"].get<Ids>());
  }
  const Workplace place;
  const json rows = replay(place, {file, "--block", block, "--capacity", "100,1500,4000,10000"});
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    EXPECT_EQ(row["hit_blocks"], count_hits(requests, row["capacity"].get<std::size_t>()))
        << row["capacity"];
  }
}

INSTANTIATE_TEST_SUITE_P(Public, ReplayCounts,
                         ::testing::Values(std::pair("mooncake/conversation_trace.jsonl", "512"),
                                           std::pair("agent-traces/miniswe.jsonl", "16"),
                                           std::pair("agent-traces/magagent.jsonl", "16")));

}  // namespace
}  // namespace pagekv::testing
