#include "core/prefix/node.h"

#include <algorithm>
#include <cassert>

#include "core/prefix/digest.h"
#include "core/prefix/space.h"

namespace pagekv::inline v0::internal {

namespace {

std::int64_t common_tokens(std::span<const TokenId> one, std::span<const TokenId> other) {
  const std::size_t most = std::min(one.size(), other.size());
  const auto end = one.begin() + static_cast<std::ptrdiff_t>(most);
  return std::mismatch(one.begin(), end, other.begin()).first - one.begin();
}

// The first child that is not before `tokens`.
auto child_at(const PrefixNode& node, std::span<const TokenId> tokens) {
  return std::lower_bound(node.children.begin(), node.children.end(), tokens,
                          [](const std::unique_ptr<PrefixNode>& child, auto wanted) {
                            return std::ranges::lexicographical_compare(child->tokens(), wanted);
                          });
}

}  // namespace

std::int64_t PrefixNode::bytes(int groups) const {
  return static_cast<std::int64_t>(sizeof(PrefixNode) + sizeof(PrefixNode*) +  // in its parent
                                   token_count * sizeof(TokenId)) +
         groups * static_cast<std::int64_t>(sizeof(KeptPage::Held));
}

AlikeChildren::AlikeChildren(const PrefixNode& node, std::span<const TokenId> tokens)
    : children_(node.children), tokens_(tokens) {
  begin_ = end_ = static_cast<std::size_t>(child_at(node, tokens) - node.children.begin());
}

ChildMatch AlikeChildren::before() const {
  if (begin_ == 0) return {};
  PrefixNode* child = children_[begin_ - 1].get();
  return {child, common_tokens(child->tokens(), tokens_)};
}

ChildMatch AlikeChildren::behind() const {
  if (end_ == children_.size()) return {};
  PrefixNode* child = children_[end_].get();
  return {child, common_tokens(child->tokens(), tokens_)};
}

ChildMatch AlikeChildren::next() {
  const ChildMatch left = before();
  const ChildMatch right = behind();
  if (left.common == 0 && right.common == 0) return {};
  const bool take_right = right.common >= left.common;
  take_right ? ++end_ : --begin_;
  return take_right ? right : left;
}

PrefixNode& link(PrefixNode& parent, std::unique_ptr<PrefixNode> child) {
  assert(parent.children.size() < parent.children.capacity());
  child->parent = &parent;
  return **parent.children.insert(child_at(parent, child->tokens()), std::move(child));
}

std::unique_ptr<PrefixNode> unlink(PrefixNode& node) {
  std::vector<std::unique_ptr<PrefixNode>>& siblings = node.parent->children;
  auto at = siblings.begin();
  if (siblings.size() > 1) at += child_at(*node.parent, node.tokens()) - at;
  assert(at != siblings.end() && at->get() == &node);
  std::unique_ptr<PrefixNode> owner = std::move(*at);
  siblings.erase(at);
  owner->parent = nullptr;
  return owner;
}

std::unique_ptr<TokenId[]> copy_tokens(std::span<const TokenId> tokens) {
  auto copy = std::make_unique<TokenId[]>(tokens.size());
  std::ranges::copy(tokens, copy.get());
  return copy;
}

const Digest& digest_of(PrefixNode& node) {
  std::vector<PrefixNode*> unknown;
  PrefixNode* known = &node;
  for (; known->parent != nullptr && !known->digest; known = known->parent) {
    unknown.push_back(known);
  }
  Digest digest = known->parent == nullptr ? node.space->digest() : *known->digest;
  for (auto at = unknown.rbegin(); at != unknown.rend(); ++at) {
    digest = page_digest(digest, (*at)->tokens());
    (*at)->digest = digest;
  }
  return *node.digest;
}

const Digest& parent_digest(PrefixNode& node) {
  return node.parent->parent == nullptr ? node.space->digest() : digest_of(*node.parent);
}

}  // namespace pagekv::inline v0::internal
