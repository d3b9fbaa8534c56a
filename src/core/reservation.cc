#include "core/reservation.h"

#include <algorithm>
#include <cassert>

namespace pagekv::inline v0::internal {

namespace {

// Counts a page as needed and takes one; kNoPage when there is none, or after one was missing.
Result<PageId> take_page(StoreCore& core, int group, PageNeed& need) {
  ++need.needed;
  if (need.missing > 0) {
    ++need.missing;
    return kNoPage;
  }
  auto page = core.acquire(group);
  if (page && *page == kNoPage) ++need.missing;
  return page;
}

// The tail page already has rows of this sequence: claim the next ones in place, or copy the page.
Status reserve_tail(StoreCore& core, StepEntry& entry, int group, PageNeed& need) {
  PagePool& pool = core.pool(group);
  SequenceState& sequence = *entry.sequence;
  GroupReservation& reservation = entry.groups[static_cast<std::size_t>(group)];
  const std::int64_t rows = core.tail_rows(sequence.length);
  const std::int64_t claim = std::min(rows + entry.tokens, core.layout().page_tokens());
  PageId& tail = sequence.table(group).at(sequence.length / core.layout().page_tokens());

  // Whatever a sole holder does not see, nobody sees: rows it truncated are free to be written.
  assert(pool.claimed(tail) >= rows);
  if (pool.references(tail) == 1) pool.set_claimed(tail, rows);
  if (pool.claimed(tail) <= rows) {
    pool.set_claimed(tail, claim);
    reservation.claimed_tail = true;
    return {};
  }
  auto page = take_page(core, group, need);
  if (!page) return tl::unexpected(page.error());
  if (*page == kNoPage) return {};
  pool.set_claimed(*page, claim);
  reservation.replaced = tail;
  tail = *page;
  return {};
}

void undo_group(StoreCore& core, StepEntry& entry, int group) {
  SequenceState& sequence = *entry.sequence;
  GroupReservation& reservation = entry.groups[static_cast<std::size_t>(group)];
  PageTable& table = sequence.table(group);
  core.shrink(group, table, reservation.old_end_page);
  const std::int64_t tail = sequence.length / core.layout().page_tokens();
  if (reservation.replaced != kNoPage) {
    // A fork taken meanwhile may hold the copy: what it does not see is free again.
    core.pool(group).set_claimed(table.at(tail), core.tail_rows(sequence.length));
    core.pool(group).release(table.at(tail));
    table.at(tail) = reservation.replaced;
  } else if (reservation.claimed_tail) {
    core.pool(group).set_claimed(table.at(tail), core.tail_rows(sequence.length));
  }
  reservation = {};
}

void keep_group(StoreCore& core, StepEntry& entry, int group, std::int64_t length) {
  GroupReservation& reservation = entry.groups[static_cast<std::size_t>(group)];
  PageTable& table = entry.sequence->table(group);
  core.shrink(group, table, core.pages_over(length));
  if (reservation.replaced != kNoPage) core.pool(group).release(reservation.replaced);
  if (const std::int64_t rows = core.tail_rows(length); rows > 0) {
    core.pool(group).set_claimed(table.at(length / core.layout().page_tokens()), rows);
  }
  core.let_go(group, table, core.layout().first_kept_page(group, length));
  reservation = {};
}

}  // namespace

void note_tables(StepEntry& entry) {
  for (int group = 0; group < entry.sequence->groups(); ++group) {
    entry.groups[static_cast<std::size_t>(group)] = {.old_end_page =
                                                         entry.sequence->table(group).end_page()};
  }
}

Status reserve_rows(StoreCore& core, StepEntry& entry, int group, PageNeed& need) {
  PageTable& table = entry.sequence->table(group);
  const std::int64_t length = entry.sequence->length;
  const std::int64_t page_tokens = core.layout().page_tokens();
  if (core.tail_rows(length) > 0) {
    if (auto ok = reserve_tail(core, entry, group, need); !ok) return ok;
  }
  const std::int64_t end = length + entry.tokens;
  for (std::int64_t page = table.end_page(); page < core.pages_over(end); ++page) {
    auto fresh = take_page(core, group, need);
    if (!fresh) return tl::unexpected(fresh.error());
    if (*fresh == kNoPage) continue;
    core.pool(group).set_claimed(*fresh, std::min(end - page * page_tokens, page_tokens));
    table.pages.push_back(*fresh);
  }
  return {};
}

void undo_rows(StoreCore& core, StepEntry& entry) {
  for (int group = 0; group < entry.sequence->groups(); ++group) undo_group(core, entry, group);
}

void keep_rows(StoreCore& core, StepEntry& entry, std::int64_t tokens) {
  assert(tokens >= 0 && tokens <= entry.tokens);
  if (tokens == 0) {
    undo_rows(core, entry);
    return;
  }
  const std::int64_t length = entry.sequence->length + tokens;
  for (int group = 0; group < entry.sequence->groups(); ++group) {
    keep_group(core, entry, group, length);
  }
  entry.sequence->length = length;
}

}  // namespace pagekv::inline v0::internal
