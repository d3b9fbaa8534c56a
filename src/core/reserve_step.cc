#include "core/reserve_step.h"

#include <algorithm>
#include <mutex>

#include "core/reservation.h"

namespace pagekv::inline v0::internal {

namespace {

// Other threads may take what a reclaimer gave up; after this many attempts the pool counts as full.
constexpr int kReclaimAttempts = 4;

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

void set_up(StepState& step, const std::shared_ptr<StoreCore>& core,
            std::span<const Append> appends) {
  const auto groups = static_cast<std::size_t>(core->layout().group_count());
  step.store = core;
  step.rows = 0;
  if (step.entries.size() < appends.size()) step.entries.resize(appends.size());
  step.spans.resize(std::max(step.spans.size(), appends.size()));
  step.written.assign(static_cast<std::size_t>(core->layout().layer_count()), 0);
  for (std::size_t index = 0; index < appends.size(); ++index) {
    step.entries[index].groups.resize(groups);
  }
}

// Puts every sequence into the step; on an error none is.
Status enlist(StoreCore& core, StepState& step, std::span<const Append> appends) {
  Status status;
  for (const Append& append : appends) {
    status = check_append(core, append, step.count);
    if (!status) break;
    StepEntry& entry = step.entry(step.count++);
    entry.sequence = append.sequence->state();
    entry.sequence->live_step = &step;
    entry.tokens = append.tokens;
    step.rows += append.tokens;
  }
  return status;
}

void delist(StepState& step) {
  for (int index = 0; index < step.count; ++index) {
    step.entry(index).sequence->live_step = nullptr;
    step.entry(index).sequence.reset();
  }
  step.count = 0;
  step.store.reset();
}

// One attempt at all rows of all groups. Where pages are missing, or the system refuses memory, the
// tables are as they were.
Result<Shortage> attempt(StoreCore& core, StepState& step) {
  for (int index = 0; index < step.count; ++index) note_tables(step.entry(index));
  Shortage shortage;
  Status status;
  int groups_done = 0;
  for (; status && groups_done < core.layout().group_count(); ++groups_done) {
    PageNeed need;
    for (int index = 0; index < step.count && status; ++index) {
      status = reserve_rows(core, step.entry(index), groups_done, need);
    }
    if (need.missing > 0 && shortage.group < 0) shortage = {groups_done, need};
  }
  if (status && shortage.group < 0) return shortage;
  for (int index = 0; index < step.count; ++index) undo_rows(core, step.entry(index));
  if (!status) return tl::unexpected(status.error());
  return shortage;
}

Error exhausted(const StoreCore& core, const Shortage& shortage, const Reclaimer::Pages& pages) {
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
  std::unique_lock lock(core->mutex());
  std::unique_ptr<StepState> step = core->take_step_state();
  set_up(*step, core, appends);
  const auto give_up = [&](Error error) {
    delist(*step);
    core->give_step_state(std::move(step));
    return tl::unexpected(std::move(error));
  };
  if (auto ok = enlist(*core, *step, appends); !ok) return give_up(ok.error());

  for (int tries = 0;; ++tries) {
    auto shortage = attempt(*core, *step);
    if (!shortage) return give_up(shortage.error());
    if (shortage->group < 0) break;
    const std::shared_ptr<Reclaimer> reclaimer = core->reclaimer;
    Reclaimer::Pages pages;
    if (reclaimer) {  // it may drop views and sequences, which takes the mutex
      lock.unlock();
      pages = reclaimer->pages(shortage->group);
      if (tries < kReclaimAttempts && pages.reclaimable > 0) {
        reclaimer->reclaim(shortage->group, shortage->need.missing);
        lock.lock();
        continue;
      }
      lock.lock();
    }
    return give_up(exhausted(*core, *shortage, pages));
  }
  core->live_steps.push_back(step.get());
  lock.unlock();
  copy_tails(*core, *step);
  return step;
}

}  // namespace pagekv::inline v0::internal
