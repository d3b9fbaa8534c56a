// `pagekv cache rm`.
#include "tools/cache_remove.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "tools/cache.h"
#include "tools/cache_text.h"
#include "tools/console.h"

namespace pagekv_tool {
namespace {

using pagekv::TierOutcome;

std::string refusal(const CacheRecord& record, const pagekv::TierAnswer& answer) {
  const std::string why = answer.outcome == TierOutcome::io_error
                              ? std::generic_category().message(answer.system_error)
                          : answer.outcome == TierOutcome::read_only ? "the tier cannot be written"
                                                                     : name(answer.outcome);
  return "cannot remove record " + hex(record.key) + ": " + why;
}

pagekv::Result<std::vector<CacheRecord>> select_keys(const CacheRecords& records,
                                                     const CacheOptions& options) {
  std::vector<CacheRecord> selected;
  std::set<pagekv::Digest> keys;
  for (const std::string& digits : options.keys) {
    const auto record = find_record(records, digits);
    if (!record) return tl::unexpected(record.error());
    if (keys.insert(record->key).second) selected.push_back(*record);
  }
  return selected;
}

// The name goes last: pages without it are of no use.
pagekv::Result<std::vector<CacheRecord>> select_space(const CacheRecords& records,
                                                      const CacheOptions& options) {
  const auto space = find_digest(records.spaces(), options.space, "namespace");
  if (!space) return tl::unexpected(space.error());
  std::vector<CacheRecord> selected;
  for (const CacheRecord::Kind kind : {CacheRecord::Kind::page, CacheRecord::Kind::name}) {
    std::copy_if(
        records.all.begin(), records.all.end(), std::back_inserter(selected),
        [&](const CacheRecord& record) { return record.kind == kind && record.space == *space; });
  }
  return selected;
}

pagekv::Result<std::vector<CacheRecord>> select(const CacheRecords& records,
                                                const CacheOptions& options) {
  if (options.all) return records.all;
  return options.keys.empty() ? select_space(records, options) : select_keys(records, options);
}

int remove_of_tier(const Place& place, const CacheOptions& options) {
  const auto records = list_records(*place.tier);
  if (!records) return report_error(place.path + ": " + records.error().message());
  const auto selected = select(*records, options);
  if (!selected) return report_error(place.path + ": " + selected.error().message());
  const auto tier = open_for_writing(place);
  if (!tier) return report_error(tier.error().message());
  const auto removed = remove_records(**tier, *selected);
  if (!removed) return report_error(place.path + ": " + removed.error().message());
  for (const CacheRecord& record : *selected) {
    if (!options.keys.empty()) fmt::print("{}\n", hex(record.key));
  }
  fmt::print("removed {}, {}\n", counted(removed->count, "record"), exact_bytes(removed->bytes));
  return kExitOk;
}

int remove_files(const std::vector<Place>& places) {
  Removed removed;
  for (const Place& place : places) {
    const SnapshotFile& file = place.snapshots.front();
    if (auto ok = remove_file(file); !ok) return report_error(ok.error().message());
    fmt::print("{}\n", file.path);
    ++removed.count;
    removed.bytes += file.bytes;
  }
  fmt::print("removed {}, {}\n", counted(removed.count, "snapshot"), exact_bytes(removed.bytes));
  return kExitOk;
}

// What the command line says must suit every path before anything goes.
int check(const std::vector<Place>& places, bool of_records) {
  for (const Place& place : places) {
    if (place.kind == Place::Kind::folder) {
      return report_error(place.path + " is a folder; rm takes the snapshots in it by their names");
    }
    const bool tier = place.kind == Place::Kind::tier;
    if (tier && !of_records) {
      return report_error(place.path + " is a tier: --key, --namespace or --all say what goes",
                          kExitUsage);
    }
    if (!tier && of_records) {
      return report_error(
          place.path + " is a snapshot; --key, --namespace and --all are for records of a tier",
          kExitUsage);
    }
  }
  if (of_records && places.size() > 1) {
    return report_error("--key, --namespace and --all take one tier", kExitUsage);
  }
  return kExitOk;
}

}  // namespace

pagekv::Result<Removed> remove_records(pagekv::Tier& tier,
                                       const std::vector<CacheRecord>& records) {
  Removed removed;
  for (const CacheRecord& record : records) {
    const auto batch = tier.remove({&record.key, 1});
    if (!batch) return tl::unexpected(batch.error());
    batch->wait();
    const pagekv::TierAnswer& answer = batch->answer(0);
    if (answer.outcome == TierOutcome::absent) continue;
    if (answer.outcome != TierOutcome::ok) {
      return pagekv::fail(pagekv::ErrorCode::io_error, "{s}", {answer.system_error},
                          refusal(record, answer));
    }
    ++removed.count;
    removed.bytes += record.bytes;
  }
  return removed;
}

pagekv::Status remove_file(const SnapshotFile& file) {
  std::error_code error;
  std::filesystem::remove(file.path, error);
  if (!error) return {};
  return pagekv::fail(pagekv::ErrorCode::io_error, "{s}", {error.value()},
                      "cannot remove " + file.path + ": " + error.message());
}

int cache_remove(const CacheOptions& options) {
  bool failed = false;
  const std::vector<Place> places = find_places(options.paths, failed);
  if (failed) return kExitFailure;
  const bool of_records = options.all || !options.keys.empty() || !options.space.empty();
  if (const int code = check(places, of_records); code != kExitOk) return code;
  return of_records ? remove_of_tier(places.front(), options) : remove_files(places);
}

}  // namespace pagekv_tool
