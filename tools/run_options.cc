// The options of `pagekv run`, their limits and their help.
#include <CLI/CLI.hpp>
#include <limits>
#include <string>

#include "tools/model_options.h"
#include "tools/run.h"

namespace pagekv_tool {
namespace {

// Unsigned, because CLI11 takes what does not fit an int64_t for the largest one.
constexpr std::uint64_t kMaxCap = std::numeric_limits<std::int64_t>::max();
constexpr int kMaxParallel = 4096;
constexpr int kMaxSamples = 256;
constexpr std::int64_t kMaxDraftTokens = 256;

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
               "Prompts are a user's questions, put into the model's chat template");
  app.add_option("--best-of", options.best_of,
                 "Samples of each prompt, which is computed once; their seeds are SEED, SEED + 1, "
                 "... Prints the one whose tokens the model finds likeliest on average, when all "
                 "have ended")
      ->check(CLI::Range(1, kMaxSamples))
      ->capture_default_str();
  app.add_option(
         "--session", options.session,
         "Go on from this snapshot where it exists, and write it when the answer has ended; "
         "with the same options the text goes on as if the command had never stopped. Takes one "
         "prompt, or none to go on as it is")
      ->type_name("FILE");
  app.add_option("--parallel", options.parallel, "Prompts that are computed together, at most")
      ->check(CLI::Range(1, kMaxParallel))
      ->capture_default_str();
  app.add_flag("--json", options.json,
               "One JSON object per prompt and line, then one with the figures; nothing streams");
}

}  // namespace

void add_generation_options(CLI::App& app, RunOptions& options) {
  app.add_option("-n,--tokens", options.max_tokens, "Tokens to generate per answer, at most")
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
  app.add_option("-c,--context", options.context_tokens,
                 "Longest sequence in tokens (default: the model's context)")
      ->check(CLI::Range(std::int64_t{1}, kMaxTokens));
  app.add_option("--speculate", options.draft_tokens,
                 "Tokens to guess, at most, wherever the last few have occurred before, and to "
                 "check in one pass: faster where text repeats itself, and the same text; 0: none")
      ->check(CLI::Range(std::int64_t{0}, kMaxDraftTokens))
      ->capture_default_str();
  app.add_option("--cap", options.cap_bytes,
                 "Bytes for pages, at most: 268435456, 256M, 1G (default: 1 GiB, or more where one "
                 "sequence needs it)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1}, kMaxCap));
  add_tier_option(
      app, options.tier,
      "Keep pages in a folder, too, at most SIZE (default: 16G) of them: what is computed once "
      "is found by later runs. `pagekv cache` looks after it");
  app.add_option("--kv", options.format, "Format of stored keys and values")
      ->type_name("FORMAT")
      ->check(format_validator())
      ->capture_default_str();
}

CLI::App* add_run(CLI::App& app, RunOptions& options) {
  CLI::App* run = app.add_subcommand("run", "Generate text from prompts");
  add_model_options(*run, options.model);
  add_text_options(*run, options);
  add_generation_options(*run, options);
  add_cache_options(*run, options.model);
  run->footer(
      "FORMAT: " + std::string(kFormatHelp) +
      "\n"
      "Text goes to standard output, everything else to standard error. A single answer streams "
      "alone; of several, each follows a line '==> prompt N <=='.\n"
      "Prefill tokens/s counts passes that compute any prompt row, decode tokens/s all others; "
      "rejected guesses count in neither.");
  return run;
}

}  // namespace pagekv_tool
