// The gathered arm: the control that the direct arm is compared with.
#pragma once

#include "cpu/attend_block.h"

namespace pagekv::inline v0::internal {

// Floats of scratch for a view of `length` tokens.
std::int64_t gathered_floats(std::int64_t length, const HeadShape& shape);

// All rows of one sequence for one KV head: decodes the keys and values that any row sees into
// contiguous f32 rows, then computes each row by the textbook.
void attend_gathered(const AttendCall& call, const PlanSequence& sequence, std::int64_t kv_head,
                     float* scratch);

}  // namespace pagekv::inline v0::internal
