// Snapshots and tiers on the disk, as an engine leaves them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pagekv/pagekv.h"

namespace pagekv::testing {

inline constexpr std::int64_t kCachedTokens = 64;  // in pages of 16, of two groups of layers

// A sequence of kCachedTokens tokens from `first` on, and where it goes.
class DiskCache {
 public:
  explicit DiskCache(TokenId first);

  void save(const std::string& path, const std::string& model);
  // Stores the pages in a tier that is made if it is missing: two records for each page of which
  // the window layer still has the rows, one for others, and one that names the namespace.
  void store(const std::string& path, const std::string& model);

 private:
  std::vector<TokenId> tokens_;
  Store store_;
  Sequence sequence_;
};

}  // namespace pagekv::testing
