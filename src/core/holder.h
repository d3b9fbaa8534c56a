// PageHolder: whatever holds pages of a store, a sequence or a view, and the list of all holders.
//
// A holder's tables and length are changed only under the store's mutex, by the thread the sequence
// belongs to; that thread may read them without it. A view's never change.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/ids.h"

namespace pagekv::inline v0::internal {

class HolderList;
class StepState;
class StoreCore;

// Pages of one group by position / page_tokens. Entries below first_page are kNoPage: a window has
// let go of them.
struct PageTable {
  std::vector<PageId> pages;
  std::int64_t first_page = 0;
  // Rows before this token are not there, though their page may be: what was loaded from a file
  // begins where pages of another size began. 0: all rows of the pages are.
  std::int64_t first_token = 0;

  std::int64_t end_page() const { return static_cast<std::int64_t>(pages.size()); }
  PageId& at(std::int64_t page) { return pages[static_cast<std::size_t>(page)]; }
  PageId at(std::int64_t page) const { return pages[static_cast<std::size_t>(page)]; }
};

class PageHolder {
 public:
  PageHolder(const PageHolder&) = delete;
  PageHolder& operator=(const PageHolder&) = delete;

  const std::shared_ptr<StoreCore>& store() const { return store_; }
  const PageTable& table(int group) const { return tables_[static_cast<std::size_t>(group)]; }
  PageTable& table(int group) { return tables_[static_cast<std::size_t>(group)]; }
  int groups() const { return static_cast<int>(tables_.size()); }
  // First token whose rows `group` still has. REQUIRES: 0 <= group < groups().
  std::int64_t first(int group) const;

  std::int64_t length = 0;  // tokens

 protected:
  // Makes room for tables of `most_tokens` tokens; nobody else sees the holder yet.
  PageHolder(std::shared_ptr<StoreCore> store, std::int64_t most_tokens);
  ~PageHolder() = default;
  void leave(HolderList& list);  // and gives every page back, in one critical section

 private:
  friend class HolderList;
  std::shared_ptr<StoreCore> store_;
  std::vector<PageTable> tables_;
  PageHolder* previous_ = nullptr;
  PageHolder* next_ = nullptr;
};

// All living holders of one kind; intrusive, so that joining and leaving never allocates.
class HolderList {
 public:
  void add(PageHolder& holder);
  void remove(PageHolder& holder);
  std::int64_t count() const { return count_; }
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const PageHolder* at = first_; at != nullptr; at = at->next_) visit(*at);
  }

 private:
  PageHolder* first_ = nullptr;
  std::int64_t count_ = 0;
};

class SequenceState final : public PageHolder {
 public:
  explicit SequenceState(std::shared_ptr<StoreCore> store);
  ~SequenceState();

  StepState* live_step = nullptr;    // guarded by the store's mutex
  std::int64_t reserved_tokens = 0;  // rows behind `length` that the live step has reserved
  std::int64_t reserved_length() const { return length + reserved_tokens; }
};

class ViewState final : public PageHolder {
 public:
  ViewState(std::shared_ptr<StoreCore> store, std::int64_t tokens);
  ~ViewState();
};

}  // namespace pagekv::inline v0::internal
