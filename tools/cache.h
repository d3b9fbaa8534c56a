// `pagekv cache`: what snapshots and tiers hold on the disk, whether they are whole, and less of
// them.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pagekv_tool {

enum class CacheVerb { list, show, verify, remove, prune };

struct CacheOptions {
  CacheVerb verb = CacheVerb::list;
  std::vector<std::string> paths;
  bool records = false;  // ls: those of tiers, one by one
  bool quiet = false;
  std::string format = "table";
  std::vector<std::string> keys;  // of records, or their beginnings
  std::string space;              // of a namespace's digest, or its beginning
  bool all = false;
  std::optional<std::uint64_t> to_bytes;
  std::optional<std::int64_t> older_than_seconds;

  bool json() const { return format == "json"; }
};

CLI::App* add_cache(CLI::App& app, CacheOptions& options);
int cache(const CacheOptions& options);

// One file each.
int cache_list(const CacheOptions& options);
int cache_show(const CacheOptions& options);
int cache_verify(const CacheOptions& options);
int cache_remove(const CacheOptions& options);
int cache_prune(const CacheOptions& options);

}  // namespace pagekv_tool
