// `pagekv run`: text from a model.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampler.h"
#include "tools/model_options.h"
#include "tools/tier_option.h"

namespace pagekv_tool {

struct RunOptions {
  ModelOptions model;
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_files;
  bool lines = false;
  bool chat = false;
  bool json = false;
  std::string session;  // a snapshot to go on from, and to write; empty: none
  std::int64_t max_tokens = 128;
  std::int64_t context_tokens = 0;  // 0: the model's
  int parallel = 16;
  int best_of = 1;                // samples of each prompt
  std::int64_t draft_tokens = 0;  // guessed per pass; 0: none
  pagekv::engine::SamplerOptions sampling{.temperature = 0.7, .top_k = 40, .top_p = 0.95};
  std::string format = "bf16";
  TierOption tier;
  std::optional<std::int64_t> cap_bytes = {};  // empty: chosen from the model
};

// What chats have too: sampling, the longest sequence, speculation, the pages and their format.
void add_generation_options(CLI::App& app, RunOptions& options);

// Adds the subcommand and binds it to `options`, which must outlive the parse.
CLI::App* add_run(CLI::App& app, RunOptions& options);

int run(const RunOptions& options);

}  // namespace pagekv_tool
