// `pagekv bench`: how fast attention, or a whole model, runs on this machine.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/model_options.h"

namespace pagekv_tool {

struct BenchHeads {
  int query = 32;  // a multiple of
  int kv = 8;
};

struct BenchOptions {
  bool attention = false;
  std::vector<std::string> formats = {"bf16"};  // as the user wrote them, with commas
  std::vector<int> threads;                     // empty: all processors
  std::vector<std::string> arithmetics = {"fast"};
  int repetitions = 5;
  std::string output = "md";

  // --attn
  std::vector<BenchHeads> heads = {{}};
  std::vector<int> dims = {128};
  std::vector<std::int64_t> contexts = {8192};
  std::vector<std::int64_t> pages = {pagekv::kDefaultPageTokens};
  std::vector<std::int64_t> batches = {1};
  std::vector<std::int64_t> queries = {1};
  std::vector<std::int64_t> shared = {0};
  std::string query_type = "f32";
  std::string target;  // empty: the best
  bool warm = false;
  std::uint64_t set_bytes = std::uint64_t{512} << 20;  // larger than any cache

  // a model
  ModelOptions model;
  std::vector<std::int64_t> prompts = {512};
  std::vector<std::int64_t> generated = {128};
  std::vector<std::int64_t> depths = {0};
};

CLI::App* add_bench(CLI::App& app, BenchOptions& options);
int bench(const BenchOptions& options);

// "1,2,8k": numbers, k for 1024; "1k-8k" doubles from the first to the last, "16-64+16" adds,
// "1-81*3" multiplies. Throws CLI::ValidationError with what is wrong.
std::vector<std::int64_t> parse_numbers(const std::string& text);

}  // namespace pagekv_tool
