// What a live step holds: who takes part, what was changed in the tables, and how to undo it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/backend.h"
#include "core/holder.h"
#include "core/ids.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::internal {

// One group's part of one sequence's reservation.
struct GroupReservation {
  std::int64_t old_end_page = 0;  // pages in the table before the step
  PageId replaced = kNoPage;      // shared tail page that was copied; still referenced by the step
  bool claimed_tail = false;      // rows of the tail page were claimed in place
};

struct StepEntry {
  std::shared_ptr<SequenceState> sequence;
  std::int64_t tokens = 0;
  std::vector<GroupReservation> groups;
  std::optional<Error> failure;
};

class StepState {
 public:
  std::shared_ptr<StoreCore> store;
  int count = 0;          // entries in use; the vector keeps its capacity between steps
  bool reserved = false;  // the entries' tables have the step's rows
  std::int64_t rows = 0;  // over all entries
  std::vector<StepEntry> entries;
  std::vector<std::uint8_t> written;  // by layer
  std::vector<WriteSpan> spans;       // of write(), by entry

  StepEntry& entry(int index) { return entries[static_cast<std::size_t>(index)]; }
  const StepEntry& entry(int index) const { return entries[static_cast<std::size_t>(index)]; }
};

// Ends a step whose rows are kept or undone already: its sequences are free again and the record
// goes back to the store. Takes the mutex, and lets go of it before the last holder of a sequence
// may die.
void retire_step(std::unique_ptr<StepState> step);

}  // namespace pagekv::inline v0::internal
