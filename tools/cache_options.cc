// The options of `pagekv cache`, their limits and their help.
#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>

#include "tools/cache.h"

namespace pagekv_tool {
namespace {

constexpr std::uint64_t kMostBytes = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMostSeconds = std::int64_t{1000} * 366 * 86400;  // a thousand years
constexpr std::size_t kDigestDigits = 64;

const CLI::Validator& digest_validator() {
  static const CLI::Validator validator(
      [](const std::string& text) {
        const bool digits = std::all_of(text.begin(), text.end(), [](char c) {
          return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        });
        if (digits && !text.empty() && text.size() <= kDigestDigits) return std::string();
        return "'" + text + "' is not 1 to 64 of the digits 0-9 and a-f";
      },
      "");
  return validator;
}

std::int64_t parse_duration(const std::string& text) {
  constexpr std::string_view kUnits = "smhdw";
  constexpr std::int64_t kSeconds[] = {1, 60, 3600, 86400, 7 * 86400};
  std::int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  const std::size_t unit = stop + 1 == end ? kUnits.find(*stop) : std::string_view::npos;
  if (error == std::errc() && unit != std::string_view::npos && count >= 0 &&
      count <= kMostSeconds / kSeconds[unit]) {
    return count * kSeconds[unit];
  }
  throw CLI::ValidationError("--older-than: '" + text +
                             "' is not a number and s, m, h, d or w, such as 12h or 7d");
}

CLI::App* add_verb(CLI::App& cache, CacheOptions& options, CacheVerb verb, const char* name,
                   const char* help) {
  CLI::App* app = cache.add_subcommand(name, help);
  app->callback([&options, verb] { options.verb = verb; });
  return app;
}

void add_paths(CLI::App& verb, CacheOptions& options) {
  verb.add_option("paths", options.paths,
                  "Snapshots, folders of snapshots, and folders of tiers, told by their content")
      ->type_name("PATH")
      ->required();
}

void add_one_path(CLI::App& verb, CacheOptions& options, const char* help) {
  verb.add_option_function<std::string>(
          "path", [&options](const std::string& path) { options.paths = {path}; }, help)
      ->type_name("PATH")
      ->required();
}

void add_format(CLI::App& verb, CacheOptions& options) {
  verb.add_option("--format", options.format,
                  "table, or json with exact bytes and times in nanoseconds")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
}

void add_list(CLI::App& cache, CacheOptions& options) {
  CLI::App* list = add_verb(cache, options, CacheVerb::list, "ls", "List what is there");
  add_paths(*list, options);
  list->add_flag("--records", options.records, "The records of tiers, one by one");
  add_format(*list, options);
  list->add_flag("-q,--quiet", options.quiet,
                 "Names alone, or keys of records, one a line: for scripts")
      ->excludes("--format");
  list->footer(
      "A snapshot was used last when it was written. Times are UTC.\n"
      "  pagekv cache ls sessions/ pages/\n"
      "  pagekv cache ls --records --format json pages/");
}

void add_show(CLI::App& cache, CacheOptions& options) {
  CLI::App* show =
      add_verb(cache, options, CacheVerb::show, "show", "Say what one of them, or a record, holds");
  add_one_path(*show, options, "A snapshot, or the folder of a tier");
  show->add_option_function<std::string>(
          "key", [&options](const std::string& key) { options.keys = {key}; },
          "Of a record of the tier, or how it begins")
      ->type_name("KEY")
      ->check(digest_validator());
  add_format(*show, options);
  show->footer(
      "  pagekv cache show talk.safetensors\n"
      "  pagekv cache show pages/\n"
      "  pagekv cache show pages/ 3fa2c1");
}

void add_verify(CLI::App& cache, CacheOptions& options) {
  CLI::App* verify =
      add_verb(cache, options, CacheVerb::verify, "verify", "Prove all checksums; change nothing");
  add_paths(*verify, options);
  verify->footer(
      "Reads everything. Exit code 0: all is whole; 1: something is not, and is named.\n"
      "  pagekv cache verify sessions/ pages/");
}

void add_remove(CLI::App& cache, CacheOptions& options) {
  CLI::App* remove =
      add_verb(cache, options, CacheVerb::remove, "rm", "Remove snapshots, or records of a tier");
  add_paths(*remove, options);
  remove->add_option("--key", options.keys, "Records of the tier, by their keys' beginnings")
      ->type_name("KEY")
      ->check(digest_validator());
  remove
      ->add_option("--namespace", options.space,
                   "All records of a namespace, by its digest's beginning")
      ->type_name("HEX")
      ->check(digest_validator())
      ->excludes("--key");
  remove->add_flag("--all", options.all, "All records of the tier")
      ->excludes("--key")
      ->excludes("--namespace");
  remove->footer(
      "Asks nothing. What is no snapshot is refused before anything goes; the folder of a tier "
      "stays, and other processes may go on using it.\n"
      "  pagekv cache rm old.safetensors older.safetensors\n"
      "  pagekv cache rm pages/ --key 3fa2c1 77b0\n"
      "  pagekv cache rm pages/ --namespace 9be0\n"
      "  pagekv cache rm pages/ --all");
}

void add_prune(CLI::App& cache, CacheOptions& options) {
  CLI::App* prune = add_verb(cache, options, CacheVerb::prune, "prune",
                             "Make a tier, or a folder of snapshots, smaller: what was used least "
                             "recently goes first");
  add_one_path(*prune, options, "The folder");
  prune->add_option("--to", options.to_bytes, "Bytes that may stay: 10G, 512M, 0")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(std::uint64_t{0}, kMostBytes));
  prune
      ->add_option_function<std::string>(
          "--older-than",
          [&options](const std::string& text) {
            options.older_than_seconds = parse_duration(text);
          },
          "What was not used for that long: 30m, 12h, 7d, 2w")
      ->type_name("TIME");
  prune->footer(
      "Of both options what is too old goes first. Snapshots go by the time they were written; "
      "other files of the folder stay.\n"
      "  pagekv cache prune pages/ --to 10G\n"
      "  pagekv cache prune sessions/ --older-than 7d");
}

void check_verb(const CLI::App& cache) {
  constexpr const char* kLegal = "; there are ls, show, verify, rm and prune";
  const std::vector<std::string> unknown = cache.remaining();
  if (!unknown.empty()) {
    throw CLI::ValidationError("there is no command cache " + unknown.front() + kLegal);
  }
  if (cache.get_subcommands().empty()) {
    throw CLI::ValidationError(std::string("cache needs a command") + kLegal);
  }
}

}  // namespace

CLI::App* add_cache(CLI::App& app, CacheOptions& options) {
  CLI::App* cache = app.add_subcommand("cache", "List, verify, remove snapshots and tiers");
  add_list(*cache, options);
  add_show(*cache, options);
  add_verify(*cache, options);
  add_remove(*cache, options);
  add_prune(*cache, options);
  cache->allow_extras();  // of its own: those of its subcommands are refused
  cache->callback([cache] { check_verb(*cache); });
  cache->footer(
      "A PATH is a snapshot, a folder with snapshots in it, or the folder of a tier "
      "(docs/snapshots.md, docs/tier.md); what it is, is told by what is in it.");
  return cache;
}

}  // namespace pagekv_tool
