#include "core/pool.h"

#include <algorithm>
#include <cassert>

namespace pagekv::inline v0::internal {

PagePool::PagePool(CacheLayout layout, int group, Backend& backend, std::unique_ptr<Arena> arena,
                   std::int64_t capacity_pages, std::int64_t run_pages)
    : layout_(std::move(layout)),
      group_(group),
      backend_(backend),
      arena_(std::move(arena)),
      capacity_pages_(capacity_pages),
      run_pages_(run_pages) {}

template <typename Visit>
void PagePool::for_each_range(std::int64_t first, std::int64_t count, Visit visit) const {
  if (layout_.order() == PageOrder::page_major) {
    visit(first * page_bytes(), count * page_bytes());
    return;
  }
  for (const int layer : layout_.group(group_).layers) {
    const LayerStride stride = layout_.stride(layer, capacity_pages_);
    visit(stride.offset + first * stride.page_stride, count * stride.page_stride);
  }
}

Result<std::int64_t> PagePool::commit_pages(std::int64_t limit_pages) {
  if (limit_pages <= 0) return 0;
  return decommitted_.empty() ? commit_at_end(limit_pages) : recommit(limit_pages);
}

Status PagePool::commit_run(std::int64_t first, std::int64_t count) {
  Status committed;
  for_each_range(first, count, [&](std::int64_t offset, std::int64_t bytes) {
    if (committed) committed = arena_->commit(offset, bytes);
  });
  return committed;
}

Result<std::int64_t> PagePool::commit_at_end(std::int64_t limit_pages) {
  const std::int64_t pages = std::min({run_pages_, limit_pages, capacity_pages_ - end_page_});
  if (pages <= 0) return 0;
  // All that can fail first; nothing is on the books until then. Every page has a place in each
  // list.
  const auto end = static_cast<std::size_t>(end_page_ + pages);
  free_.reserve(end);
  decommitted_.reserve(end);
  if (auto ok = commit_run(end_page_, pages); !ok) return tl::unexpected(ok.error());
  pages_.resize(end);
  end_page_ += pages;
  committed_pages_ += pages;
  for (std::int64_t page = end_page_ - 1; page >= end_page_ - pages; --page) {
    make_free(PageId{static_cast<std::uint32_t>(page)});  // the lowest is taken first
  }
  return pages;
}

Result<std::int64_t> PagePool::recommit(std::int64_t limit_pages) {
  std::int64_t pages = 0;
  while (pages < std::min(run_pages_, limit_pages) && !decommitted_.empty()) {
    const PageId page = decommitted_.back();
    if (auto ok = commit_run(index(page), 1); !ok) {
      if (pages > 0) break;
      return tl::unexpected(ok.error());
    }
    decommitted_.pop_back();
    ++committed_pages_;
    make_free(page);
    ++pages;
  }
  return pages;
}

std::int64_t PagePool::decommit_pages(std::int64_t bytes) {
  const std::int64_t wanted = std::min((bytes + page_bytes() - 1) / page_bytes(), free_pages());
  if (wanted <= 0) return 0;
  // From the highest down: neighbours come together, and what is left stays compact.
  std::sort(free_.begin(), free_.end());
  const auto first_taken = free_.end() - wanted;
  auto run_end = free_.end();
  while (run_end != first_taken) {
    auto run_begin = run_end - 1;
    while (run_begin != first_taken && index(*(run_begin - 1)) + 1 == index(*run_begin)) {
      --run_begin;
    }
    decommit_run(index(*run_begin), run_end - run_begin);
    run_end = run_begin;
  }
  free_.erase(first_taken, free_.end());
  std::reverse(free_.begin(), free_.end());  // the lowest is taken first
  return wanted * page_bytes();
}

void PagePool::decommit_run(std::int64_t first, std::int64_t count) {
  for_each_range(first, count, [&](std::int64_t offset, std::int64_t bytes) {
    arena_->mark_used(offset, bytes);  // the system may hand the bytes out again
    arena_->decommit(offset, bytes);
  });
  for (std::int64_t page = first + count - 1; page >= first; --page) {
    pages_[static_cast<std::size_t>(page)].state = State::uncommitted;
    decommitted_.push_back(PageId{static_cast<std::uint32_t>(page)});
  }
  committed_pages_ -= count;
}

void PagePool::make_free(PageId page) {
  Page& entry = info(page);
  entry.state = State::free;
  free_.push_back(page);
  for_each_range(index(page), 1, [&](std::int64_t offset, std::int64_t bytes) {
    arena_->mark_free(offset, bytes);
  });
}

PageId PagePool::acquire() {
  if (free_.empty()) return kNoPage;
  const PageId page = free_.back();
  free_.pop_back();
  Page& entry = info(page);
  assert(entry.state == State::free && entry.references == 0);
  entry.state = State::referenced;
  entry.references = 1;
  entry.claimed = 0;
  for_each_range(index(page), 1, [&](std::int64_t offset, std::int64_t bytes) {
    arena_->mark_used(offset, bytes);
  });
  return page;
}

void PagePool::add_reference(PageId page) {
  Page& entry = info(page);
  assert(entry.state == State::referenced);
  count_kept(entry, -1);
  if (++entry.references == 2) ++shared_pages_;
  count_kept(entry, 1);
}

void PagePool::release(PageId page) {
  Page& entry = info(page);
  assert(entry.state == State::referenced && entry.references > 0);
  count_kept(entry, -1);
  if (--entry.references == 1) --shared_pages_;
  count_kept(entry, 1);
  if (entry.references == 1 && entry.keeper != nullptr &&
      entry.keeper->place == KeptPage::Place::parked) {
    entry.keeper->order->wake(*entry.keeper);
  }
  if (entry.references > 0) return;
  const Fence fence = backend_.record_fence();
  if (backend_.passed(fence)) {
    make_free(page);
    return;
  }
  entry.state = State::retiring;
  retired_.push_back({page, fence});
}

void PagePool::keep(PageId page, KeptPage& keeper) {
  assert(info(page).keeper == nullptr);
  add_reference(page);
  info(page).keeper = &keeper;
  count_kept(info(page), 1);
}

void PagePool::unkeep(PageId page) {
  count_kept(info(page), -1);
  info(page).keeper = nullptr;
  release(page);
}

void PagePool::count_pins(PageId page, int sign) {
  count_kept(info(page), sign);
}

void PagePool::count_kept(const Page& page, int sign) {
  if (page.keeper == nullptr) return;
  const bool alone = page.references == 1;
  const bool pinned = page.keeper->pins > 0;
  cached_pages_ += alone ? sign : 0;
  pinned_pages_ += pinned ? sign : 0;
  reclaimable_pages_ += alone && !pinned ? sign : 0;
}

void PagePool::collect_retired() {
  while (!retired_.empty() && backend_.passed(retired_.front().fence)) {
    make_free(retired_.front().page);
    retired_.pop_front();
  }
}

LayerAddress PagePool::address(int layer_index) const {
  const LayerLayout& layer = layout_.layer(layout_.layer(layer_index).storage_layer);
  const LayerStride stride = layout_.stride(layer_index, capacity_pages_);
  return {.base = arena_->base() + stride.offset,
          .page_stride = stride.page_stride,
          .page_tokens = layout_.page_tokens(),
          .arrangement = layout_.arrangement(),
          .kv_heads = layer.spec.kv_heads,
          .key_dim = layer.spec.key_dim,
          .value_dim = layer.spec.value_dim,
          .format = layer.spec.format,
          .k = layer.k,
          .v = layer.v};
}

GroupStats PagePool::stats() const {
  GroupStats stats{.page_bytes = page_bytes(),
                   .reserved_pages = capacity_pages_,
                   .committed_pages = committed_pages_,
                   .free_pages = free_pages(),
                   .retiring_pages = static_cast<std::int64_t>(retired_.size())};
  stats.referenced_pages = committed_pages_ - stats.free_pages - stats.retiring_pages;
  stats.shared_pages = shared_pages_;
  stats.cached_pages = cached_pages_;
  return stats;
}

void PagePool::add_kept(std::vector<std::uint32_t>& held) const {
  for (std::size_t at = 0; at < held.size(); ++at) held[at] += pages_[at].keeper != nullptr ? 1 : 0;
}

Status PagePool::check(const std::vector<std::uint32_t>& held) const {
  std::int64_t count[4] = {};  // by State
  std::int64_t shared = 0;
  for (std::int64_t at = 0; at < end_page_; ++at) {
    const Page& page = pages_[static_cast<std::size_t>(at)];
    const std::int64_t holders = held[static_cast<std::size_t>(at)];
    ++count[static_cast<std::size_t>(page.state)];
    if (holders > 1) ++shared;
    if (page.state == State::referenced ? holders != page.references || holders == 0
                                        : holders != 0 || page.references != 0) {
      return fail(ErrorCode::books_broken,
                  "group {0}, page {1}: {2} references on the books, {3} holders found",
                  {group_, at, page.references, holders});
    }
  }
  const std::int64_t free = count[static_cast<std::size_t>(State::free)];
  const std::int64_t retiring = count[static_cast<std::size_t>(State::retiring)];
  const std::int64_t referenced = count[static_cast<std::size_t>(State::referenced)];
  if (free + retiring + referenced != committed_pages_ || shared != shared_pages_) {
    return fail(
        ErrorCode::books_broken,
        "group {0}: {1} free + {2} retiring + {3} referenced pages, {5} of them shared, are not "
        "the {4} committed",
        {group_, free, retiring, referenced, committed_pages_, shared});
  }
  if (auto ok = check_kept(); !ok) return ok;
  return check_lists();
}

// The counts of kept pages are those of the pages, and keepers know what they keep.
Status PagePool::check_kept() const {
  std::int64_t cached = 0;
  std::int64_t reclaimable = 0;
  std::int64_t pinned = 0;
  bool good = true;
  for (std::int64_t at = 0; at < end_page_; ++at) {
    const Page& page = pages_[static_cast<std::size_t>(at)];
    if (page.keeper == nullptr) continue;
    const bool alone = page.references == 1;
    cached += alone ? 1 : 0;
    pinned += page.keeper->pins > 0 ? 1 : 0;
    reclaimable += alone && page.keeper->pins == 0 ? 1 : 0;
    good = good && index(page.keeper->pages[static_cast<std::size_t>(group_)].id) == at &&
           page.keeper->pages[static_cast<std::size_t>(group_)].rows <= page.claimed;
  }
  if (!good || cached != cached_pages_ || reclaimable != reclaimable_pages_ ||
      pinned != pinned_pages_) {
    return fail(
        ErrorCode::books_broken,
        "group {0}: {1} cached pages on the books, {2} found; {3} reclaimable, {4} found; or "
        "pins miscounted, or a keeper that does not know its page",
        {group_, cached_pages_, cached, reclaimable_pages_, reclaimable});
  }
  return {};
}

// Each list holds exactly the pages of its state, once.
Status PagePool::check_lists() const {
  std::vector<bool> listed(static_cast<std::size_t>(end_page_));
  const auto take = [&](PageId page, State state) {
    const bool good = info(page).state == state && !listed[static_cast<std::size_t>(index(page))];
    listed[static_cast<std::size_t>(index(page))] = true;
    return good;
  };
  bool good = true;
  for (const PageId page : free_) good = good && take(page, State::free);
  for (const PageId page : decommitted_) good = good && take(page, State::uncommitted);
  for (const Retired& retired : retired_) good = good && take(retired.page, State::retiring);
  const auto unlisted = std::count(listed.begin(), listed.end(), false);
  if (!good ||
      unlisted != committed_pages_ - free_pages() - static_cast<std::int64_t>(retired_.size())) {
    return fail(ErrorCode::books_broken, "group {0}: a page is in the wrong list, or in two",
                {group_});
  }
  return {};
}

}  // namespace pagekv::inline v0::internal
