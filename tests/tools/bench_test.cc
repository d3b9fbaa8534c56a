// `pagekv bench`: its cases, its outputs. What it measures is the machine's.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/engine/small_model.h"
#include "tests/tools/command.h"

namespace pagekv::testing {
namespace {

using nlohmann::json;

std::string bench(const Workplace& place, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"bench", "-r", "2", "-t", "1"});
  const Outcome outcome = place.run(arguments);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  return outcome.out;
}

std::vector<std::string> attention(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"--attn", "--set", "1M", "--heads", "4/2"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST(Bench, EveryCombinationIsACase) {
  const Workplace place;
  const json rows = json::parse(
      bench(place, attention({"--ctx", "64-256", "--dim", "64,80", "--kv", "bf16,kv4", "--page",
                              "16", "--arithmetic", "fast,exact", "-o", "json"})));
  ASSERT_EQ(rows.size(), 3u * 2u * 2u * 2u);
  std::vector<std::string> seen;
  for (const json& row : rows) {
    seen.push_back(row["ctx"].dump() + row["dim"].dump() + row["kv"].dump() +
                   row["arithmetic"].dump());
    for (const char* field :
         {"ms", "ms_min", "ms_max", "gbps", "probe_gbps", "scattered_gbps", "share", "cycles"}) {
      EXPECT_GT(row[field].get<double>(), 0.0) << field;
    }
    EXPECT_LE(row["ms_min"], row["ms"]);
    EXPECT_LE(row["ms"], row["ms_max"]);
    EXPECT_EQ(row["threads"], 1);
    EXPECT_EQ(row["page"], 16);
    EXPECT_EQ(row["heads"], "4/2");
    EXPECT_GE(row["layers"].get<double>() * row["bits"].get<double>() / 8 *
                  row["ctx"].get<double>() * row["dim"].get<double>() * 2 * 2,
              1 << 20)
        << "the set";
    EXPECT_LE(row["error"].get<double>(), row["arithmetic"] == "fast" ? 3e-3 : 1e-5);
  }
  std::ranges::sort(seen);
  EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
}

TEST(Bench, SharedTokensAreReadWithACascadeAndWithout) {
  const Workplace place;
  const json rows = json::parse(bench(
      place, attention({"--ctx", "600", "--batch", "3", "--shared", "520,1k", "-o", "json"})));
  ASSERT_EQ(rows.size(), 2u * 2u);
  for (const json& row : rows) {
    EXPECT_EQ(row["batch"], 3);
    EXPECT_LE(row["error"].get<double>(), 3e-3);
  }
  EXPECT_EQ(rows[0]["shared"], 520);
  EXPECT_EQ(rows[0]["cascade"], true);
  EXPECT_EQ(rows[1]["cascade"], false);
  EXPECT_EQ(rows[2]["shared"], 600) << "all there are";
  const std::string table = bench(place, attention({"--ctx", "64", "--shared", "16"}));
  EXPECT_NE(table.find("| shared | cascade |"), std::string::npos) << table;
}

TEST(Bench, WarmHasOneLayer) {
  const Workplace place;
  const json rows =
      json::parse(bench(place, attention({"--ctx", "64", "--warm", "--queries", "1,40", "--batch",
                                          "1,3", "--query-type", "bf16", "-o", "json"})));
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    EXPECT_EQ(row["layers"], 1);
    EXPECT_EQ(row["cold"], false);
  }
}

TEST(Bench, OutputsSayTheSame) {
  const Workplace place;
  const std::vector<std::string> base = {"--ctx", "64", "--kv", "k=affine:4:32,v=bf16,kv8", "-o"};
  const auto output = [&](const char* kind) {
    std::vector<std::string> arguments = attention(base);
    arguments.emplace_back(kind);
    return bench(place, arguments);
  };
  const std::string lines = output("jsonl");
  EXPECT_EQ(std::ranges::count(lines, '\n'), 2);
  EXPECT_EQ(json::parse(lines.substr(0, lines.find('\n')))["kv"], "k=affine:4:32,v=bf16");
  const std::string table = output("md");
  EXPECT_EQ(std::ranges::count(table, '\n'), 4);
  EXPECT_TRUE(table.starts_with("| kv | bits |")) << table;
  const std::string csv = output("csv");
  EXPECT_EQ(std::ranges::count(csv, '\n'), 3);
  EXPECT_NE(csv.find("\n\"k=affine:4:32,v=bf16\","), std::string::npos) << csv;
}

TEST(Bench, AModelIsRunAtEveryDepth) {
  const Workplace place;
  const std::string model = place.write("small.gguf", SmallModel().gguf());
  const json rows = json::parse(bench(place, {"-m", model, "-p", "20,40", "-n", "3", "-d", "0,50",
                                              "--kv", "bf16,kv8", "-o", "json"}));
  ASSERT_EQ(rows.size(), 2u * 3u * 2u);
  EXPECT_EQ(rows[0]["test"], "pp20");
  EXPECT_EQ(rows[2]["test"], "tg3");
  EXPECT_EQ(rows[3]["test"], "pp20 @ d50");
  for (const json& row : rows) EXPECT_GT(row["tokens_per_second"].get<double>(), 0.0);
}

}  // namespace
}  // namespace pagekv::testing
