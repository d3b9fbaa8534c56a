// `pagekv replay`: what a cache of some size would have found of a serving trace.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "tools/model_options.h"
#include "tools/tier_option.h"

namespace pagekv_tool {

inline constexpr std::int64_t kUnlimited = 0;  // as a capacity

struct ReplayShape {
  int layers = 32;
  int kv_heads = 8;
  int dim = 128;
};

struct ReplayOptions {
  std::string file;
  std::int64_t block_tokens = 512;
  std::vector<std::int64_t> capacities = {kUnlimited};  // in blocks
  std::vector<std::string> policies = {"lru"};
  int concurrency = 1;
  std::string format = "bf16";
  ReplayShape shape;
  TierOption tier;     // one for each case, below this folder
  ModelOptions model;  // for its tokenizer
  std::string plot;    // empty: none
  std::string output = "md";
};

CLI::App* add_replay(CLI::App& app, ReplayOptions& options);
int replay(const ReplayOptions& options);

}  // namespace pagekv_tool
