// The options of `pagekv bench`, their limits and their help.
#include <CLI/CLI.hpp>
#include <charconv>
#include <string>
#include <string_view>

#include "tools/bench.h"
#include "tools/format_lists.h"

namespace pagekv_tool {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 24;
constexpr std::size_t kMostNumbers = 256;
constexpr int kMostHeads = 1024;
constexpr std::uint64_t kMostSet = std::uint64_t{1} << 40;

[[noreturn]] void refuse(std::string_view text) {
  throw CLI::ValidationError("'" + std::string(text) +
                             "' is no list of numbers such as 1,512,8k or 1k-8k*2 or 16-64+16");
}

std::int64_t parse_number(std::string_view text) {
  const bool kilo = text.ends_with('k') || text.ends_with('K');
  const std::string_view digits = kilo ? text.substr(0, text.size() - 1) : text;
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() ||
      number < 0 || number > kMost) {
    refuse(text);
  }
  return kilo ? number * 1024 : number;
}

// "A-B", "A-B+S" or "A-B*F".
void add_range(std::string_view text, std::vector<std::int64_t>& numbers) {
  const std::size_t dash = text.find('-');
  const std::size_t mark = text.find_first_of("+*", dash);
  const std::int64_t first = parse_number(text.substr(0, dash));
  const std::int64_t last = parse_number(text.substr(dash + 1, mark - dash - 1));
  const bool adds = mark != std::string_view::npos && text[mark] == '+';
  const std::int64_t by = mark == std::string_view::npos ? 2 : parse_number(text.substr(mark + 1));
  if (first > last || by < (adds ? 1 : 2) || (!adds && first == 0)) refuse(text);
  for (std::int64_t at = first; at <= last; at = adds ? at + by : at * by) {
    if (numbers.size() == kMostNumbers) refuse(text);
    numbers.push_back(at);
  }
}

template <typename Number>
CLI::Option* add_numbers(CLI::App& app, const char* name, std::vector<Number>& to, const char* help,
                         std::int64_t least, std::int64_t most) {
  return app
      .add_option_function<std::string>(
          name,
          [&to, least, most](const std::string& text) {
            to.clear();
            for (const std::int64_t number : parse_numbers(text)) {
              if (number < least || number > most) {
                throw CLI::ValidationError(std::to_string(number) + " is not in [" +
                                           std::to_string(least) + ", " + std::to_string(most) +
                                           "]");
              }
              to.push_back(static_cast<Number>(number));
            }
          },
          help)
      ->type_name("N,...");
}

BenchHeads parse_pair(std::string_view text) {
  const char* end = text.data() + text.size();
  BenchHeads heads;
  auto read = std::from_chars(text.data(), end, heads.query);
  const bool slash = read.ec == std::errc() && read.ptr != end && *read.ptr == '/';
  if (slash) read = std::from_chars(read.ptr + 1, end, heads.kv);
  if (!slash || read.ec != std::errc() || read.ptr != end || heads.kv < 1 ||
      heads.query > kMostHeads || heads.query < 1 || heads.query % heads.kv != 0) {
    throw CLI::ValidationError("'" + std::string(text) +
                               "' is not query heads / KV heads, the first a multiple of the "
                               "second, such as 32/8");
  }
  return heads;
}

std::vector<BenchHeads> parse_heads(std::string_view text) {
  std::vector<BenchHeads> list;
  for (;;) {
    const std::size_t comma = text.find(',');
    list.push_back(parse_pair(text.substr(0, comma)));
    if (comma == std::string_view::npos) return list;
    text.remove_prefix(comma + 1);
  }
}

void add_attention_options(CLI::App& app, BenchOptions& options) {
  app.add_flag("--attn", options.attention, "Attention alone, over a cache of random numbers")
      ->group("Attention");
  const auto group = [](CLI::Option* option) { return option->group("Attention"); };
  group(app.add_option_function<std::string>(
            "--heads", [&options](const std::string& text) { options.heads = parse_heads(text); },
            "Query heads / KV heads (default: 32/8)"))
      ->type_name("Q/KV,...");
  group(
      add_numbers(app, "--dim", options.dims, "Head dims (default: 128)", 8, pagekv::kMaxHeadDim));
  group(
      add_numbers(app, "--ctx", options.contexts, "Tokens of a sequence (default: 8k)", 1, kMost));
  group(add_numbers(app, "--page", options.pages, "Tokens of a page (default: 64)", 16, 4096));
  group(add_numbers(app, "--batch", options.batches, "Sequences (default: 1)", 1, 4096));
  group(
      add_numbers(app, "--shared", options.shared,
                  "Tokens, at most all, that all sequences have at their front in the same pages; "
                  "then each case is measured with a cascade over them and without (default: 0)",
                  0, kMost));
  group(add_numbers(app, "--queries", options.queries, "Rows of each sequence (default: 1)", 1,
                    kMost));
  group(app.add_option("--query-type", options.query_type, "Type of the queries"))
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  group(
      app.add_option("--target", options.target, "Instruction set: one that `pagekv info` lists"));
  group(app.add_flag("--warm", options.warm,
                     "One layer again and again, in cache where it fits; else layers in turn"));
  group(app.add_option("--set", options.set_bytes,
                       "Bytes of the layers in turn, and of the plain read: more than the caches "
                       "hold (default: 512M)"))
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{1} << 20, kMostSet));
}

void add_model_part(CLI::App& app, BenchOptions& options) {
  const auto group = [](CLI::Option* option) { return option->group("A model"); };
  add_model_source(app, options.model);
  for (const char* name : {"--model", "--tokenizer", "--weights"}) group(app.get_option(name));
  group(add_numbers(app, "-p,--prompt", options.prompts, "Tokens of a prompt (default: 512)", 0,
                    kMost));
  group(add_numbers(app, "-n,--tokens", options.generated,
                    "Tokens to generate, one at a time (default: 128)", 0, kMost));
  group(add_numbers(app, "-d,--depth", options.depths,
                    "Tokens that are in the cache before (default: 0)", 0, kMost));
}

}  // namespace

std::vector<std::int64_t> parse_numbers(const std::string& text) {
  std::vector<std::int64_t> numbers;
  std::string_view rest = text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    if (part.find('-') == std::string_view::npos) {
      numbers.push_back(parse_number(part));
    } else {
      add_range(part, numbers);
    }
    if (comma == std::string_view::npos) return numbers;
    rest.remove_prefix(comma + 1);
  }
}

CLI::App* add_bench(CLI::App& app, BenchOptions& options) {
  CLI::App* bench =
      app.add_subcommand("bench", "Measure the speed of a model, or of attention alone");
  bench
      ->add_option("--kv", options.formats,
                   "Formats to measure, with commas between them; may be given several times")
      ->type_name("FORMAT,...")
      ->check(formats_validator())
      ->allow_extra_args(false)
      ->capture_default_str();
  add_numbers(*bench, "-t,--threads", options.threads, "Threads (default: one per processor)", 1,
              1024);
  bench->add_option("-r,--repetitions", options.repetitions, "Times that each case is measured")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  bench->add_option("-o,--output", options.output, "One row per case as md, json, jsonl or csv")
      ->check(CLI::IsMember({"md", "json", "jsonl", "csv"}))
      ->capture_default_str();
  bench->add_option("--arithmetic", options.arithmetics, "Of attention: fast, exact or both")
      ->delimiter(',')
      ->check(CLI::IsMember({"fast", "exact"}))
      ->capture_default_str();
  add_model_part(*bench, options);
  add_attention_options(*bench, options);
  bench->footer(
      "FORMAT: " + std::string(kFormatHelp) +
      "\n"
      "Lists have commas; 1k is 1024; 1k-8k doubles from the first to the last, 16-64+16 adds, "
      "1-81*3 multiplies. Every combination is a case, and the cases of one context take turns.\n"
      "With --attn every answer is compared with the control before anything is timed, and a plain "
      "read of memory by the same threads is timed beside each pass: share is what the stored "
      "bytes over the time are of it; scattered is the same read in pieces as large as a head's "
      "keys of a page, in random order. Without --attn a model is run: ppN computes a prompt of N "
      "tokens, tgN generates N, @ dD with D tokens in the cache before.");
  return bench;
}

}  // namespace pagekv_tool
