#include "core/kept_page.h"

#include <cassert>

namespace pagekv::inline v0::internal {

void KeptList::push_front(KeptPage& page) {
  page.previous = nullptr;
  page.next = first_;
  (first_ != nullptr ? first_->previous : last_) = &page;
  first_ = &page;
}

void KeptList::remove(KeptPage& page) {
  (page.previous != nullptr ? page.previous->next : first_) = page.next;
  (page.next != nullptr ? page.next->previous : last_) = page.previous;
  page.previous = page.next = nullptr;
}

KeptList& EvictionOrder::list_of(const KeptPage& page) {
  assert(page.place != KeptPage::Place::none);
  if (page.place == KeptPage::Place::parked) return parked_;
  if (page.place == KeptPage::Place::woken) return woken_;
  return listed_[page.priority];
}

void EvictionOrder::remove(KeptPage& page) {
  if (page.place == KeptPage::Place::none) return;
  list_of(page).remove(page);
  page.place = KeptPage::Place::none;
}

void EvictionOrder::touch(KeptPage& page) {
  assert(page.pins == 0);
  remove(page);
  page.place = KeptPage::Place::listed;
  list_of(page).push_front(page);
}

void EvictionOrder::park(KeptPage& page) {
  remove(page);
  page.place = KeptPage::Place::parked;
  parked_.push_front(page);
}

void EvictionOrder::wake(KeptPage& page) {
  assert(page.place == KeptPage::Place::parked);
  remove(page);
  page.place = KeptPage::Place::woken;
  woken_.push_front(page);
}

KeptPage* EvictionOrder::oldest() {
  while (!woken_.empty()) touch(*woken_.last());  // in the order in which they woke
  for (KeptList& list : listed_) {
    if (!list.empty()) return list.last();
  }
  return nullptr;
}

}  // namespace pagekv::inline v0::internal
