// `pagekv cache show`.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "pagekv/page_tier.h"
#include "tools/cache.h"
#include "tools/cache_place.h"
#include "tools/cache_records.h"
#include "tools/cache_text.h"
#include "tools/console.h"
#include "tools/inspect.h"

namespace pagekv_tool {
namespace {

using nlohmann::ordered_json;

struct SpaceSum {
  std::int64_t pages = 0;
  std::int64_t names = 0;
  std::set<int> groups;
  std::int64_t bytes = 0;
  std::int64_t last_use_ns = 0;
};

std::map<pagekv::Digest, SpaceSum> sums_of(const CacheRecords& records) {
  std::map<pagekv::Digest, SpaceSum> sums;
  for (const CacheRecord& record : records.all) {
    if (!record.space) continue;
    SpaceSum& sum = sums[*record.space];
    sum.bytes += record.bytes;
    sum.last_use_ns = record.last_use_ns;  // later ones come later
    if (record.kind == CacheRecord::Kind::page) {
      ++sum.pages;
      sum.groups.insert(record.group);
    } else {
      ++sum.names;
    }
  }
  return sums;
}

std::int64_t count(const CacheRecords& records, CacheRecord::Kind kind) {
  std::int64_t count = 0;
  for (const CacheRecord& record : records.all) count += record.kind == kind ? 1 : 0;
  return count;
}

void print_tier(const Place& place, const CacheRecords& records) {
  fmt::print("tier       {}\n", shortened(place.path, std::string::npos));
  fmt::print("records    {}: {}, {}, {} other\n", records.all.size(),
             counted(count(records, CacheRecord::Kind::page), "page"),
             counted(count(records, CacheRecord::Kind::name), "name"),
             count(records, CacheRecord::Kind::other));
  fmt::print("size       {}\n", exact_bytes(records.bytes()));
  if (!records.all.empty()) {
    fmt::print("last uses  {} to {} UTC\n", utc(records.all.front().last_use_ns),
               utc(records.last_use_ns()));
  }
  const auto sums = sums_of(records);
  if (sums.empty()) return;
  fmt::print("\n{:<16}  {:>8}  {:>6}  {:>10}  {:>13}  {}\n", "namespace", "pages", "groups", "size",
             "bytes", "last use");
  for (const auto& [space, sum] : sums) {
    fmt::print("{:<16}  {:>8}  {:>6}  {:>10}  {:>13}  {}\n", short_hex(space), sum.pages,
               sum.groups.size(), human_bytes(static_cast<double>(sum.bytes)), sum.bytes,
               utc(sum.last_use_ns));
  }
}

void print_json(const ordered_json& object) {
  fmt::print("{}\n", object.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

void print_tier_json(const Place& place, const CacheRecords& records) {
  auto spaces = ordered_json::array();
  for (const auto& [space, sum] : sums_of(records)) {
    spaces.push_back({{"namespace", hex(space)},
                      {"pages", sum.pages},
                      {"names", sum.names},
                      {"groups", sum.groups},
                      {"bytes", sum.bytes},
                      {"last_use", iso_utc(sum.last_use_ns)},
                      {"last_use_ns", sum.last_use_ns}});
  }
  print_json({{"tier", place.path},
              {"records", records.all.size()},
              {"pages", count(records, CacheRecord::Kind::page)},
              {"names", count(records, CacheRecord::Kind::name)},
              {"others", count(records, CacheRecord::Kind::other)},
              {"bytes", records.bytes()},
              {"namespaces", std::move(spaces)}});
}

ordered_json record_json(const CacheRecord& record, const pagekv::TierAnswer& answer) {
  ordered_json object = {{"key", hex(record.key)},
                         {"kind", kind_name(record.kind)},
                         {"bytes", record.bytes},
                         {"value_bytes", answer.value.size()},
                         {"tag_bytes", answer.tag.size()},
                         {"last_use", iso_utc(record.last_use_ns)},
                         {"last_use_ns", record.last_use_ns}};
  if (record.space) object["namespace"] = hex(*record.space);
  if (const auto page = pagekv::read_page_tag(answer.tag)) {
    object["group"] = page->group;
    object["digest"] = hex(page->digest);
    object["parent"] = hex(page->parent);
    object["tokens"] = page->tokens;
  }
  return object;
}

void print_record(const CacheRecord& record, const pagekv::TierAnswer& answer) {
  const auto line = [](const char* what, const std::string& text) {
    fmt::print("{:<9}  {}\n", what, text);
  };
  line("key", hex(record.key));
  line("kind", record.kind == CacheRecord::Kind::name ? "name of a namespace, which is secret"
                                                      : kind_name(record.kind));
  line("size", exact_bytes(record.bytes));
  line("value", counted(static_cast<std::int64_t>(answer.value.size()), "byte") +
                    ", checksum proved; tag " +
                    counted(static_cast<std::int64_t>(answer.tag.size()), "byte"));
  line("last use", utc(record.last_use_ns) + " UTC");
  if (record.space) line("namespace", hex(*record.space));
  const auto page = pagekv::read_page_tag(answer.tag);
  if (!page) return;
  line("group", std::to_string(page->group));
  line("digest", hex(page->digest));
  line("parent", page->parent == page->space ? "none: the first page" : hex(page->parent));
  std::string tokens =
      page->tokens.empty() ? "too many for the tag" : fmt::format("{}:", page->tokens.size());
  for (const pagekv::TokenId token : page->tokens) tokens += fmt::format(" {}", token);
  line("tokens", tokens);
}

int show_record(const Place& place, const CacheRecords& records, const CacheOptions& options) {
  const auto record = find_record(records, options.keys.front());
  if (!record) return report_error(place.path + ": " + record.error().message());
  const auto batch = place.tier->get({&record->key, 1});
  if (!batch) return report_error(batch.error().message());
  batch->wait();
  const pagekv::TierAnswer& answer = batch->answer(0);
  if (answer.outcome != pagekv::TierOutcome::ok) {
    return report_error(
        fmt::format("record {}: {}", hex(record->key), pagekv::name(answer.outcome)));
  }
  if (options.json()) {
    print_json(record_json(*record, answer));
  } else {
    print_record(*record, answer);
  }
  return kExitOk;
}

int show_tier(const Place& place, const CacheOptions& options) {
  const auto records = list_records(*place.tier);
  if (!records) return report_error(place.path + ": " + records.error().message());
  if (!options.keys.empty()) return show_record(place, *records, options);
  options.json() ? print_tier_json(place, *records) : print_tier(place, *records);
  return kExitOk;
}

}  // namespace

int cache_show(const CacheOptions& options) {
  const auto place = find_place(options.paths.front());
  if (!place) return report_error(place.error().message());
  if (place->kind == Place::Kind::tier) return show_tier(*place, options);
  if (place->kind == Place::Kind::folder) {
    return report_error(place->path +
                        " is a folder of snapshots; show takes one of them, and ls lists them");
  }
  if (!options.keys.empty()) {
    return report_error(place->path + " is a snapshot; only a tier has records", kExitUsage);
  }
  const SnapshotFile& file = place->snapshots.front();
  if (!file.info) return report_error(file.info.error().message());
  print_snapshot(*file.info, options.json());
  return kExitOk;
}

}  // namespace pagekv_tool
