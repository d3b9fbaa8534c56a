// Giving pages up: to the reclaimer, and when a namespace ends.
#include <algorithm>
#include <cassert>
#include <mutex>

#include "core/prefix/index_state.h"

namespace pagekv::inline v0::internal {

namespace {

// The page as a view of its own, whose prefix a window might have let go of.
View view_of(const std::shared_ptr<StoreCore>& store, const PrefixNode& node) {
  const std::int64_t tokens = node.depth * store->layout().page_tokens() + node.token_count;
  auto view = std::make_shared<ViewState>(store, tokens);
  const std::lock_guard store_lock(store->mutex());
  for (int group = 0; group < view->groups(); ++group) {
    const KeptPage::Held& held = node.pages[static_cast<std::size_t>(group)];
    const bool whole = held.rows == node.token_count;
    PageTable& table = view->table(group);
    table.pages.assign(static_cast<std::size_t>(node.depth + 1), kNoPage);
    table.first_page = whole ? node.depth : node.depth + 1;
    if (!whole) continue;
    store->pool(group).add_reference(held.id);
    table.pages.back() = held.id;
  }
  view->length = tokens;
  return View(std::move(view));
}

}  // namespace

Reclaimer::Pages PrefixIndexState::pages(int group) const noexcept {
  const std::lock_guard store_lock(store_->mutex());
  return {.reclaimable = store_->pool(group).reclaimable_pages(),
          .pinned = store_->pool(group).pinned_pages()};
}

void PrefixIndexState::reclaim(int group, std::int64_t pages) noexcept {
  const std::shared_lock offering(offering_);
  Offers offers;
  {
    const std::lock_guard lock(mutex_);
    Goal goal{.group = group, .missing = pages};
    give_up_leaves(goal, offers);
    layout().group(group).window_tokens > 0 ? give_up_windows(goal) : give_up_subtrees(goal);
  }
  for (const PageSink::Page& page : offers) sink_->give_up(page);
}

// REQUIRES the store's mutex.
bool PrefixIndexState::in_use(const KeptPage& page) const {
  for (int group = 0; group < layout().group_count(); ++group) {
    const PageId id = page.pages[static_cast<std::size_t>(group)].id;
    if (id != kNoPage && store_->pool(group).references(id) > 1) return true;
  }
  return false;
}

// The oldest page that ends a prefix and that nobody uses; null: there is none.
PrefixNode* PrefixIndexState::next_leaf() {
  const std::lock_guard store_lock(store_->mutex());
  // A page that is followed by younger ones is as young as they are. Where all of those are in use,
  // it comes round again, but only once.
  for (std::int64_t looks = totals_.stored_pages; looks >= 0;) {
    auto* node = static_cast<PrefixNode*>(order_.oldest());
    if (node == nullptr) return nullptr;
    if (in_use(*node)) {
      order_.park(*node);
    } else if (node->children.empty()) {
      return node;
    } else {
      order_.touch(*node);
      --looks;
    }
  }
  return nullptr;
}

void PrefixIndexState::give_up_leaves(Goal& goal, Offers& offers) {
  while (goal.missing > 0) {
    PrefixNode* leaf = next_leaf();
    if (leaf == nullptr) return;
    PrefixNode* before = leaf->parent;
    give_up(*leaf, goal, offers);
    // What no window can serve any more goes with it.
    while (layout().has_windows() && before->parent != nullptr && before->children.empty() &&
           !serves(*before)) {
      PrefixNode* next = before->parent;
      {
        const std::lock_guard store_lock(store_->mutex());
        if (before->pins > 0 || in_use(*before)) break;
      }
      give_up(*before, goal, offers);
      before = next;
    }
  }
}

// Whether a prefix can end in this page.
bool PrefixIndexState::serves(const PrefixNode& node) const {
  std::int64_t rows = node.token_count;
  for (int group = 0; group < layout().group_count(); ++group) {
    const KeptPage::Held& held = node.pages[static_cast<std::size_t>(group)];
    if (held.id != kNoPage) rows = std::min<std::int64_t>(rows, held.rows);
  }
  const std::int64_t tokens = node.depth * page_tokens() + rows;
  for (int group = 0; group < layout().group_count(); ++group) {
    const std::int64_t first = first_needed_page(layout(), group, tokens);
    for (const PrefixNode* at = &node; at->parent != nullptr && at->depth >= first;
         at = at->parent) {
      if (layout().group(group).window_tokens == 0) break;  // all pages are there
      const KeptPage::Held& held = at->pages[static_cast<std::size_t>(group)];
      if (held.rows < (at == &node ? rows : at->token_count)) return false;
    }
  }
  return true;
}

void PrefixIndexState::give_up(PrefixNode& leaf, Goal& goal, Offers& offers) {
  goal.missing -= leaf.pages[static_cast<std::size_t>(goal.group)].id == kNoPage ? 0 : 1;
  if (sink_ && leaf.token_count == page_tokens()) offer(leaf, offers);
  count(*leaf.space, [](PrefixStats& stats) { ++stats.evicted_pages; });
  remove_leaf(leaf);
}

// Never fails: a page that finds no memory is not offered.
void PrefixIndexState::offer(PrefixNode& node, Offers& offers) {
  try {
    offers.push_back({.space = node.space->digest(),
                      .digest = digest_of(node),
                      .parent = parent_digest(node),
                      .tokens = {node.tokens().begin(), node.tokens().end()},
                      .view = view_of(store_, node)});
  } catch (const std::bad_alloc&) {
    // Not offered: the page goes all the same.
  }
}

// Pages of a window that nobody reads, where what follows is in use: what can be found ends earlier
// from then on.
void PrefixIndexState::give_up_windows(Goal& goal) {
  const std::lock_guard store_lock(store_->mutex());
  order_.for_each([&](KeptPage& page) {
    const PageId id = page.pages[static_cast<std::size_t>(goal.group)].id;
    if (goal.missing <= 0 || id == kNoPage || store_->pool(goal.group).references(id) > 1) return;
    let_go(static_cast<PrefixNode&>(page), goal.group);
    --goal.missing;
  });
}

// Pages that nobody reads, of nodes that are in use all the same: those who use what follows have
// other pages of the same tokens, or share but the window's. Such a node leaves the index with all
// that follows it; what is in use stays with its users.
void PrefixIndexState::give_up_subtrees(Goal& goal) {
  while (goal.missing > 0) {
    PrefixNode* node = nullptr;
    {
      const std::lock_guard store_lock(store_->mutex());
      order_.for_each([&](KeptPage& page) {
        const PageId id = page.pages[static_cast<std::size_t>(goal.group)].id;
        const bool alone = id != kNoPage && store_->pool(goal.group).references(id) == 1;
        if (node == nullptr && alone) node = static_cast<PrefixNode*>(&page);
      });
    }
    if (node == nullptr) return;
    remove_below(*node);
    Offers none;
    give_up(*node, goal, none);
  }
}

void PrefixIndexState::remove_leaf(PrefixNode& node) {
  assert(node.children.empty());
  if (events_.wanted() && node.token_count == page_tokens()) {
    events_.add([&] {
      return PrefixEvent{.kind = PrefixEvent::Kind::removed,
                         .space = node.space->digest(),
                         .digest = digest_of(node),
                         .parent = parent_digest(node)};
    });
  }
  count_node(node, -1);
  {
    const std::lock_guard store_lock(store_->mutex());
    order_.remove(node);
    for (int group = 0; group < layout().group_count(); ++group) let_go(node, group);
  }
  unlink(node);  // and frees it
}

// All that follows `node`; not by recursion, prefixes are long.
void PrefixIndexState::remove_below(PrefixNode& node) {
  PrefixNode* at = &node;
  for (;;) {
    if (!at->children.empty()) {
      at = at->children.back().get();
      continue;
    }
    if (at == &node) return;
    PrefixNode* parent = at->parent;
    remove_leaf(*at);
    at = parent;
  }
}

void PrefixIndexState::end(PrefixSpace& space) {
  space.ended = true;
  std::erase_if(pins_, [&](PrefixPinState* pin) {
    if (pin->last->space != &space) return false;
    pin->last = nullptr;
    return true;
  });
  const bool told = events_.wanted();
  if (told) {
    events_.add(
        [&] { return PrefixEvent{.kind = PrefixEvent::Kind::cleared, .space = space.digest()}; });
  }
  remove_below(space.root);
}

// Until the sink has seen all pages that were taken out before: none comes after the end of its
// namespace.
void PrefixIndexState::wait_for_offers() {
  const std::lock_guard none(offering_);
}

void PrefixIndexState::invalidate(PrefixSpace& space) {
  {
    const std::lock_guard lock(mutex_);
    if (space.ended) return;
    end(space);
    spaces_.erase(space.bytes());
  }
  if (!sink_) return;
  wait_for_offers();
  sink_->invalidate(space.digest());
}

void PrefixIndexState::clear() {
  std::map<std::string, std::shared_ptr<PrefixSpace>> ended;
  {
    const std::lock_guard lock(mutex_);
    ended.swap(spaces_);
    for (const auto& [bytes, space] : ended) end(*space);
  }
  if (!sink_) return;
  wait_for_offers();
  for (const auto& [bytes, space] : ended) sink_->invalidate(space->digest());
}

}  // namespace pagekv::inline v0::internal
