// What the subcommands that compute with a model have in common: their options, and the steps from
// there to a model and its stores.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "pagekv/attend.h"
#include "pagekv/error.h"
#include "pagekv/executor.h"

namespace pagekv_tool {

struct ModelOptions {
  std::string model;
  std::string tokenizer;
  int threads = 1;
  std::int64_t page_tokens = 0;  // 0: the default
  std::string layer_formats;
  std::string weights = "auto";
  std::string arithmetic = "exact";
};

// The largest number of tokens an option takes.
inline constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;

// The default of -t.
int all_processors();

// All bind to `options`, which must outlive the parse. The first adds what a tokenizer needs, the
// second a model alone, the third threads too.
void add_tokenizer_source(CLI::App& app, ModelOptions& options);
void add_model_source(CLI::App& app, ModelOptions& options);
void add_model_options(CLI::App& app, ModelOptions& options);
void add_cache_options(CLI::App& app, ModelOptions& options);

// What a format may be, for --help.
inline constexpr const char* kFormatHelp =
    "f32, f16, bf16; kv2 to kv8; k8v4 and the like; or a codec for each side, such as "
    "k=affine:8:64,v=codebook:3:rot.";

// Refuses what Format::parse() does not read, with its message.
const CLI::Validator& format_validator();

// How a cache is named in figures: its format as the user wrote it, and what --kv-layers says.
std::string format_label(const std::string& format, const std::string& layer_formats);

// Whether the formats and --kv-layers suit the model's layers, before any weight is read. Returns
// kExitOk, or reports why not and returns the exit code.
int check_formats(const ModelOptions& options, const std::vector<std::string>& formats);

// Of "fast" or "exact".
pagekv::Arithmetic arithmetic_of(std::string_view name);

// Loads the model, with progress on stderr.
pagekv::Result<pagekv::engine::OpenModel> load_model(
    const ModelOptions& options, const std::shared_ptr<pagekv::Executor>& executor);

// Of a store with this format. Errors: those of Format::parse().
pagekv::Result<pagekv::engine::StoreSettings> store_settings(const ModelOptions& options,
                                                             const std::string& format,
                                                             std::int64_t context_tokens);

}  // namespace pagekv_tool
