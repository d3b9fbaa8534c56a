#include "core/prefix/index_state.h"

#include <algorithm>

namespace pagekv::inline v0::internal {

PrefixIndexState::PrefixIndexState(std::shared_ptr<StoreCore> store, PrefixIndexOptions options)
    : store_(std::move(store)), sink_(std::move(options.sink)), events_(options.max_events) {}

PrefixIndexState::~PrefixIndexState() {
  for (const auto& [bytes, space] : spaces_) end(*space);
}

std::shared_ptr<PrefixSpace> PrefixIndexState::open(const NamespaceSpec& spec) {
  std::string bytes = namespace_bytes(spec, layout(), store_->device().name());
  const std::lock_guard lock(mutex_);
  if (const auto at = spaces_.find(bytes); at != spaces_.end()) return at->second;
  forget_idle_spaces();
  auto space = std::make_shared<PrefixSpace>(this, bytes);
  spaces_.emplace(std::move(bytes), space);
  return space;
}

// Namespaces that store nothing and whose handles are gone. Looked for whenever their number has
// doubled, so that names that come and go cost nothing in the end.
void PrefixIndexState::forget_idle_spaces() {
  if (spaces_.size() < spaces_worth_a_look_) return;
  std::erase_if(spaces_, [](const auto& entry) {
    return entry.second.use_count() == 1 && entry.second->root.children.empty();
  });
  spaces_worth_a_look_ = std::max<std::size_t>(16, 2 * spaces_.size());
}

std::size_t PrefixIndexState::namespace_count() const {
  const std::lock_guard lock(mutex_);
  return spaces_.size();
}

PrefixStats PrefixIndexState::stats() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

PrefixStats PrefixIndexState::stats(const PrefixSpace& space) const {
  const std::lock_guard lock(mutex_);
  return space.stats;
}

std::vector<PrefixEvent> PrefixIndexState::take_events() {
  const std::lock_guard lock(mutex_);
  return events_.take();
}

Status PrefixIndexState::check_node(const PrefixNode& node) const {
  const auto broken = [&](const char* text) {
    return fail(ErrorCode::books_broken, text, {node.depth, node.token_count});
  };
  const PrefixNode* before = nullptr;
  for (const std::unique_ptr<PrefixNode>& child : node.children) {
    if (child->parent != &node || child->space != node.space) return broken("a child of another");
    if (before != nullptr) {
      const auto one = before->tokens();
      const auto other = child->tokens();
      const bool begins = std::ranges::mismatch(one, other).in1 == one.end();
      if (begins || !std::ranges::lexicographical_compare(one, other)) {
        return broken("children out of order behind page {0}");
      }
    }
    before = child.get();
  }
  if (node.parent == nullptr) return {};
  if (node.token_count == 0 || node.token_count > page_tokens() ||
      (node.token_count < page_tokens() && !node.children.empty())) {
    return broken("page {0} of a prefix has {1} tokens");
  }
  if (node.pins < (node.children.empty() ? 0u : node.children.front()->pins)) {
    return broken("page {0} is pinned less often than the one behind it");
  }
  if ((node.place == KeptPage::Place::none) != (node.pins > 0)) {
    return broken("page {0} is pinned and in the eviction order, or neither");
  }
  return {};
}

Status PrefixIndexState::check() const {
  const std::lock_guard lock(mutex_);
  const std::lock_guard store_lock(store_->mutex());
  std::int64_t pages = 0;
  std::int64_t tokens = 0;
  for (const auto& [bytes, space] : spaces_) {
    std::vector<const PrefixNode*> open{&space->root};
    while (!open.empty()) {
      const PrefixNode& node = *open.back();
      open.pop_back();
      if (auto ok = check_node(node); !ok) return ok;
      pages += node.parent != nullptr ? 1 : 0;
      tokens += node.token_count;
      for (const auto& child : node.children) open.push_back(child.get());
    }
  }
  if (pages != totals_.stored_pages || tokens != totals_.stored_tokens) {
    return fail(ErrorCode::books_broken, "{0} pages of {1} tokens are stored, {2} of {3} found",
                {totals_.stored_pages, totals_.stored_tokens, pages, tokens});
  }
  return {};
}

}  // namespace pagekv::inline v0::internal
