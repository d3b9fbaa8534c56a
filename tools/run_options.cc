// The options of `pagekv run`, their limits and their help.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>

#include "pagekv/layout.h"
#include "tools/console.h"
#include "tools/run.h"

namespace pagekv_tool {
namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;
// Unsigned, because CLI11 takes what does not fit an int64_t for the largest one.
constexpr std::uint64_t kMaxCap = std::numeric_limits<std::int64_t>::max();
constexpr int kMaxThreads = 1024;
constexpr int kMaxParallel = 4096;

const CLI::Validator& page_validator() {
  static const CLI::Validator validator(
      [](std::string& text) -> std::string {
        char* end = nullptr;
        const long long tokens = std::strtoll(text.c_str(), &end, 10);
        if (!text.empty() && *end == '\0' && tokens > 0 && tokens % pagekv::kTileTokens == 0) {
          return {};
        }
        return "a page has a positive multiple of 16 tokens, not " + text;
      },
      "TOKENS");
  return validator;
}

void add_text_options(CLI::App& app, RunOptions& options) {
  app.add_option("-p,--prompt", options.prompts,
                 "A prompt; may be given several times, all are answered together")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  app.add_option("-f,--file", options.prompt_files,
                 "A file that is a prompt, or '-' for standard input; may be given several times")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_flag("--lines", options.lines, "Every line of the files that is not empty is a prompt");
  app.add_flag("--chat", options.chat,
               "Prompts are a user's turns, put into the model's chat template; without prompts, "
               "talk on standard input");
  app.add_option("-n,--tokens", options.max_tokens, "Tokens to generate per prompt, at most")
      ->check(CLI::Range(std::int64_t{1}, kMaxTokens))
      ->capture_default_str();
  app.add_option("--temp", options.sampling.temperature, "Temperature; 0 takes the likeliest token")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k, "Sample from the K likeliest tokens; 0: all")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()))
      ->capture_default_str();
  app.add_option("--top-p", options.sampling.top_p,
                 "Sample from the likeliest tokens that together have probability P")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--seed", options.sampling.seed, "Seed; the same seed gives the same text")
      ->capture_default_str();
  app.add_flag("--json", options.json,
               "One JSON object per prompt and line, then one with the figures; nothing streams");
}

void add_cache_options(CLI::App& app, RunOptions& options) {
  app.add_option("-c,--context", options.context_tokens,
                 "Longest sequence in tokens (default: the model's context)")
      ->check(CLI::Range(std::int64_t{1}, kMaxTokens));
  app.add_option("-t,--threads", options.threads, "Threads (default: one per processor)")
      ->check(CLI::Range(1, kMaxThreads));
  app.add_option("--parallel", options.parallel, "Prompts that are computed together, at most")
      ->check(CLI::Range(1, kMaxParallel))
      ->capture_default_str();
  app.add_option("--kv", options.format, "Format of stored keys and values")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str();
  app.add_option("--page", options.page_tokens,
                 "Tokens per page, a multiple of 16 (default: " +
                     std::to_string(pagekv::kDefaultPageTokens) + ")")
      ->check(page_validator());
  app.add_option("--cap", options.cap_bytes,
                 "Bytes for pages, at most: 268435456, 256M, 1G (default: 1 GiB, or more where one "
                 "sequence needs it)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, kMaxCap));
  app.add_option("--weights", options.weights,
                 "How matrices are kept; auto: f32 where the file has f32, else bf16")
      ->check(CLI::IsMember({"auto", "bf16", "f32"}))
      ->capture_default_str();
  app.add_option("--arithmetic", options.arithmetic, "Of attention: exact, or fast with bf16 sums")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->capture_default_str();
}

}  // namespace

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  options.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  CLI::App* run = app.add_subcommand("run", "Generate text from prompts");
  run->add_option("-m,--model", options.model,
                  "A GGUF file, or a llama2.c checkpoint (*.bin). Default: $PAGEKV_MODEL, else "
                  "SmolLM2-135M-Instruct in the user's cache folder")
      ->type_name("FILE");
  run->add_option("--tokenizer", options.tokenizer,
                  "Of a llama2.c checkpoint (default: tok512.bin or tokenizer.bin beside it)")
      ->type_name("FILE");
  add_text_options(*run, options);
  add_cache_options(*run, options);
  run->footer(
      "Text goes to standard output, everything else to standard error. A single answer streams "
      "alone; of several, each follows a line '==> prompt N <=='.\n"
      "Prefill tokens/s counts passes that compute any prompt row, decode tokens/s all others.");
  return run;
}

}  // namespace pagekv_tool
