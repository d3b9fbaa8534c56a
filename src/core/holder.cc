#include "core/holder.h"

#include <mutex>

#include "core/store_core.h"

namespace pagekv::inline v0::internal {

PageHolder::PageHolder(std::shared_ptr<StoreCore> store)
    : store_(std::move(store)), tables_(static_cast<std::size_t>(store_->layout().group_count())) {}

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

SequenceState::SequenceState(std::shared_ptr<StoreCore> store) : PageHolder(std::move(store)) {
  StoreCore& core = *this->store();
  const auto most = static_cast<std::size_t>(core.pages_over(core.options().max_sequence_tokens));
  for (int group = 0; group < groups(); ++group) table(group).pages.reserve(most);
  const std::lock_guard lock(core.mutex());
  core.sequences.add(*this);
}

SequenceState::~SequenceState() { leave(store()->sequences); }

ViewState::ViewState(std::shared_ptr<StoreCore> store) : PageHolder(std::move(store)) {
  const std::lock_guard lock(this->store()->mutex());
  this->store()->views.add(*this);
}

ViewState::~ViewState() { leave(store()->views); }

}  // namespace pagekv::inline v0::internal
