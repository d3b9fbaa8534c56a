#include "core/store_core.h"

#include <algorithm>

namespace pagekv::inline v0::internal {

namespace {

// Memory is committed in pieces of about this size: many huge pages, little waste.
constexpr std::int64_t kExtentBytes = std::int64_t{32} << 20;
// But a small cap is cut into at least this many pieces per group, so that groups can share it.
constexpr std::int64_t kPiecesPerGroup = 16;

}  // namespace

StoreCore::StoreCore(CacheLayout layout, Device device, StoreOptions options)
    : layout_(std::move(layout)), device_(std::move(device)), options_(options) {}

std::int64_t StoreCore::extent_pages(int group, std::int64_t capacity_pages) const {
  const std::int64_t by_size = kExtentBytes / layout_.group(group).page_bytes;
  const std::int64_t by_cap = capacity_pages / (kPiecesPerGroup * layout_.group_count());
  return std::max<std::int64_t>(1, std::min(by_size, by_cap));
}

Status StoreCore::reserve_arenas() {
  pools_.reserve(static_cast<std::size_t>(layout_.group_count()));
  for (int group = 0; group < layout_.group_count(); ++group) {
    const std::int64_t page_bytes = layout_.group(group).page_bytes;
    const std::int64_t pages = std::min<std::int64_t>(options_.cap_bytes / page_bytes, 0xfffffffe);
    auto arena = backend().reserve_arena(pages * page_bytes);
    if (!arena) return tl::unexpected(arena.error());
    pools_.emplace_back(layout_, group, backend(), std::move(*arena), pages,
                        extent_pages(group, pages));
  }
  return {};
}

std::int64_t StoreCore::committed_bytes() const {
  std::int64_t bytes = 0;
  for (const PagePool& pool : pools_) bytes += pool.committed_pages() * pool.page_bytes();
  return bytes;
}

Result<PageId> StoreCore::acquire(int group) {
  PagePool& wanted = pool(group);
  if (const PageId page = wanted.acquire(); page != kNoPage) return page;
  wanted.collect_retired();
  if (const PageId page = wanted.acquire(); page != kNoPage) return page;

  std::int64_t room = options_.cap_bytes - committed_bytes();
  for (PagePool& other : pools_) {  // memory that another group holds but does not use
    if (room >= wanted.page_bytes()) break;
    if (&other != &wanted) room += other.decommit_free_extents(wanted.page_bytes() - room);
  }
  auto added = guard_memory([&] { return wanted.commit_extent(room / wanted.page_bytes()); });
  if (!added) return tl::unexpected(added.error());
  return wanted.acquire();
}

Status StoreCore::prefix_kept(const PageHolder& holder, std::int64_t tokens) const {
  for (int group = 0; group < layout_.group_count(); ++group) {
    const std::int64_t window = layout_.group(group).window_tokens;
    if (window == 0) continue;
    const std::int64_t needed = std::max<std::int64_t>(0, tokens + 1 - window);
    const std::int64_t first = holder.table(group).first_page * layout_.page_tokens();
    if (first > needed) {
      return fail(ErrorCode::window_lost,
                  "a prefix of {2} tokens needs rows from token {0} on, the window of group {3} "
                  "keeps them from token {1} on",
                  {needed, first, tokens, group});
    }
  }
  return {};
}

void StoreCore::share_prefix(const PageHolder& from, std::int64_t tokens, PageHolder& to) {
  for (int group = 0; group < layout_.group_count(); ++group) {
    const PageTable& source = from.table(group);
    PageTable& target = to.table(group);
    const std::int64_t end = pages_over(tokens);
    target.first_page =
        std::min(end, std::max(source.first_page, layout_.first_kept_page(group, tokens)));
    target.pages.assign(static_cast<std::size_t>(target.first_page), kNoPage);
    for (std::int64_t page = target.first_page; page < end; ++page) {
      pool(group).add_reference(source.at(page));
      target.pages.push_back(source.at(page));
    }
  }
  to.length = tokens;
}

void StoreCore::shrink(int group, PageTable& table, std::int64_t end_page) {
  while (table.end_page() > end_page) {
    if (table.end_page() > table.first_page) pool(group).release(table.pages.back());
    table.pages.pop_back();
  }
  table.first_page = std::min(table.first_page, table.end_page());
}

void StoreCore::let_go(int group, PageTable& table, std::int64_t first_page) {
  for (; table.first_page < std::min(first_page, table.end_page()); ++table.first_page) {
    pool(group).release(table.at(table.first_page));
    table.at(table.first_page) = kNoPage;
  }
}

std::unique_ptr<StepState> StoreCore::take_step_state() {
  // Room for giving it back, which must not fail.
  idle_steps_.reserve(idle_steps_.size() + live_steps.size() + 1);
  live_steps.reserve(live_steps.size() + 1);
  if (idle_steps_.empty()) return std::make_unique<StepState>();
  auto state = std::move(idle_steps_.back());
  idle_steps_.pop_back();
  return state;
}

void StoreCore::give_step_state(std::unique_ptr<StepState> state) {
  idle_steps_.push_back(std::move(state));
}

StoreStats StoreCore::stats() const {
  StoreStats stats{.sequences = sequences.count(),
                   .views = views.count(),
                   .live_steps = static_cast<std::int64_t>(live_steps.size()),
                   .cap_bytes = options_.cap_bytes,
                   .committed_bytes = committed_bytes(),
                   .groups = {}};
  sequences.for_each([&](const PageHolder& holder) { stats.tokens += holder.length; });
  for (const PagePool& pool : pools_) {
    stats.groups.push_back(pool.stats());
    stats.referenced_bytes += stats.groups.back().referenced_pages * pool.page_bytes();
  }
  return stats;
}

// Adds what `holder` holds to `held`, and proves that it sees claimed rows only. A sequence in a live
// step sees the step's rows too, which StepEntry accounts for.
Status StoreCore::check_holder(const PageHolder& holder, bool live,
                               std::vector<std::vector<std::uint32_t>>& held) const {
  for (int group = 0; group < layout_.group_count(); ++group) {
    const PageTable& table = holder.table(group);
    const std::int64_t pages = pages_over(holder.length);
    if (live ? table.end_page() < pages : table.end_page() != pages) {
      return fail(ErrorCode::books_broken,
                  "group {0}: a holder of {1} tokens has a table of {2} pages",
                  {group, holder.length, table.end_page()});
    }
    for (std::int64_t page = table.first_page; page < table.end_page(); ++page) {
      const PageId id = table.at(page);
      if (index(id) >= pool(group).end_page()) {
        return fail(ErrorCode::books_broken, "group {0}: page {1} is held but does not exist",
                    {group, index(id)});
      }
      ++held[static_cast<std::size_t>(group)][static_cast<std::size_t>(index(id))];
      const std::int64_t rows =
          std::min(holder.length - page * layout_.page_tokens(), layout_.page_tokens());
      if (pool(group).claimed(id) < rows) {
        return fail(ErrorCode::books_broken,
                    "group {0}, page {1}: a holder sees {2} rows, {3} are claimed",
                    {group, index(id), rows, pool(group).claimed(id)});
      }
    }
  }
  return {};
}

Status StoreCore::check() const {
  std::vector<std::vector<std::uint32_t>> held;
  for (const PagePool& pool : pools_) held.emplace_back(static_cast<std::size_t>(pool.end_page()));
  Status status;
  sequences.for_each([&](const PageHolder& holder) {
    const bool live = static_cast<const SequenceState&>(holder).live_step != nullptr;
    if (status) status = check_holder(holder, live, held);
  });
  views.for_each([&](const PageHolder& holder) {
    if (status) status = check_holder(holder, false, held);
  });
  if (!status) return status;
  for (const StepState* step : live_steps) {
    for (int entry = 0; entry < step->count; ++entry) {
      for (int group = 0; group < layout_.group_count(); ++group) {
        const PageId replaced = step->entry(entry).groups[static_cast<std::size_t>(group)].replaced;
        if (replaced == kNoPage) continue;
        ++held[static_cast<std::size_t>(group)][static_cast<std::size_t>(index(replaced))];
      }
    }
  }
  for (std::size_t group = 0; group < pools_.size(); ++group) {
    if (auto ok = pools_[group].check(held[group]); !ok) return ok;
  }
  if (committed_bytes() > options_.cap_bytes) {
    return fail(ErrorCode::books_broken, "{0} bytes are committed, the cap is {1}",
                {committed_bytes(), options_.cap_bytes});
  }
  return {};
}

}  // namespace pagekv::inline v0::internal
