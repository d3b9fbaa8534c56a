// PagePool: which pages of one layer group are free, retiring or referenced, and how far each is
// claimed. Integers only; bytes are the arena's.
//
// A page's life: uncommitted -> free -> referenced -> (retiring ->) free. It retires while a stream
// that may still touch it has not passed its fence.
//
// Memory is committed in extents, runs of pages at the end of what is committed so far. An extent
// whose pages are all free can be decommitted, so that another group may have its bytes.
//
// Not thread-safe: the store's mutex is held around every call but address(), which reads nothing that
// changes.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/ids.h"
#include "pagekv/error.h"
#include "pagekv/layout.h"
#include "pagekv/store.h"

namespace pagekv::inline v0::internal {

class PagePool {
 public:
  // REQUIRES: the arena covers capacity_pages pages of the group; extent_pages >= 1.
  PagePool(CacheLayout layout, int group, Backend& backend, std::unique_ptr<Arena> arena,
           std::int64_t capacity_pages, std::int64_t extent_pages);

  std::int64_t page_bytes() const { return layout_.group(group_).page_bytes; }
  std::int64_t capacity_pages() const { return capacity_pages_; }
  std::int64_t committed_pages() const { return committed_pages_; }
  std::int64_t free_pages() const { return static_cast<std::int64_t>(free_.size()); }

  // Takes pages whose fences have passed back to the free list.
  void collect_retired();
  // Commits up to one extent, at most `limit_pages` pages. Returns how many became free: 0 when the
  // capacity or the limit is reached. Errors: out_of_memory.
  Result<std::int64_t> commit_extent(std::int64_t limit_pages);
  // Decommits extents that are wholly free until at least `bytes` are given back or none is left.
  // Returns the bytes given back.
  std::int64_t decommit_free_extents(std::int64_t bytes);

  // A free page with one reference and nothing claimed; kNoPage when none is free.
  PageId acquire();
  void add_reference(PageId page);  // REQUIRES: somebody holds it
  void release(PageId page);  // one reference

  std::uint32_t references(PageId page) const { return info(page).references; }
  std::int64_t claimed(PageId page) const { return info(page).claimed; }
  void set_claimed(PageId page, std::int64_t rows) {
    info(page).claimed = static_cast<std::uint32_t>(rows);
  }

  LayerAddress address(int layer) const;
  GroupStats stats() const;
  // Compares the books with `held`: how often each page is held, by PageId, as found by walking all
  // holders.
  Status check(const std::vector<std::uint32_t>& held) const;
  std::int64_t end_page() const { return end_page_; }  // pages below it have been committed once

 private:
  enum class State : std::uint8_t { uncommitted, free, retiring, referenced };
  struct Page {
    std::uint32_t references = 0;
    std::uint32_t claimed = 0;  // one more than the highest row anyone sees or has reserved
    std::int32_t extent = 0;
    State state = State::uncommitted;
  };
  struct Extent {
    std::int64_t first_page = 0;
    std::int64_t pages = 0;
    std::int64_t free_pages = 0;
    bool committed = false;
  };
  struct Retired {
    PageId page;
    Fence fence;
  };

  Page& info(PageId page) { return pages_[static_cast<std::size_t>(index(page))]; }
  const Page& info(PageId page) const { return pages_[static_cast<std::size_t>(index(page))]; }
  Result<Extent*> next_extent(std::int64_t limit_pages);
  void make_free(PageId page);
  // Calls visit(offset, bytes) for each run of arena bytes that pages [first, first + count) occupy.
  template <typename Visit>
  void for_each_range(std::int64_t first, std::int64_t count, Visit visit) const;

  CacheLayout layout_;
  int group_;
  Backend& backend_;
  std::unique_ptr<Arena> arena_;
  std::int64_t capacity_pages_;
  std::int64_t extent_pages_;
  std::int64_t committed_pages_ = 0;
  std::int64_t end_page_ = 0;
  std::deque<Page> pages_;  // grows at the end, never moves
  std::vector<Extent> extents_;
  std::vector<PageId> free_;  // a stack: the page given back last is taken first, it is warm
  std::deque<Retired> retired_;
};

}  // namespace pagekv::inline v0::internal
