// `pagekv cache ls`.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/cache.h"
#include "tools/cache_place.h"
#include "tools/cache_records.h"
#include "tools/cache_text.h"
#include "tools/console.h"

namespace pagekv_tool {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kModelBytes = 24;  // of its name, in a table

struct Row {
  std::string kind;
  std::int64_t bytes = 0;
  std::string holds;
  std::string of;  // the model, or the namespace
  std::int64_t last_use_ns = 0;
  std::string name;          // in a table
  std::string quiet_name;    // for scripts
  ordered_json fields = {};  // without bytes and times
};

struct Listing {
  std::vector<Row> rows;
  std::int64_t snapshots = 0;
  std::int64_t tiers = 0;
  std::int64_t records = 0;
  std::int64_t bytes = 0;
  bool failed = false;
};

void add_snapshot(Listing& listing, const SnapshotFile& file) {
  Row row{.kind = "snapshot",
          .bytes = file.bytes,
          .holds = "-",
          .of = "-",
          .last_use_ns = file.modified_ns,
          .name = shortened(file.path, std::string::npos),
          .quiet_name = file.path};
  row.fields = {{"kind", "snapshot"}, {"name", file.path}};
  if (file.info) {
    row.holds = counted(file.info->tokens, "token");
    if (!file.info->model.empty()) row.of = shortened(file.info->model, kModelBytes);
    row.fields.update({{"tokens", file.info->tokens},
                       {"model", file.info->model},
                       {"adapter", file.info->adapter}});
  } else {
    row.kind = "damaged";
    row.fields["kind"] = row.kind;
    row.fields["error"] = file.info.error().message();
    report_error(file.info.error().message());
    listing.failed = true;
  }
  ++listing.snapshots;
  listing.bytes += file.bytes;
  listing.rows.push_back(std::move(row));
}

std::string spaces_text(const std::vector<pagekv::Digest>& spaces) {
  if (spaces.empty()) return "-";
  if (spaces.size() == 1) return short_hex(spaces.front());
  return counted(static_cast<std::int64_t>(spaces.size()), "namespace");
}

Row tier_row(const Place& place, const CacheRecords& records) {
  Row row{.kind = "tier",
          .bytes = records.bytes(),
          .holds = counted(static_cast<std::int64_t>(records.all.size()), "record"),
          .of = spaces_text(records.spaces()),
          .last_use_ns = records.last_use_ns(),
          .name = shortened(place.path, std::string::npos),
          .quiet_name = place.path};
  auto spaces = ordered_json::array();
  for (const pagekv::Digest& space : records.spaces()) spaces.push_back(hex(space));
  row.fields = {{"kind", "tier"},
                {"name", place.path},
                {"records", records.all.size()},
                {"namespaces", std::move(spaces)}};
  return row;
}

Row record_row(const Place& place, const CacheRecord& record) {
  const bool page = record.kind == CacheRecord::Kind::page;
  Row row{.kind = kind_name(record.kind),
          .bytes = record.bytes,
          .holds = page && record.tokens > 0 ? counted(record.tokens, "token") : "-",
          .of = record.space ? short_hex(*record.space) : "-",
          .last_use_ns = record.last_use_ns,
          .name = short_hex(record.key),
          .quiet_name = hex(record.key)};
  if (page) row.of += fmt::format(" group {}", record.group);
  row.fields = {{"kind", row.kind},
                {"key", row.quiet_name},
                {"tier", place.path},
                {"namespace", record.space ? ordered_json(hex(*record.space)) : ordered_json()}};
  if (page) {
    row.fields["group"] = record.group;
    row.fields["tokens"] = record.tokens > 0 ? ordered_json(record.tokens) : ordered_json();
  }
  return row;
}

void add_tier(Listing& listing, const Place& place, bool one_by_one) {
  const auto records = list_records(*place.tier);
  if (!records) {
    report_error(place.path + ": " + records.error().message());
    listing.failed = true;
    return;
  }
  ++listing.tiers;
  listing.records += static_cast<std::int64_t>(records->all.size());
  listing.bytes += records->bytes();
  if (!one_by_one) return listing.rows.push_back(tier_row(place, *records));
  for (const CacheRecord& record : records->all) {
    listing.rows.push_back(record_row(place, record));
  }
}

std::string total_text(const Listing& listing) {
  std::string total;
  if (listing.snapshots > 0 || listing.tiers == 0) total = counted(listing.snapshots, "snapshot");
  if (listing.tiers > 0) {
    total += fmt::format("{}{} of {}", total.empty() ? "" : ", ", counted(listing.tiers, "tier"),
                         counted(listing.records, "record"));
  }
  return total + ": " + exact_bytes(listing.bytes);
}

void print_table(const Listing& listing) {
  std::size_t of_width = 24;
  for (const Row& row : listing.rows) of_width = std::max(of_width, row.of.size());
  const auto print = [&](const auto& kind, const auto& size, const auto& bytes, const auto& holds,
                         const auto& of, const auto& use, const auto& name) {
    fmt::print("{:<8}  {:>10}  {:>13}  {:>13}  {:<{}}  {:<19}  {}\n", kind, size, bytes, holds, of,
               of_width, use, name);
  };
  print("kind", "size", "bytes", "holds", "model or namespace", "last use", "name");
  for (const Row& row : listing.rows) {
    print(row.kind, human_bytes(static_cast<double>(row.bytes)), row.bytes, row.holds, row.of,
          row.last_use_ns == 0 ? "-" : utc(row.last_use_ns), row.name);
  }
  fmt::print("total     {}\n", total_text(listing));
}

void print_json(const Listing& listing) {
  auto entries = ordered_json::array();
  for (const Row& row : listing.rows) {
    ordered_json entry = row.fields;
    entry["bytes"] = row.bytes;
    entry["last_use"] =
        row.last_use_ns == 0 ? ordered_json() : ordered_json(iso_utc(row.last_use_ns));
    entry["last_use_ns"] = row.last_use_ns;
    entries.push_back(std::move(entry));
  }
  const ordered_json object = {{"entries", std::move(entries)},
                               {"total",
                                {{"snapshots", listing.snapshots},
                                 {"tiers", listing.tiers},
                                 {"records", listing.records},
                                 {"bytes", listing.bytes}}}};
  fmt::print("{}\n", object.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace

int cache_list(const CacheOptions& options) {
  Listing listing;
  const std::vector<Place> places = find_places(options.paths, listing.failed);
  for (const Place& place : places) {
    for (const SnapshotFile& file : place.snapshots) add_snapshot(listing, file);
    if (place.tier) add_tier(listing, place, options.records);
    for (const pagekv::Error& error : place.unreadable) {
      report_error(error.message());
      listing.failed = true;
    }
  }
  if (places.empty()) return kExitFailure;
  if (options.quiet) {
    for (const Row& row : listing.rows) fmt::print("{}\n", row.quiet_name);
  } else {
    options.json() ? print_json(listing) : print_table(listing);
  }
  return listing.failed ? kExitFailure : kExitOk;
}

}  // namespace pagekv_tool
