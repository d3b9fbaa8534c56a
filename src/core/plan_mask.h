// What rows see where a range per row cannot say it: spans whose tokens see each other, and boolean
// matrices. Copied into the plan; asked for 64 tokens at a time, so that a reader never decides
// token by token.
#pragma once

#include <cstdint>

#include "core/plan.h"
#include "pagekv/attend.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::internal {

// Errors: invalid_argument, naming entry `index` of the plan and what is legal.
Status check_mask(const AttendSpec& spec, const QueryRows& query, std::int64_t index);

void clear_masks(PlanState& plan);
// Copies the query's mask behind the plan's others. REQUIRES: checked; `sequence` has its length
// and rows. Spans that no row is in leave the sequence unmasked.
void add_mask(PlanState& plan, PlanSequence& sequence, const QueryRows& query);

// Which of tokens [start, start + 64) the row of a masked sequence sees, the first in the lowest
// bit. REQUIRES: `start` is a multiple of 64.
std::uint64_t visible_word(const PlanState& plan, const PlanSequence& sequence, std::int64_t row,
                           std::int64_t start);

}  // namespace pagekv::inline v0::internal
