// What a step does to page tables: reserve rows, undo that, or keep a count of them.
//
// The rule of claims: a page's `claimed` is one more than the highest row any holder sees or any
// live step has reserved. A row may be written in place iff it is at or past `claimed`; otherwise
// the writer gets a copy of that one page. All functions REQUIRE the store's mutex.
#pragma once

#include <cstdint>

#include "core/step_state.h"
#include "core/store_core.h"

namespace pagekv::inline v0::internal {

// Pages of one group that an attempt needed, and how many of them were not to be had.
struct PageNeed {
  std::int64_t needed = 0;
  std::int64_t missing = 0;
};

// Notes how the entry's tables are now, which undo_rows() goes back to.
void note_tables(StepEntry& entry);

// Reserves rows [length, length + tokens) of the entry's sequence in `group`. Where pages are
// missing it goes on counting; the caller then undoes every entry. Errors: out_of_memory.
Status reserve_rows(StoreCore& core, StepEntry& entry, int group, PageNeed& need);

// Leaves the tables as they were at note_tables().
void undo_rows(StoreCore& core, StepEntry& entry);

// Keeps the first `tokens` reserved rows, gives the others up, and lets go of pages behind windows.
void keep_rows(StoreCore& core, StepEntry& entry, std::int64_t tokens);

}  // namespace pagekv::inline v0::internal
