// The options of `pagekv ppl`, their limits and their help.
#include <CLI/CLI.hpp>
#include <string>

#include "tools/format_lists.h"
#include "tools/model_options.h"
#include "tools/ppl.h"

namespace pagekv_tool {
namespace {

constexpr std::int64_t kLeastContext = 3;  // a shorter one has no token to score

}  // namespace

CLI::App* add_ppl(CLI::App& app, PplOptions& options) {
  CLI::App* ppl = app.add_subcommand("ppl", "Measure what formats of the cache cost on a text");
  add_model_options(*ppl, options.model);
  ppl->add_option("-f,--file", options.file, "The text, or '-' for standard input")
      ->type_name("FILE")
      ->required();
  ppl->add_option("-c,--context", options.context_tokens,
                  "Tokens of a chunk (default: " + std::to_string(kDefaultPplContext) +
                      ", or the model's context where that is less)")
      ->check(CLI::Range(kLeastContext, kMaxTokens));
  ppl->add_option("--chunks", options.chunks, "Chunks to measure (default: all that the text has)")
      ->check(CLI::Range(std::int64_t{1}, kMaxTokens));
  ppl->add_option("--first", options.first_scored,
                  "First position of a chunk that is scored (default: half the context)")
      ->check(CLI::Range(std::int64_t{0}, kMaxTokens));
  ppl->add_option("--kv", options.formats,
                  "Formats to measure, with commas between them; may be given several times")
      ->type_name("FORMAT,...")
      ->check(formats_validator())
      ->allow_extra_args(false)
      ->capture_default_str();
  ppl->add_option("--reference", options.reference, "The format that the others are compared with")
      ->type_name("FORMAT")
      ->check(format_validator())
      ->capture_default_str();
  add_cache_options(*ppl, options.model);
  ppl->add_option("-o,--output", options.output, "text, or one row per format as md, json or csv")
      ->check(CLI::IsMember({"text", "md", "json", "csv"}))
      ->capture_default_str();
  ppl->footer(
      "FORMAT: " + std::string(kFormatHelp) +
      "\n"
      "The text is cut into chunks of -c tokens, each a sequence of its own; the second half of "
      "each is scored, or what --first says.\n"
      "KL is the divergence of the likelihoods of the next token from those of the reference, in "
      "nats; quantiles interpolate between the two nearest values. same_top is the share of tokens "
      "whose likeliest successor stays the same, rms_dp the change of the true token's probability "
      "in per cent points. --kv-layers does not concern the reference.");
  return ppl;
}

}  // namespace pagekv_tool
