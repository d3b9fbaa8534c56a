#include "core/holder.h"

#include <algorithm>
#include <cassert>
#include <mutex>

#include "core/store_core.h"

namespace pagekv::inline v0::internal {

PageHolder::PageHolder(std::shared_ptr<StoreCore> store, std::int64_t most_tokens)
    : store_(std::move(store)), tables_(static_cast<std::size_t>(store_->layout().group_count())) {
  for (PageTable& table : tables_) {
    table.pages.reserve(static_cast<std::size_t>(store_->pages_over(most_tokens)));
  }
}

std::int64_t PageHolder::first(int group) const {
  assert(group >= 0 && group < groups());
  const PageTable& pages = table(group);
  return std::max(pages.first_page * store_->layout().page_tokens(), pages.first_token);
}

void PageHolder::leave(HolderList& list) {
  const std::lock_guard lock(store_->mutex());
  for (int group = 0; group < groups(); ++group) store_->shrink(group, table(group), 0);
  list.remove(*this);
}

void HolderList::add(PageHolder& holder) {
  holder.next_ = first_;
  if (first_ != nullptr) first_->previous_ = &holder;
  first_ = &holder;
  ++count_;
}

void HolderList::remove(PageHolder& holder) {
  if (holder.previous_ != nullptr) {
    holder.previous_->next_ = holder.next_;
  } else {
    first_ = holder.next_;
  }
  if (holder.next_ != nullptr) holder.next_->previous_ = holder.previous_;
  holder.previous_ = holder.next_ = nullptr;
  --count_;
}

SequenceState::SequenceState(std::shared_ptr<StoreCore> store)
    : PageHolder(store, store->options().max_sequence_tokens) {
  const std::lock_guard lock(store->mutex());
  store->sequences.add(*this);
}

SequenceState::~SequenceState() {
  leave(store()->sequences);
}

ViewState::ViewState(std::shared_ptr<StoreCore> store, std::int64_t tokens)
    : PageHolder(store, tokens) {
  const std::lock_guard lock(store->mutex());
  store->views.add(*this);
}

ViewState::~ViewState() {
  leave(store()->views);
}

}  // namespace pagekv::inline v0::internal
