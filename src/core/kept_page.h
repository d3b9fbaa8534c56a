// KeptPage: a page of tokens that is kept without a sequence, one page id per group, and the order
// in which such pages are given up.
//
// Everything here is guarded by the store's mutex. `pages` change only while the index's mutex is
// held too, so that under either they can be read.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "core/ids.h"
#include "pagekv/prefix_index.h"

namespace pagekv::inline v0::internal {

class EvictionOrder;

struct KeptPage {
  struct Held {
    PageId id = kNoPage;     // kNoPage: a window has let go of it
    std::uint32_t rows = 0;  // tokens of the page that the keeper sees
  };
  std::unique_ptr<Held[]> pages;  // by group
  std::uint32_t pins = 0;
  std::uint8_t priority = 0;

  // Where it is in the eviction order: in one of its lists, or, while pinned, in none.
  enum class Place : std::uint8_t { none, listed, parked, woken };
  Place place = Place::none;
  EvictionOrder* order = nullptr;
  KeptPage* previous = nullptr;
  KeptPage* next = nullptr;
};

class KeptList {
 public:
  bool empty() const { return first_ == nullptr; }
  KeptPage* last() const { return last_; }
  template <typename Visit>
  void for_each_from_last(Visit visit) const {
    for (KeptPage* page = last_; page != nullptr; page = page->previous) visit(*page);
  }
  void push_front(KeptPage& page);
  void remove(KeptPage& page);

 private:
  KeptPage* first_ = nullptr;
  KeptPage* last_ = nullptr;
};

// Least recently used first, lower priorities before higher ones.
//
// Who touches a page touches those before it in its prefix afterwards, so that a page is never
// older than one that follows it: the oldest page ends a prefix. A page that is found to be in use
// when its turn comes is parked; the pool wakes it when its last user has gone, which counts as a
// use. So each step of the search is paid for by a use, and what is in use is not looked at again
// and again.
class EvictionOrder {
 public:
  void touch(KeptPage& page);  // most recently used; REQUIRES: not pinned
  void remove(KeptPage& page);
  void park(KeptPage& page);  // REQUIRES: it is in use
  void wake(KeptPage& page);  // REQUIRES: parked

  // The page whose turn it is; null: there is none.
  KeptPage* oldest();
  // Visits all but the pinned pages, in about the order in which their turn comes.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const KeptList* list : {&parked_, &woken_}) list->for_each_from_last(visit);
    for (const KeptList& list : listed_) list.for_each_from_last(visit);
  }

 private:
  KeptList& list_of(const KeptPage& page);
  std::array<KeptList, kPrefixPriorities> listed_;  // most recently used first
  KeptList parked_;
  KeptList woken_;  // the one woken last comes first
};

}  // namespace pagekv::inline v0::internal
