#include "core/store_core.h"

#include <algorithm>

#include "core/windows.h"

namespace pagekv::inline v0::internal {

namespace {

// Memory is committed in pieces of about this size: many huge pages, little waste.
constexpr std::int64_t kRunBytes = std::int64_t{32} << 20;
// But a small cap is cut into at least this many pieces per group, so that groups can share it.
constexpr std::int64_t kPiecesPerGroup = 16;

}  // namespace

StoreCore::StoreCore(CacheLayout layout, Device device, StoreOptions options)
    : layout_(std::move(layout)), device_(std::move(device)), options_(options) {}

std::int64_t StoreCore::run_pages(int group, std::int64_t capacity_pages) const {
  const std::int64_t by_size = kRunBytes / layout_.group(group).page_bytes;
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
                        run_pages(group, pages));
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
    if (&other != &wanted) room += other.decommit_pages(wanted.run_bytes() - room);
  }
  auto added = guard_memory([&] { return wanted.commit_pages(room / wanted.page_bytes()); });
  if (!added) return tl::unexpected(added.error());
  return wanted.acquire();
}

Status StoreCore::prefix_kept(const PageHolder& holder, std::int64_t tokens) const {
  for (int group = 0; group < layout_.group_count(); ++group) {
    const std::int64_t window = layout_.group(group).window_tokens;
    if (window == 0) continue;
    const std::int64_t needed = first_needed_token(window, tokens);
    const std::int64_t first = holder.first(group);
    if (tokens > 0 && first > needed) {  // nothing is needed of nothing
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
    target.first_token = tokens > 0 ? source.first_token : 0;
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
  if (table.pages.empty()) table.first_token = 0;
}

void StoreCore::let_go(int group, PageTable& table, std::int64_t first_page) {
  for (; table.first_page < std::min(first_page, table.end_page()); ++table.first_page) {
    pool(group).release(table.at(table.first_page));
    table.at(table.first_page) = kNoPage;
  }
}

std::unique_ptr<StepState> StoreCore::take_step_state() {
  if (idle_steps_.empty()) {
    // Room for listing it and for giving it back, which must not fail.
    idle_steps_.reserve(step_states_ + 1);
    live_steps.reserve(step_states_ + 1);
    auto state = std::make_unique<StepState>();
    ++step_states_;
    return state;
  }
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

// Adds what `holder` holds to `held`, and proves that the first `seen_tokens` rows of its tables
// are claimed.
Status StoreCore::check_holder(const PageHolder& holder, std::int64_t seen_tokens,
                               Held& held) const {
  for (int group = 0; group < layout_.group_count(); ++group) {
    const PageTable& table = holder.table(group);
    if (table.end_page() != pages_over(seen_tokens) || table.first_page > table.end_page()) {
      return fail(ErrorCode::books_broken,
                  "group {0}: a holder of {1} tokens has a table of {2} pages, the first at {3}",
                  {group, seen_tokens, table.end_page(), table.first_page});
    }
    for (std::int64_t page = 0; page < table.end_page(); ++page) {
      const PageId id = table.at(page);
      if (page < table.first_page ? id != kNoPage : index(id) >= pool(group).end_page()) {
        return fail(ErrorCode::books_broken, "group {0}: a table names page {1} in place {2}",
                    {group, index(id), page});
      }
      if (page < table.first_page) continue;
      ++held[static_cast<std::size_t>(group)][static_cast<std::size_t>(index(id))];
      const std::int64_t rows =
          std::min(seen_tokens - page * layout_.page_tokens(), layout_.page_tokens());
      if (pool(group).claimed(id) < rows) {
        return fail(ErrorCode::books_broken,
                    "group {0}, page {1}: a holder sees {2} rows, {3} are claimed",
                    {group, index(id), rows, pool(group).claimed(id)});
      }
    }
  }
  return {};
}

// Adds the pages a step holds beside its sequences' tables, and proves that no two steps write the
// same page.
Status StoreCore::check_step(const StepState& step, Held& held, Held& written) const {
  for (int at = 0; at < step.count; ++at) {
    const StepEntry& entry = step.entry(at);
    if (entry.sequence->live_step != &step) {
      return fail(ErrorCode::books_broken, "a sequence does not know the step it is in");
    }
    for (int group = 0; step.reserved && group < layout_.group_count(); ++group) {
      const auto of_group = static_cast<std::size_t>(group);
      if (const PageId replaced = entry.groups[of_group].replaced; replaced != kNoPage) {
        ++held[of_group][static_cast<std::size_t>(index(replaced))];
      }
      const PageTable& table = entry.sequence->table(group);
      for (std::int64_t page = entry.sequence->length / layout_.page_tokens();
           page < table.end_page(); ++page) {
        if (++written[of_group][static_cast<std::size_t>(index(table.at(page)))] > 1) {
          return fail(ErrorCode::books_broken, "group {0}, page {1}: two live steps write it",
                      {group, index(table.at(page))});
        }
      }
    }
  }
  return {};
}

Status StoreCore::check() const {
  Held held;
  for (const PagePool& pool : pools_) held.emplace_back(static_cast<std::size_t>(pool.end_page()));
  Held written = held;
  Status status;
  std::int64_t in_steps = 0;
  sequences.for_each([&](const PageHolder& holder) {
    const auto& sequence = static_cast<const SequenceState&>(holder);
    if (sequence.live_step != nullptr) ++in_steps;
    if (status) status = check_holder(holder, sequence.reserved_length(), held);
  });
  views.for_each([&](const PageHolder& holder) {
    if (status) status = check_holder(holder, holder.length, held);
  });
  for (std::size_t group = 0; group < pools_.size(); ++group) pools_[group].add_kept(held[group]);
  for (const StepState* step : live_steps) {
    in_steps -= step->count;
    if (status) status = check_step(*step, held, written);
  }
  if (!status) return status;
  if (in_steps != 0) {
    return fail(ErrorCode::books_broken, "{0} sequences are busy in no live step", {in_steps});
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
