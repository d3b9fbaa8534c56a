// `pagekv cache prune`.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>

#include "pagekv/page_tier.h"
#include "tools/cache.h"
#include "tools/cache_place.h"
#include "tools/cache_records.h"
#include "tools/cache_remove.h"
#include "tools/cache_text.h"
#include "tools/console.h"

namespace pagekv_tool {
namespace {

using pagekv::Digest;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// What was used before then goes.
std::int64_t oldest_ns(const CacheOptions& options) {
  if (!options.older_than_seconds) return std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kNsPerSecond = 1'000'000'000;
  const std::int64_t seconds = now_ns() / kNsPerSecond - *options.older_than_seconds;
  return std::max<std::int64_t>(seconds, 0) * kNsPerSecond;
}

std::int64_t most_bytes(const CacheOptions& options) {
  return options.to_bytes ? static_cast<std::int64_t>(*options.to_bytes)
                          : std::numeric_limits<std::int64_t>::max();
}

void print_pruned(const char* noun, const Removed& removed, const Removed& left) {
  fmt::print("pruned {}, {}; {} left, {}\n", counted(removed.count, noun),
             exact_bytes(removed.bytes), counted(left.count, noun), exact_bytes(left.bytes));
}

// --- a tier --------------------------------------------------------------------------------------

// Names are small, and without them the pages of their namespaces are of no use: they stay as long
// as one of those does.
std::vector<CacheRecord> too_old(const CacheRecords& records, std::int64_t oldest) {
  std::set<Digest> used;  // namespaces
  std::vector<CacheRecord> old;
  for (const CacheRecord& record : records.all) {
    const bool page = record.kind == CacheRecord::Kind::page;
    if (page && record.last_use_ns >= oldest) used.insert(*record.space);
  }
  for (const CacheRecord& record : records.all) {
    const bool needed =
        record.kind == CacheRecord::Kind::name && record.space && used.contains(*record.space);
    if (record.last_use_ns < oldest && !needed) old.push_back(record);
  }
  return old;
}

// Evicts down to `bytes`, names of namespaces with pages last. Errors: those of prune() and pin().
pagekv::Result<Removed> prune_to(pagekv::Tier& tier, std::int64_t bytes) {
  const auto records = list_records(tier);
  if (!records) return tl::unexpected(records.error());
  std::vector<Digest> names;
  std::int64_t name_bytes = 0;
  for (const CacheRecord& record : records->all) {
    if (record.kind != CacheRecord::Kind::name || !record.space) continue;
    names.push_back(record.key);
    name_bytes += record.bytes;
  }
  if (name_bytes > bytes) names.clear();
  if (auto pinned = tier.pin(names); !pinned) return tl::unexpected(pinned.error());
  const auto pruned = tier.prune(bytes);
  tier.unpin(names);
  if (!pruned) return tl::unexpected(pruned.error());
  const pagekv::TierStats stats = tier.stats();
  return Removed{.count = stats.evicted, .bytes = stats.evicted_bytes};
}

pagekv::Result<Removed> prune(pagekv::Tier& tier, const CacheOptions& options) {
  const auto records = list_records(tier);
  if (!records) return tl::unexpected(records.error());
  auto removed = remove_records(tier, too_old(*records, oldest_ns(options)));
  if (!removed || !options.to_bytes) return removed;
  const auto evicted = prune_to(tier, most_bytes(options));
  if (!evicted) return tl::unexpected(evicted.error());
  return Removed{.count = removed->count + evicted->count,
                 .bytes = removed->bytes + evicted->bytes};
}

int prune_tier(const Place& place, const CacheOptions& options) {
  const auto tier = open_for_writing(place);
  if (!tier) return report_error(tier.error().message());
  const auto removed = prune(**tier, options);
  if (!removed) return report_error(place.path + ": " + removed.error().message());
  const pagekv::TierStats stats = (*tier)->stats();
  print_pruned("record", *removed, {.count = stats.records, .bytes = stats.bytes});
  if (stats.bytes <= most_bytes(options)) return kExitOk;
  return report_error(place.path + ": what is left is being written, or cannot be removed");
}

// --- a folder of snapshots -----------------------------------------------------------------------

int prune_folder(Place place, const CacheOptions& options) {
  std::vector<SnapshotFile>& files = place.snapshots;
  std::stable_sort(files.begin(), files.end(), [](const SnapshotFile& a, const SnapshotFile& b) {
    return a.modified_ns < b.modified_ns;
  });
  Removed left{.count = static_cast<std::int64_t>(files.size())};
  for (const SnapshotFile& file : files) left.bytes += file.bytes;
  const std::int64_t oldest = oldest_ns(options);
  Removed removed;
  for (const SnapshotFile& file : files) {
    if (file.modified_ns >= oldest && left.bytes <= most_bytes(options)) break;
    if (auto ok = remove_file(file); !ok) return report_error(ok.error().message());
    fmt::print("{}\n", file.path);
    ++removed.count;
    removed.bytes += file.bytes;
    --left.count;
    left.bytes -= file.bytes;
  }
  print_pruned("snapshot", removed, left);
  for (const pagekv::Error& error : place.unreadable) report_error(error.message());
  return place.unreadable.empty() ? kExitOk : kExitFailure;
}

}  // namespace

int cache_prune(const CacheOptions& options) {
  if (!options.to_bytes && !options.older_than_seconds) {
    return report_error("prune needs --to SIZE, --older-than TIME, or both", kExitUsage);
  }
  auto place = find_place(options.paths.front());
  if (!place) return report_error(place.error().message());
  switch (place->kind) {
    case Place::Kind::tier: return prune_tier(*place, options);
    case Place::Kind::folder: return prune_folder(std::move(*place), options);
    case Place::Kind::snapshot: break;
  }
  return report_error(place->path + " is a snapshot; prune takes a folder, and rm takes files");
}

}  // namespace pagekv_tool
