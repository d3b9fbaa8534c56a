#include "core/reserve_step.h"

#include <algorithm>
#include <mutex>

#include "core/reservation.h"

namespace pagekv::inline v0::internal {

namespace {

// How often a reclaimer is asked. One that gives up less than it is asked for, or gives to others
// who take it first, must not be asked for ever.
constexpr int kReclaimRounds = 1000;

struct Shortage {
  int group = -1;  // -1: none
  PageNeed need;
};

Status check_append(const StoreCore& core, const Append& append, std::int64_t index) {
  if (append.sequence == nullptr || !append.sequence->valid()) {
    return fail(ErrorCode::invalid_argument, "append {0} names no sequence", {index});
  }
  const SequenceState& sequence = *append.sequence->state();
  if (sequence.store().get() != &core) {
    return fail(ErrorCode::wrong_store, "append {0} names a sequence of another store", {index});
  }
  const std::int64_t limit = core.options().max_sequence_tokens;
  if (append.tokens < 1) {
    return fail(ErrorCode::invalid_argument, "append {0} asks for {1} tokens; at least 1 is legal",
                {index, append.tokens});
  }
  if (append.tokens > limit - sequence.length) {
    return fail(ErrorCode::too_long,
                "a sequence of {2} tokens cannot take {3} more: the store's limit is {1} tokens",
                {sequence.length + append.tokens, limit, sequence.length, append.tokens});
  }
  if (sequence.live_step != nullptr) {
    return fail(ErrorCode::busy, "the sequence of append {0} is in a live step, or listed twice",
                {index});
  }
  return {};
}

// A record with room for everything: nothing after this allocates.
std::unique_ptr<StepState> set_up(const std::shared_ptr<StoreCore>& core,
                                  std::span<const Append> appends) {
  std::unique_ptr<StepState> step;
  {
    const std::lock_guard lock(core->mutex());
    step = core->take_step_state();
  }
  const auto groups = static_cast<std::size_t>(core->layout().group_count());
  step->store = core;
  step->rows = 0;
  if (step->entries.size() < appends.size()) step->entries.resize(appends.size());
  step->spans.resize(std::max(step->spans.size(), appends.size()));
  step->written.assign(static_cast<std::size_t>(core->layout().layer_count()), 0);
  for (std::size_t index = 0; index < appends.size(); ++index) {
    step->entries[index].groups.resize(groups);
  }
  return step;
}

// Puts the sequences into the step, up to the first that may not be. REQUIRES the mutex.
Status enlist(StoreCore& core, StepState& step, std::span<const Append> appends) {
  core.live_steps.push_back(&step);
  for (const Append& append : appends) {
    if (auto ok = check_append(core, append, step.count); !ok) return ok;
    StepEntry& entry = step.entry(step.count++);
    entry.sequence = append.sequence->state();
    entry.sequence->live_step = &step;
    entry.tokens = append.tokens;
    step.rows += append.tokens;
  }
  return {};
}

// One attempt at all rows of all groups. Where pages are missing, or the system refuses memory, the
// tables are as they were. REQUIRES the mutex.
Result<Shortage> attempt(StoreCore& core, StepState& step) {
  for (int index = 0; index < step.count; ++index) note_tables(step.entry(index));
  Shortage shortage;
  Status status;
  for (int group = 0; status && group < core.layout().group_count(); ++group) {
    PageNeed need;
    for (int index = 0; index < step.count && status; ++index) {
      status = reserve_rows(core, step.entry(index), group, need);
    }
    if (need.missing > 0 && shortage.group < 0) shortage = {group, need};
  }
  if (status && shortage.group < 0) {
    for (int index = 0; index < step.count; ++index) {
      step.entry(index).sequence->reserved_tokens = step.entry(index).tokens;
    }
    step.reserved = true;
    return shortage;
  }
  for (int index = 0; index < step.count; ++index) undo_rows(core, step.entry(index));
  if (!status) return tl::unexpected(status.error());
  return shortage;
}

Error exhausted(const StoreCore& core, const Shortage& shortage, const Reclaimer::Pages& pages) {
  const std::lock_guard lock(core.mutex());
  const GroupStats stats = core.pool(shortage.group).stats();
  const std::int64_t uncommitted =
      std::min(stats.reserved_pages - stats.committed_pages,
               (core.options().cap_bytes - core.committed_bytes()) / stats.page_bytes);
  return Error(ErrorCode::pool_exhausted,
               "the page pool of group {0} is full: {1} pages needed, {2} free, {3} reclaimable, "
               "{4} pinned, cap {5} pages",
               {shortage.group, shortage.need.needed, stats.free_pages + uncommitted,
                pages.reclaimable, pages.pinned, stats.reserved_pages});
}

// Asks the reclaimer for what is short: pages of that group, or, since groups share the cap, as
// many bytes of another. Without the mutex: it may drop views and sequences. False where it has
// nothing.
bool ask(const CacheLayout& layout, Reclaimer& reclaimer, const Shortage& shortage) {
  const std::int64_t bytes = shortage.need.missing * layout.group(shortage.group).page_bytes;
  for (int offset = 0; offset < layout.group_count(); ++offset) {
    const int group = (shortage.group + offset) % layout.group_count();
    if (reclaimer.pages(group).reclaimable <= 0) continue;
    const std::int64_t page_bytes = layout.group(group).page_bytes;
    reclaimer.reclaim(group, (bytes + page_bytes - 1) / page_bytes);
    return true;
  }
  return false;
}

// All pages of the step, or the Error that says what is missing.
Status reserve_pages(StoreCore& core, StepState& step) {
  int rounds = 0;
  for (;;) {
    Shortage shortage;
    std::shared_ptr<Reclaimer> reclaimer;
    {
      const std::lock_guard lock(core.mutex());
      auto attempted = attempt(core, step);
      if (!attempted) return tl::unexpected(attempted.error());
      if (attempted->group < 0) return {};
      shortage = *attempted;
      reclaimer = core.reclaimer.lock();
    }
    const bool asked =
        reclaimer && rounds++ < kReclaimRounds && ask(core.layout(), *reclaimer, shortage);
    if (asked) continue;
    const Reclaimer::Pages pages =
        reclaimer ? reclaimer->pages(shortage.group) : Reclaimer::Pages{};
    return tl::unexpected(exhausted(core, shortage, pages));
  }
}

// Copies the rows that moved to a page of their own. Outside the mutex: the step holds both pages.
void copy_tails(StoreCore& core, const StepState& step) {
  for (int index = 0; index < step.count; ++index) {
    const StepEntry& entry = step.entry(index);
    const std::int64_t length = entry.sequence->length;
    for (int group = 0; group < core.layout().group_count(); ++group) {
      const PageId from = entry.groups[static_cast<std::size_t>(group)].replaced;
      if (from == kNoPage) continue;
      const PageId to = entry.sequence->table(group).at(length / core.layout().page_tokens());
      for (const int layer : core.layout().group(group).layers) {
        core.backend().copy_rows(core.address(layer), from, to, core.tail_rows(length), {});
      }
    }
  }
}

}  // namespace

Result<std::unique_ptr<StepState>> reserve_step(const std::shared_ptr<StoreCore>& core,
                                                std::span<const Append> appends) {
  if (appends.empty()) {
    return fail(ErrorCode::invalid_argument, "a step needs at least one sequence");
  }
  std::unique_ptr<StepState> step = set_up(core, appends);
  Status status;
  {
    const std::lock_guard lock(core->mutex());
    status = enlist(*core, *step, appends);
  }
  if (status) status = reserve_pages(*core, *step);
  if (!status) {
    retire_step(std::move(step));
    return tl::unexpected(status.error());
  }
  copy_tails(*core, *step);
  return step;
}

}  // namespace pagekv::inline v0::internal
