// Cascade: which sequences of a plan name the same pages from the front, so that their rows can
// attend those pages together, each stored row read and unpacked once for all of them.
//
// What is shared is whole chunks that every row of the sharers sees whole, so a row's states are
// the ones it has alone, folded in the same order (core/plan.h): the cut changes no bit.
#pragma once

#include <cstdint>

#include "core/plan.h"

namespace pagekv::inline v0::internal {

// Fills PlanState::prefixes and shared_rows, and PlanSequence::prefix, from the sequences; none
// where the spec does not want it. Where all share less than some do, those share that save most.
// Comparing page tables is linear in the sequences, where not many groups begin with the same page.
void share_prefixes(PlanState& plan, const AttendCut& cut, std::int64_t page_tokens);

}  // namespace pagekv::inline v0::internal
