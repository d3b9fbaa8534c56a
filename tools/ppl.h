// `pagekv ppl`: what storing the cache in a format costs, measured on a text.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/model_options.h"

namespace pagekv_tool {

struct PplOptions {
  ModelOptions model;
  std::string file;
  std::int64_t context_tokens = 0;  // 0: kDefaultPplContext, or the model's where that is less
  std::int64_t chunks = 0;          // 0: all
  std::optional<std::int64_t> first_scored = {};  // empty: half the context
  std::vector<std::string> formats = {"bf16"};    // lists, as --kv takes them
  std::string reference = "f32";
  std::string output = "text";
};

inline constexpr std::int64_t kDefaultPplContext = 512;

// Adds the subcommand and binds it to `options`, which must outlive the parse.
CLI::App* add_ppl(CLI::App& app, PplOptions& options);

int ppl(const PplOptions& options);

}  // namespace pagekv_tool
