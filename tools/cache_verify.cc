// `pagekv cache verify`.
#include <fmt/format.h>

#include "tools/cache.h"
#include "tools/cache_place.h"
#include "tools/cache_text.h"
#include "tools/console.h"

namespace pagekv_tool {
namespace {

struct Verified {
  std::int64_t snapshots = 0;
  std::int64_t records = 0;
  std::int64_t bytes = 0;
  std::int64_t other_files = 0;  // beside snapshots: not looked at
  std::int64_t faults = 0;
};

void add_fault(Verified& verified, const std::string& text) {
  ++verified.faults;
  fmt::print("{}\n", text);
}

void verify_snapshot(const SnapshotFile& file, Verified& verified) {
  ++verified.snapshots;
  verified.bytes += file.bytes;
  const auto info = pagekv::inspect(file.path, true);
  if (!info) add_fault(verified, info.error().message());
}

void verify_tier(const Place& place, Verified& verified) {
  const auto check = place.tier->verify();
  if (!check) return add_fault(verified, place.path + ": " + check.error().message());
  verified.records += check->records;
  verified.bytes += check->bytes;
  for (const pagekv::Digest& key : check->corrupt) {
    add_fault(verified, fmt::format("{}: record {} is not what was put", place.path, hex(key)));
  }
  for (const pagekv::Digest& key : check->unreadable) {
    add_fault(verified, fmt::format("{}: record {} cannot be read", place.path, hex(key)));
  }
}

}  // namespace

int cache_verify(const CacheOptions& options) {
  bool failed = false;
  Verified verified;
  const std::vector<Place> places = find_places(options.paths, failed);
  if (places.empty()) return kExitFailure;
  for (const Place& place : places) {
    for (const SnapshotFile& file : place.snapshots) verify_snapshot(file, verified);
    for (const pagekv::Error& error : place.unreadable) add_fault(verified, error.message());
    if (place.tier) verify_tier(place, verified);
    verified.other_files += place.other_files;
  }
  fmt::print("{} and {} checked, {}: {}\n", counted(verified.snapshots, "snapshot"),
             counted(verified.records, "record"), exact_bytes(verified.bytes),
             verified.faults == 0 ? "all whole" : counted(verified.faults, "fault"));
  if (verified.other_files > 0) {
    print_note(counted(verified.other_files, "other file") + " beside the snapshots not looked at");
  }
  return failed || verified.faults > 0 ? kExitFailure : kExitOk;
}

}  // namespace pagekv_tool
