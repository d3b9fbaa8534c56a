// The options of `pagekv replay`, their limits and their help.
#include <CLI/CLI.hpp>
#include <charconv>
#include <string>

#include "tools/bench.h"
#include "tools/replay.h"

namespace pagekv_tool {
namespace {

constexpr std::int64_t kMostBlocks = std::int64_t{1} << 31;
constexpr std::int64_t kMostBlockTokens = std::int64_t{1} << 20;
constexpr int kMostConcurrency = 1 << 20;

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::int64_t> parse_capacities(const std::string& list) {
  std::vector<std::int64_t> capacities;
  for (const std::string& part : split(list)) {
    std::int64_t blocks = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), blocks);
    const bool number = error == std::errc() && end == part.data() + part.size();
    if (part == "unlimited") {
      capacities.push_back(kUnlimited);
    } else if (number && blocks >= 1 && blocks <= kMostBlocks) {
      capacities.push_back(blocks);
    } else {
      throw CLI::ValidationError("'" + part + "' is no number of blocks, 1 to " +
                                 std::to_string(kMostBlocks) + ", nor \"unlimited\"");
    }
  }
  return capacities;
}

std::vector<std::string> parse_policies(const std::string& list) {
  std::vector<std::string> policies = split(list);
  for (const std::string& policy : policies) {
    if (policy != "lru" && policy != "slru") {
      throw CLI::ValidationError("'" + policy + "' is no policy; there are lru and slru");
    }
  }
  return policies;
}

ReplayShape parse_shape(const std::string& text) {
  ReplayShape shape;
  int* const numbers[] = {&shape.layers, &shape.kv_heads, &shape.dim};
  const char* at = text.data();
  const char* const end = at + text.size();
  bool good = true;
  for (int* number : numbers) {
    if (number != numbers[0]) good = good && at != end && *at++ == 'x';
    const auto [next, error] = std::from_chars(at, end, *number);
    good = good && error == std::errc() && *number >= 1 && *number <= 4096;
    if (!good) break;
    at = next;
  }
  if (good && at == end) return shape;
  throw CLI::ValidationError("'" + text + "' is not LAYERSxKV_HEADSxDIM, such as 32x8x128");
}

}  // namespace

CLI::App* add_replay(CLI::App& app, ReplayOptions& options) {
  CLI::App* replay =
      app.add_subcommand("replay", "Run a serving trace against a store and its prefix index");
  replay->add_option("file", options.file, "The trace, or '-' for standard input")
      ->type_name("FILE")
      ->required();
  replay
      ->add_option("--block", options.block_tokens,
                   "Tokens of the trace that a block has; of prompts, a multiple of 16")
      ->check(CLI::Range(std::int64_t{1}, kMostBlockTokens))
      ->capture_default_str();
  replay
      ->add_option_function<std::string>(
          "--capacity",
          [&options](const std::string& list) { options.capacities = parse_capacities(list); },
          "Blocks that there is room for (default: unlimited)")
      ->type_name("BLOCKS,...");
  replay
      ->add_option_function<std::string>(
          "--policy",
          [&options](const std::string& list) { options.policies = parse_policies(list); },
          "lru, or slru, which gives up what was found again after all that was not (default: lru)")
      ->type_name("POLICY,...");
  replay
      ->add_option("--concurrency", options.concurrency,
                   "Requests that are in work at the same time; their pages stay")
      ->check(CLI::Range(1, kMostConcurrency))
      ->capture_default_str();
  add_tier_option(
      *replay, options.tier,
      "Write what memory gives up to a folder, at most SIZE (default: 16G) of it, and bring up "
      "what is asked for again; each case in an empty folder of its own, named by policy and "
      "capacity");
  replay->add_option("--kv", options.format, "Format of the pages, for the figures in bytes")
      ->type_name("FORMAT")
      ->check(format_validator())
      ->capture_default_str();
  replay
      ->add_option_function<std::string>(
          "--shape", [&options](const std::string& text) { options.shape = parse_shape(text); },
          "Layers, KV heads and head dim, for the figures in bytes (default: 32x8x128)")
      ->type_name("LxHxD");
  add_tokenizer_source(*replay, options.model);
  replay->add_option("--plot", options.plot, "Draw hit rate against capacity, and use over time")
      ->type_name("FILE.svg");
  replay->add_option("-o,--output", options.output, "Of the table: md, json, jsonl or csv")
      ->check(CLI::IsMember({"md", "json", "jsonl", "csv"}))
      ->capture_default_str();
  replay->footer(
      "A trace has one JSON object per line. Either {\"hash_ids\": [...], \"input_length\": N, "
      "\"timestamp\": MS}: the ids of a prompt's blocks, each of which stands for all tokens up to "
      "its end; or {\"prompt\": TEXT}, read by the tokenizer of the model.\n"
      "Requests come in the order of the file. A request that ends makes room for the next; what "
      "it "
      "generated is not stored. A hit is the longest beginning of a request that is stored. "
      "FORMAT: " +
      std::string(kFormatHelp));
  return replay;
}

}  // namespace pagekv_tool
