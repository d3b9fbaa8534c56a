// What of a token string is stored.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/prefix/node.h"
#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

struct PrefixPath {
  std::vector<PrefixNode*>
      nodes;  // from the first page on; of the last, perhaps only the beginning
  std::int64_t tokens = 0;
  // By group: first page from which on all pages of the path are there. Behind it a window has let
  // go of some.
  std::vector<std::int64_t> first_page;
};

// The longest prefix of `tokens` under `root` that all groups can serve: for a prefix of t tokens a
// group with a window has the pages of all that token t would see. REQUIRES the index's mutex.
PrefixPath find_path(const CacheLayout& layout, const PrefixNode& root,
                     std::span<const TokenId> tokens);

// First page that a row behind `tokens` tokens needs of `group`.
std::int64_t first_needed_page(const CacheLayout& layout, int group, std::int64_t tokens);

}  // namespace pagekv::inline v0::internal
