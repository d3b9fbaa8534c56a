// PagePool: which pages of one layer group are free, retiring or referenced, and how far each is
// claimed. Integers only; bytes are the arena's.
//
// A page's life: uncommitted -> free -> referenced -> (retiring ->) free. It retires while a stream
// that may still touch it has not passed its fence.
//
// Memory is committed in runs of pages at the end of what was committed before. Free pages can be
// decommitted, so that another group may have their bytes; they are the first to be committed
// again.
//
// Not thread-safe: the store's mutex is held around every call but address(), which reads nothing
// that changes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/ids.h"
#include "core/kept_page.h"
#include "pagekv/error.h"
#include "pagekv/layout.h"
#include "pagekv/store.h"

namespace pagekv::inline v0::internal {

class PagePool {
 public:
  // REQUIRES: the arena covers capacity_pages pages of the group; run_pages >= 1.
  PagePool(CacheLayout layout, int group, Backend& backend, std::unique_ptr<Arena> arena,
           std::int64_t capacity_pages, std::int64_t run_pages);

  std::int64_t page_bytes() const { return layout_.group(group_).page_bytes; }
  std::int64_t run_bytes() const { return run_pages_ * page_bytes(); }
  std::int64_t committed_pages() const { return committed_pages_; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

  // Takes pages whose fences have passed back to the free list.
  void collect_retired();
  // Commits more pages, a run of them at most and no more than `limit_pages`. Returns how many
  // became free: 0 when the capacity or the limit is reached. Errors: out_of_memory.
  Result<std::int64_t> commit_pages(std::int64_t limit_pages);
  // Decommits free pages until at least `bytes` are given back or none is free. Returns the bytes
  // given back. Runs of neighbours go in one piece: the system takes whole memory pages only.
  std::int64_t decommit_pages(std::int64_t bytes);

  // A free page with one reference and nothing claimed; kNoPage when none is free.
  PageId acquire();
  void add_reference(PageId page);  // REQUIRES: somebody holds it
  void release(PageId page);        // one reference

  // A reference of the prefix index, one per page at most: keeper(page) is its record. A parked one
  // is woken when it holds the last reference.
  void keep(PageId page, KeptPage& keeper);  // REQUIRES: somebody holds it, keeper() is null
  void unkeep(PageId page);
  KeptPage* keeper(PageId page) const { return info(page).keeper; }
  // Around every change of a keeper's pins.
  void count_pins(PageId page, int sign);
  // Kept pages that nobody else holds and nothing pins; those that are pinned.
  std::int64_t reclaimable_pages() const { return reclaimable_pages_; }
  std::int64_t pinned_pages() const { return pinned_pages_; }

  std::uint32_t references(PageId page) const { return info(page).references; }
  std::int64_t claimed(PageId page) const { return info(page).claimed; }
  void set_claimed(PageId page, std::int64_t rows) {
    info(page).claimed = static_cast<std::uint32_t>(rows);
  }

  LayerAddress address(int layer) const;
  GroupStats stats() const;
  // Adds the references of the prefix index to `held`.
  void add_kept(std::vector<std::uint32_t>& held) const;
  // Compares the books with `held`: how often each page is held, by PageId, as found by walking all
  // holders.
  Status check(const std::vector<std::uint32_t>& held) const;
  std::int64_t end_page() const { return end_page_; }  // pages below it have been committed once

 private:
  enum class State : std::uint8_t { uncommitted, free, retiring, referenced };
  struct Page {
    std::uint32_t references = 0;
    std::uint32_t claimed = 0;  // one more than the highest row anyone sees or has reserved
    KeptPage* keeper = nullptr;
    State state = State::uncommitted;
  };
  struct Retired {
    PageId page;
    Fence fence;
  };

  Page& info(PageId page) { return pages_[static_cast<std::size_t>(index(page))]; }
  const Page& info(PageId page) const { return pages_[static_cast<std::size_t>(index(page))]; }
  Result<std::int64_t> recommit(std::int64_t limit_pages);
  Result<std::int64_t> commit_at_end(std::int64_t limit_pages);
  Status commit_run(std::int64_t first, std::int64_t count);  // memory only, not the books
  void decommit_run(std::int64_t first, std::int64_t count);
  void make_free(PageId page);
  void count_kept(const Page& page, int sign);
  Status check_kept() const;
  Status check_lists() const;
  // Calls visit(offset, bytes) for each run of arena bytes that pages [first, first + count)
  // occupy.
  template <typename Visit>
  void for_each_range(std::int64_t first, std::int64_t count, Visit visit) const;

  CacheLayout layout_;
  int group_;
  Backend& backend_;
  std::unique_ptr<Arena> arena_;
  std::int64_t capacity_pages_;
  std::int64_t run_pages_;
  std::int64_t committed_pages_ = 0;
  std::int64_t end_page_ = 0;
  std::deque<Page> pages_;           // grows at the end, never moves
  std::vector<PageId> free_;         // a stack: the page given back last is taken first, it is warm
  std::vector<PageId> decommitted_;  // pages below end_page_ that have no memory now
  std::int64_t shared_pages_ = 0;    // with more than one reference
  std::int64_t cached_pages_ = 0;    // whose only reference is their keeper's
  std::int64_t reclaimable_pages_ = 0;
  std::int64_t pinned_pages_ = 0;
  std::deque<Retired> retired_;
};

}  // namespace pagekv::inline v0::internal
