#include "tools/replay.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <utility>

#include "pagekv/layout.h"
#include "tools/console.h"
#include "tools/model_path.h"
#include "tools/replay_run.h"
#include "tools/report.h"
#include "tools/svg_chart.h"
#include "tools/text_file.h"
#include "tools/trace.h"

namespace pagekv_tool {
namespace {

struct Case {
  std::int64_t capacity = kUnlimited;
  std::string policy;
  ReplayResult result;
};

std::string capacity_name(std::int64_t blocks) {
  return blocks == kUnlimited ? "unlimited" : std::to_string(blocks);
}

double share(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

double microseconds(double seconds, std::int64_t count) {
  return count > 0 ? seconds * 1e6 / static_cast<double>(count) : 0;
}

// An empty tier of the case's own.
pagekv::Result<std::shared_ptr<pagekv::Tier>> tier_of(const TierOption& option,
                                                      const std::string& policy,
                                                      std::int64_t capacity) {
  if (option.path.empty()) return std::shared_ptr<pagekv::Tier>();
  TierOption own = option;
  own.path += "/" + policy + "-" + capacity_name(capacity);
  std::error_code ignored;  // the tier says what is wrong
  std::filesystem::create_directories(option.path, ignored);
  auto tier = open_tier(own);
  if (tier && (*tier)->stats().records > 0) {
    return pagekv::fail(pagekv::ErrorCode::invalid_argument,
                        "{s} has {0} records already: a replay begins with nothing",
                        {(*tier)->stats().records}, own.path);
  }
  return tier;
}

// Bytes that a block takes in a model of the shape.
pagekv::Result<std::int64_t> bytes_per_block(const ReplayOptions& options) {
  const auto format = pagekv::Format::parse(options.format);
  if (!format) return tl::unexpected<pagekv::Error>(format.error());
  pagekv::LayoutSpec spec;
  spec.layers.assign(static_cast<std::size_t>(options.shape.layers),
                     {.kv_heads = options.shape.kv_heads,
                      .key_dim = options.shape.dim,
                      .value_dim = options.shape.dim,
                      .format = *format});
  const auto layout = pagekv::CacheLayout::make(spec);
  if (!layout) return tl::unexpected<pagekv::Error>(layout.error());
  return layout->bytes_per_token() * options.block_tokens;
}

pagekv::Result<Trace> load_trace(const ReplayOptions& options) {
  const auto text = read_text(options.file);
  if (!text) return tl::unexpected<pagekv::Error>(text.error());
  std::unique_ptr<pagekv::engine::Tokenizer> tokenizer;
  const std::string first_line = text->substr(0, text->find('\n'));
  if (first_line.find("\"hash_ids\"") == std::string::npos) {
    const auto path = find_model(options.model.model);
    if (!path) return tl::unexpected<pagekv::Error>(path.error());
    auto opened = pagekv::engine::open_tokenizer(*path, options.model.tokenizer);
    if (!opened) return tl::unexpected<pagekv::Error>(opened.error());
    tokenizer = std::move(*opened);
  }
  return read_trace(*text, options.file == "-" ? "standard input" : options.file,
                    options.block_tokens, tokenizer.get());
}

void add_tier_columns(const ReplayResult& result, std::int64_t block_bytes, ReportRow& row) {
  const auto moved = [&](std::int64_t blocks) {
    return fmt::format("{} ({})", blocks, human_bytes(static_cast<double>(blocks * block_bytes)));
  };
  row.shown.push_back(
      {"from tier", fmt::format("{:.4f}", share(result.risen_blocks, result.blocks))});
  row.shown.push_back({"up", moved(result.risen_blocks)});
  row.shown.push_back({"down", moved(result.sunk_blocks)});
  row.fields["up_blocks"] = result.risen_blocks;
  row.fields["down_blocks"] = result.sunk_blocks;
  row.fields["up_bytes"] = result.risen_blocks * block_bytes;
  row.fields["down_bytes"] = result.sunk_blocks * block_bytes;
  row.fields["tier_seconds"] = result.tier_seconds;
}

ReportRow row_of(const Case& one, const ReplayOptions& options, std::int64_t block_bytes) {
  const ReplayResult& result = one.result;
  const double hit_rate = share(result.hit_blocks, result.blocks);
  const double hit_rate_tokens = share(result.hit_tokens, result.prompt_tokens);
  const double per_second =
      result.operation_seconds() > 0
          ? static_cast<double>(result.block_operations) / result.operation_seconds()
          : 0;
  const double match_us = microseconds(result.match_seconds, result.requests);
  const double reserve_us = microseconds(result.reserve_seconds, result.requests);
  const double insert_us = microseconds(result.insert_seconds, result.requests);
  const auto bytes = [&](std::int64_t blocks) {
    return human_bytes(static_cast<double>(blocks * block_bytes));
  };
  ReportRow row;
  row.shown = {
      {"capacity", capacity_name(one.capacity)},
      {"policy", one.policy},
      {"hit rate", fmt::format("{:.4f}", hit_rate)},
      {"of tokens", fmt::format("{:.4f}", hit_rate_tokens)},
      {"evicted", std::to_string(result.evicted_blocks)},
      {"shared", std::to_string(result.peak_shared_blocks)},
      {"peak", fmt::format("{} ({})", result.peak_blocks, bytes(result.peak_blocks))},
      {"match µs", fmt::format("{:.1f}", match_us)},
      {"reserve µs", fmt::format("{:.1f}", reserve_us)},
      {"insert µs", fmt::format("{:.1f}", insert_us)},
      {"block ops/s", fmt::format("{:.3g}", per_second)},
      {"digest µs", fmt::format("{:.2f}", result.digest_seconds_per_page * 1e6)},
  };
  row.fields = {
      {"capacity", one.capacity == kUnlimited ? nlohmann::ordered_json()
                                              : nlohmann::ordered_json(one.capacity)},
      {"policy", one.policy},
      {"concurrency", options.concurrency},
      {"block", options.block_tokens},
      {"requests", result.requests},
      {"blocks", result.blocks},
      {"hit_blocks", result.hit_blocks},
      {"hit_rate", hit_rate},
      {"tokens", result.prompt_tokens},
      {"hit_tokens", result.hit_tokens},
      {"hit_rate_tokens", hit_rate_tokens},
      {"inserted", result.inserted_blocks},
      {"evicted", result.evicted_blocks},
      {"cut_requests", result.cut_requests},
      {"shared", result.peak_shared_blocks},
      {"peak", result.peak_blocks},
      {"block_bytes", block_bytes},
      {"peak_bytes", result.peak_blocks * block_bytes},
      {"match_us", match_us},
      {"reserve_us", reserve_us},
      {"insert_us", insert_us},
      {"block_operations_per_second", per_second},
      {"digest_us", result.digest_seconds_per_page * 1e6},
      {"index_bytes_per_block", result.index_bytes_per_block},
  };
  if (!options.tier.path.empty()) add_tier_columns(result, block_bytes, row);
  return row;
}

// What is unlimited stands at the blocks it used.
double capacity_drawn(const Case& one) {
  return static_cast<double>(one.capacity == kUnlimited ? one.result.peak_blocks : one.capacity);
}

// `tier`: the cases had one.
std::vector<Chart> charts_of(const std::vector<Case>& cases, bool tier) {
  Chart rates{.title = "Hit rate",
              .x_label = "capacity, blocks",
              .y_label = "blocks found",
              .log_x = true,
              .y_most = 0,
              .lines = {}};
  Chart use{.title = "Use over time",
            .x_label = "time, s",
            .y_label = "blocks held",
            .log_x = false,
            .y_most = 0,
            .lines = {}};
  Chart moved{.title = "Moved by the tier",
              .x_label = "capacity, blocks",
              .y_label = "blocks",
              .log_x = true,
              .y_most = 0,
              .lines = {}};
  std::map<std::string, std::map<double, double>> by_policy;
  std::map<std::string, std::map<double, double>> moves;
  for (const Case& one : cases) {
    const ReplayResult& result = one.result;
    const double x = capacity_drawn(one);
    by_policy[one.policy][x] = share(result.hit_blocks, result.blocks);
    if (tier) {
      by_policy[one.policy + ", of them in memory"][x] =
          share(result.hit_blocks - result.risen_blocks, result.blocks);
      moves[one.policy + ", up"][x] = static_cast<double>(result.risen_blocks);
      moves[one.policy + ", down"][x] = static_cast<double>(result.sunk_blocks);
    }
    if (one.policy != cases.front().policy) continue;  // another would lie upon it
    ChartLine line{.name = capacity_name(one.capacity), .points = {}};
    for (const auto& [seconds, blocks] : one.result.use) {
      line.points.emplace_back(seconds, static_cast<double>(blocks));
    }
    use.lines.push_back(std::move(line));
  }
  for (const auto& [policy, rate] : by_policy) {
    rates.lines.push_back({.name = policy, .points = {rate.begin(), rate.end()}, .marks = true});
  }
  for (const auto& [name, blocks] : moves) {
    moved.lines.push_back({.name = name, .points = {blocks.begin(), blocks.end()}, .marks = true});
  }
  std::vector<Chart> charts = {std::move(rates), std::move(use)};
  if (tier) charts.push_back(std::move(moved));
  return charts;
}

int draw(const std::vector<Case>& cases, bool tier, const std::string& path) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << svg_of(charts_of(cases, tier));
  file.flush();
  return file ? kExitOk : report_error("cannot write " + path);
}

}  // namespace

int replay(const ReplayOptions& options) {
  const auto block_bytes = bytes_per_block(options);
  if (!block_bytes) return report_error(block_bytes.error().message(), kExitUsage);
  const auto trace = load_trace(options);
  if (!trace) return report_error(trace.error().message());
  std::vector<Case> cases;
  for (const std::string& policy : options.policies) {
    for (const std::int64_t capacity : options.capacities) {
      auto tier = tier_of(options.tier, policy, capacity);
      if (!tier) return report_error(tier.error().message());
      Progress progress("replaying");
      const ReplaySettings settings{
          .capacity_blocks = capacity,
          .policy = policy,
          .tier = std::move(*tier),
          .concurrency = options.concurrency,
          .progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); }};
      auto result = run_replay(*trace, settings);
      if (!result) return report_error(result.error().message());
      cases.push_back({capacity, policy, std::move(*result)});
    }
  }
  std::vector<ReportRow> rows;
  rows.reserve(cases.size());
  for (const Case& one : cases) rows.push_back(row_of(one, options, *block_bytes));
  print_report(rows, options.output);
  return options.plot.empty() ? kExitOk : draw(cases, !options.tier.path.empty(), options.plot);
}

}  // namespace pagekv_tool
