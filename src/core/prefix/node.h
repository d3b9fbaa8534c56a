// The tree of one namespace: a node is a page of tokens behind the pages of its ancestors.
//
// Only the last page of a prefix may be shorter than a page, so only leaves are. Siblings differ,
// but may begin alike: where a hit ends inside a page, the sibling with the longest common
// beginning serves it. No sibling is a beginning of another.
//
// Where the windows of a group have moved on while a last page grew, the group keeps the
// page as it was, of fewer rows.
//
// Structure and tokens are guarded by the index's mutex, the KeptPage by the store's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/kept_page.h"
#include "pagekv/prefix_index.h"

namespace pagekv::inline v0::internal {

class PrefixSpace;

struct PrefixNode : KeptPage {
  PrefixSpace* space = nullptr;
  PrefixNode* parent = nullptr;  // null: the root, which holds no page
  std::int64_t depth = 0;        // pages before it
  std::unique_ptr<TokenId[]> token_ids;
  std::uint32_t token_count = 0;
  std::vector<std::unique_ptr<PrefixNode>> children;  // ascending by tokens
  std::optional<Digest> digest;                       // once somebody asked for it

  std::span<const TokenId> tokens() const { return {token_ids.get(), token_count}; }
  std::int64_t bytes(int groups) const;  // memory of the node
};

struct ChildMatch {
  PrefixNode* child = nullptr;
  std::int64_t common = 0;  // tokens with which both begin
};

// The children that begin like some tokens, those with most in common first. In the order of tokens
// they stand around the place where the tokens would be, the more alike the nearer.
class AlikeChildren {
 public:
  AlikeChildren(const PrefixNode& node, std::span<const TokenId> tokens);
  ChildMatch next();  // no child: there are no more

 private:
  ChildMatch before() const;
  ChildMatch behind() const;

  std::span<const std::unique_ptr<PrefixNode>> children_;
  std::span<const TokenId> tokens_;
  std::size_t begin_;  // children [begin_, end_) have been returned
  std::size_t end_;
};

// The most alike; null where no child begins like them.
inline ChildMatch find_child(const PrefixNode& node, std::span<const TokenId> tokens) {
  return AlikeChildren(node, tokens).next();
}

// Makes `child` a child of `parent`. REQUIRES: parent.children has room, no child begins alike.
PrefixNode& link(PrefixNode& parent, std::unique_ptr<PrefixNode> child);
std::unique_ptr<PrefixNode> unlink(PrefixNode& node);

std::unique_ptr<TokenId[]> copy_tokens(std::span<const TokenId> tokens);
// The node's digest, and those of its ancestors on the way. REQUIRES: full pages.
const Digest& digest_of(PrefixNode& node);
const Digest& parent_digest(PrefixNode& node);  // the namespace's for a first page

}  // namespace pagekv::inline v0::internal
