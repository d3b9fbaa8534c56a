// `pagekv ppl`: its outputs, and what its numbers do not depend on.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/engine/small_model.h"
#include "tests/engine/test_data.h"
#include "tests/tools/command.h"

namespace pagekv::testing {
namespace {

using nlohmann::json;

const std::vector<std::string> kFields = {"kv",      "bits",        "ppl",       "ppl_err",
                                          "mean_kl", "mean_kl_err", "median_kl", "p999_kl",
                                          "max_kl",  "same_top",    "rms_dp",    "scored"};

class Ppl : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = place_.write("small.gguf", SmallModel().gguf());
    std::string text;
    for (int i = 0; i < 60; ++i) text += "hello world " + std::to_string(i * i) + ", said he. ";
    text_ = place_.write("text.txt", text);
  }

  Outcome ppl(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"ppl", "-m", model_, "-f", text_, "-c", "64"});
    const Outcome outcome = place_.run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome;
  }
  json ppl_json(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"-o", "json"});
    return json::parse(ppl(arguments).out);
  }

  Workplace place_;
  std::string model_;
  std::string text_;
};

TEST_F(Ppl, JsonHasARowForTheReferenceAndEveryFormat) {
  const json rows = ppl_json({"--kv", "bf16,f16", "--kv", "f32"});
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    ASSERT_EQ(row.size(), kFields.size());
    for (const std::string& field : kFields) EXPECT_TRUE(row.contains(field)) << field;
    EXPECT_EQ(row["scored"].get<int>() % (64 - 1 - 32), 0);
    EXPECT_EQ(row["scored"], rows[0]["scored"]);
    EXPECT_GT(row["ppl"].get<double>(), 1.0);
    EXPECT_GT(row["ppl_err"].get<double>(), 0.0);
  }
  const std::vector<std::pair<std::string, double>> expected = {
      {"f32", 32}, {"bf16", 16}, {"f16", 16}, {"f32", 32}};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i]["kv"], expected[i].first);
    EXPECT_EQ(rows[i]["bits"], expected[i].second);
  }
  for (const std::size_t exact : {0u, 3u}) {  // the reference, and its like in a store of its own
    for (const char* field : {"mean_kl", "mean_kl_err", "median_kl", "p999_kl", "max_kl", "rms_dp"})
      EXPECT_EQ(rows[exact][field], 0.0) << field;
    EXPECT_EQ(rows[exact]["same_top"], 1.0);
    EXPECT_EQ(rows[exact]["ppl"], rows[0]["ppl"]);
  }
  for (const std::size_t coarse : {1u, 2u}) {
    const json& row = rows[coarse];
    EXPECT_GT(row["mean_kl"], 0.0);
    EXPECT_GT(row["mean_kl_err"], 0.0);
    EXPECT_GE(row["p999_kl"], row["median_kl"]);
    EXPECT_GE(row["max_kl"], row["p999_kl"]);
    EXPECT_GT(row["rms_dp"], 0.0);
    EXPECT_GT(row["same_top"], 0.9);
  }
  EXPECT_GT(rows[1]["mean_kl"], rows[2]["mean_kl"]);  // bf16 has three bits fewer
}

TEST_F(Ppl, NumbersDoNotDependOnThreadsPagesOrCompany) {
  const json expected = ppl_json({"--kv", "bf16,f16", "-t", "1"});
  EXPECT_EQ(ppl_json({"--kv", "bf16,f16", "-t", "3", "--page", "16"}), expected);
  const json alone = ppl_json({"--kv", "f16"});
  EXPECT_EQ(alone[0], expected[0]);
  EXPECT_EQ(alone[1], expected[2]);
}

TEST_F(Ppl, ChunksReferenceAndStandardInputAreOptions) {
  const json two = ppl_json({"--chunks", "2"});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1]["kv"], "bf16");  // the default
  EXPECT_EQ(two[1]["scored"], 2 * 31);
  EXPECT_EQ(ppl_json({"--chunks", "2", "--first", "60"})[1]["scored"], 2 * 3);
  const json other = ppl_json({"--reference", "bf16", "--kv", "f32,bf16"});
  EXPECT_EQ(other[0]["kv"], "bf16");
  EXPECT_GT(other[1]["mean_kl"], 0.0);
  EXPECT_EQ(other[2]["mean_kl"], 0.0);
  const Outcome piped =
      place_.run({"ppl", "-m", model_, "-f", "-", "-c", "64", "-o", "json"}, std::string(200, 'x'));
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(json::parse(piped.out)[0]["scored"], 3 * 31);
}

TEST_F(Ppl, TheCommaOfBothSidesSeparatesNothing) {
  const json rows = ppl_json({"--kv", "k=f16,v=f32,bf16,v=bf16,k=f32,k=bf16,v=bf16"});
  ASSERT_EQ(rows.size(), 5u);
  const std::vector<std::pair<std::string, double>> expected = {
      {"k=f16,v=f32", 24}, {"bf16", 16}, {"v=bf16,k=f32", 24}, {"k=bf16,v=bf16", 16}};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(rows[i + 1]["kv"], expected[i].first);
    EXPECT_EQ(rows[i + 1]["bits"], expected[i].second);
  }
  json same = rows[4];
  same["kv"] = "bf16";
  EXPECT_EQ(same, rows[2]);
}

TEST_F(Ppl, LayersHaveOtherFormatsButNotOfTheReference) {
  const json rows = ppl_json({"--kv", "bf16", "--kv-layers", "1=f32"});
  EXPECT_EQ(rows[0]["kv"], "f32");
  EXPECT_EQ(rows[0]["bits"], 32.0);
  EXPECT_EQ(rows[1]["kv"], "bf16 with 1=f32");
  EXPECT_EQ(rows[1]["bits"], 24.0);
  const json all = ppl_json({"--kv", "bf16", "--kv-layers", "0-1=f32"});
  EXPECT_EQ(all[1]["mean_kl"], 0.0);
  const json reference = ppl_json({"--reference", "bf16", "--kv-layers", "1=f32"});
  EXPECT_EQ(reference[0]["kv"], "bf16");
  EXPECT_EQ(reference[0]["bits"], 16.0);
}

TEST_F(Ppl, OutputsSayTheSame) {
  const std::vector<std::string> formats = {"--kv", "bf16,k=f16,v=f32"};
  const auto with = [&](const char* output) {
    std::vector<std::string> arguments = formats;
    arguments.insert(arguments.end(), {"-o", output});
    return ppl(arguments);
  };
  const json rows = ppl_json(formats);
  std::istringstream csv(with("csv").out);
  std::string line;
  ASSERT_TRUE(std::getline(csv, line));
  std::string names;
  for (const std::string& field : kFields) names += (names.empty() ? "" : ",") + field;
  EXPECT_EQ(line, names);
  for (const json& row : rows) {
    ASSERT_TRUE(std::getline(csv, line));
    std::string values;
    for (const std::string& field : kFields) {
      values += (values.empty() ? "" : ",") + row[field].dump();
    }
    EXPECT_EQ(line, values);
  }
  EXPECT_FALSE(std::getline(csv, line));

  std::istringstream table(with("md").out);
  std::vector<std::string> lines;
  while (std::getline(table, line)) lines.push_back(line);
  ASSERT_EQ(lines.size(), 2 + rows.size());
  for (const std::string& row : lines) {
    EXPECT_EQ(std::count(row.begin(), row.end(), '|'),
              std::count(lines[0].begin(), lines[0].end(), '|'));
  }
  EXPECT_TRUE(lines[4].starts_with("| k=f16,v=f32 | 24 | ")) << lines[4];

  const Outcome text = ppl(formats);
  for (const char* word : {"PPL(base)", "PPL(Q)", "ln(PPL(Q)/PPL(base))", "Mean    KLD",
                           "Maximum KLD", "99.9%   KLD", "99.0%   KLD", "Median  KLD", "Mean    Δp",
                           "RMS     Δp", "Same top p", "k=f16,v=f32, 24 bits per element"}) {
    EXPECT_NE(text.out.find(word), std::string::npos) << word;
  }
  EXPECT_NE(text.err.find("tokens/s"), std::string::npos) << text.err;
  EXPECT_EQ(text.err.find('\r'), std::string::npos);  // no progress into a file
}

// Heads of 8 elements, and a text that begins with a token of its own.
TEST(PplOfStories, MeasuresACheckpoint) {
  const std::filesystem::path folder = data_folder() / "stories260K";
  if (!std::filesystem::exists(folder / "stories260K.bin")) {
    GTEST_SKIP() << "no model in " << folder << "; set PAGEKV_DATA";
  }
  const Workplace place;
  const Outcome outcome = place.run({"ppl", "-m", (folder / "stories260K.bin").string(), "-f",
                                     (folder / "greedy-512.txt").string(), "-c", "128", "--kv",
                                     "bf16,f16,f32", "-o", "json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json rows = json::parse(outcome.out);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["scored"].get<int>() % 63, 0);
  EXPECT_LT(rows[0]["ppl"], 3.0);  // the model's own greedy text
  EXPECT_EQ(rows[1]["bits"], 16.0);
  EXPECT_EQ(rows[3]["bits"], 32.0);
  EXPECT_EQ(rows[3]["max_kl"], 0.0);
  EXPECT_LT(rows[2]["mean_kl"], rows[1]["mean_kl"]);
  EXPECT_LT(rows[1]["mean_kl"], 1e-2);
}

}  // namespace
}  // namespace pagekv::testing
