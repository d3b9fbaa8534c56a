#include "core/pool.h"

#include <algorithm>
#include <cassert>

namespace pagekv::inline v0::internal {

PagePool::PagePool(CacheLayout layout, int group, Backend& backend, std::unique_ptr<Arena> arena,
                   std::int64_t capacity_pages, std::int64_t extent_pages)
    : layout_(std::move(layout)),
      group_(group),
      backend_(backend),
      arena_(std::move(arena)),
      capacity_pages_(capacity_pages),
      extent_pages_(extent_pages) {}

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

// A decommitted extent that fits the limit, or a new one at the end.
Result<PagePool::Extent*> PagePool::next_extent(std::int64_t limit_pages) {
  for (Extent& extent : extents_) {
    if (!extent.committed && extent.pages <= limit_pages) return &extent;
  }
  const std::int64_t pages = std::min({extent_pages_, limit_pages, capacity_pages_ - end_page_});
  if (pages <= 0) return nullptr;
  // All that can fail for want of memory first; nothing is on the books until then.
  const auto end = static_cast<std::size_t>(end_page_ + pages);
  free_.reserve(end);
  extents_.reserve(extents_.size() + 1);
  pages_.resize(end, {.extent = static_cast<std::int32_t>(extents_.size())});
  extents_.push_back({.first_page = end_page_, .pages = pages});
  end_page_ += pages;
  return &extents_.back();
}

Result<std::int64_t> PagePool::commit_extent(std::int64_t limit_pages) {
  auto found = next_extent(limit_pages);
  if (!found || *found == nullptr) return 0;
  Extent& extent = **found;
  Status committed;
  for_each_range(extent.first_page, extent.pages, [&](std::int64_t offset, std::int64_t bytes) {
    if (committed) committed = arena_->commit(offset, bytes);
  });
  if (!committed) return tl::unexpected(committed.error());
  extent.committed = true;
  committed_pages_ += extent.pages;
  for (std::int64_t page = extent.pages - 1; page >= 0; --page) {  // the lowest is taken first
    make_free(PageId{static_cast<std::uint32_t>(extent.first_page + page)});
  }
  return extent.pages;
}

std::int64_t PagePool::decommit_free_extents(std::int64_t bytes) {
  std::int64_t given_back = 0;
  for (Extent& extent : extents_) {
    if (given_back >= bytes) break;
    if (!extent.committed || extent.free_pages != extent.pages) continue;
    const auto in_extent = [&](PageId page) {
      return index(page) >= extent.first_page && index(page) < extent.first_page + extent.pages;
    };
    std::erase_if(free_, in_extent);
    for (std::int64_t page = 0; page < extent.pages; ++page) {
      pages_[static_cast<std::size_t>(extent.first_page + page)].state = State::uncommitted;
    }
    for_each_range(extent.first_page, extent.pages, [&](std::int64_t offset, std::int64_t size) {
      arena_->mark_used(offset, size);  // the system may hand the bytes out again
      arena_->decommit(offset, size);
    });
    extent.committed = false;
    extent.free_pages = 0;
    committed_pages_ -= extent.pages;
    given_back += extent.pages * page_bytes();
  }
  return given_back;
}

void PagePool::make_free(PageId page) {
  Page& entry = info(page);
  entry.state = State::free;
  ++extents_[static_cast<std::size_t>(entry.extent)].free_pages;
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
  --extents_[static_cast<std::size_t>(entry.extent)].free_pages;
  for_each_range(index(page), 1, [&](std::int64_t offset, std::int64_t bytes) {
    arena_->mark_used(offset, bytes);
  });
  return page;
}

void PagePool::add_reference(PageId page) {
  assert(info(page).state == State::referenced);
  ++info(page).references;
}

void PagePool::release(PageId page) {
  Page& entry = info(page);
  assert(entry.state == State::referenced && entry.references > 0);
  if (--entry.references > 0) return;
  const Fence fence = backend_.record_fence();
  if (backend_.passed(fence)) {
    make_free(page);
    return;
  }
  entry.state = State::retiring;
  retired_.push_back({page, fence});
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
  for (const Page& page : pages_) {
    if (page.state == State::referenced && page.references > 1) ++stats.shared_pages;
  }
  return stats;
}

Status PagePool::check(const std::vector<std::uint32_t>& held) const {
  std::int64_t free = 0, retiring = 0, referenced = 0;
  for (std::int64_t at = 0; at < end_page_; ++at) {
    const Page& page = pages_[static_cast<std::size_t>(at)];
    const std::int64_t holders = held[static_cast<std::size_t>(at)];
    if (page.state == State::free) ++free;
    if (page.state == State::retiring) ++retiring;
    if (page.state == State::referenced) ++referenced;
    if (page.state == State::referenced ? holders != page.references || holders == 0
                                        : holders != 0) {
      return fail(ErrorCode::books_broken,
                  "group {0}, page {1}: {2} references on the books, {3} holders found",
                  {group_, at, page.references, holders});
    }
  }
  if (free != free_pages() || retiring != static_cast<std::int64_t>(retired_.size()) ||
      free + retiring + referenced != committed_pages_) {
    return fail(ErrorCode::books_broken,
                "group {0}: {1} free + {2} retiring + {3} referenced pages are not the {4} committed",
                {group_, free, retiring, referenced, committed_pages_});
  }
  std::vector<bool> listed(static_cast<std::size_t>(end_page_));
  for (const PageId page : free_) {
    if (info(page).state != State::free || listed[static_cast<std::size_t>(index(page))]) {
      return fail(ErrorCode::books_broken, "group {0}: page {1} is listed free but is not, or twice",
                  {group_, index(page)});
    }
    listed[static_cast<std::size_t>(index(page))] = true;
  }
  return {};
}

}  // namespace pagekv::inline v0::internal
