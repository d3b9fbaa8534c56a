#include "core/prefix/path.h"

#include <algorithm>

#include "core/windows.h"

namespace pagekv::inline v0::internal {

namespace {

// Siblings that are looked at where windows have let go of pages: thousands may begin alike.
constexpr int kMostSiblings = 64;

// Follows the windows along a path, page by page.
class Windows {
 public:
  explicit Windows(const CacheLayout& layout)
      : layout_(layout), first_page_(static_cast<std::size_t>(layout.group_count())) {}

  // The most tokens of `node`, up to `most`, that a prefix can end with, whatever is before it.
  std::int64_t rows(const PrefixNode& node, std::int64_t most) const {
    for (std::size_t group = 0; group < first_page_.size(); ++group) {
      const KeptPage::Held& held = node.pages[group];
      if (held.id != kNoPage) most = std::min<std::int64_t>(most, held.rows);
    }
    return most;
  }
  // Whether the first `tokens` tokens, which end in `node`, can be served.
  bool serve(const PrefixNode& node, std::int64_t tokens) const {
    for (std::size_t group = 0; group < first_page_.size(); ++group) {
      const std::int64_t needed = first_needed_page(layout_, static_cast<int>(group), tokens);
      if (needed < first_page_[group]) return false;
      if (needed <= node.depth && node.pages[group].id == kNoPage) return false;
    }
    return true;
  }
  // Goes on behind `node`.
  void pass(const PrefixNode& node) {
    for (std::size_t group = 0; group < first_page_.size(); ++group) {
      if (node.pages[group].rows < node.token_count) first_page_[group] = node.depth + 1;
    }
  }
  // By group: the first page that a prefix ending in `node` has.
  std::vector<std::int64_t> first_page(const PrefixNode& node) const {
    std::vector<std::int64_t> first = first_page_;
    for (std::size_t group = 0; group < first.size(); ++group) {
      if (node.pages[group].id == kNoPage) first[group] = node.depth + 1;
    }
    return first;
  }

 private:
  const CacheLayout& layout_;
  std::vector<std::int64_t> first_page_;
};

}  // namespace

std::int64_t first_needed_page(const CacheLayout& layout, int group, std::int64_t tokens) {
  return first_needed_token(layout.group(group).window_tokens, tokens) / layout.page_tokens();
}

PrefixPath find_path(const CacheLayout& layout, const PrefixNode& root,
                     std::span<const TokenId> tokens) {
  const auto page_tokens = static_cast<std::size_t>(layout.page_tokens());
  PrefixPath best;
  best.first_page.resize(static_cast<std::size_t>(layout.group_count()));
  std::vector<PrefixNode*> nodes;  // all of whose tokens are found
  nodes.reserve(tokens.size() / page_tokens + 1);
  std::size_t best_nodes = 0;
  PrefixNode* best_last = nullptr;
  Windows windows(layout);
  const PrefixNode* node = &root;
  for (std::size_t begin = 0; node != nullptr && begin < tokens.size(); begin += page_tokens) {
    AlikeChildren children(*node,
                           tokens.subspan(begin, std::min(page_tokens, tokens.size() - begin)));
    ChildMatch match = children.next();
    PrefixNode* whole =
        match.common == static_cast<std::int64_t>(page_tokens) ? match.child : nullptr;
    // Where a window has let go of the page that has most in common, a less alike one may serve.
    for (int looks = 0; match.child != nullptr && looks < kMostSiblings; ++looks) {
      const std::int64_t found =
          static_cast<std::int64_t>(begin) + windows.rows(*match.child, match.common);
      if (found > best.tokens && windows.serve(*match.child, found)) {
        best.tokens = found;
        best.first_page = windows.first_page(*match.child);
        best_nodes = nodes.size();
        best_last = match.child;
      }
      if (best.tokens >= static_cast<std::int64_t>(begin) + match.common) break;
      match = children.next();
    }
    if (whole != nullptr) {
      nodes.push_back(whole);
      windows.pass(*whole);
    }
    node = whole;
  }
  nodes.resize(best_nodes);
  if (best_last != nullptr) nodes.push_back(best_last);
  best.nodes = std::move(nodes);
  return best;
}

}  // namespace pagekv::inline v0::internal
