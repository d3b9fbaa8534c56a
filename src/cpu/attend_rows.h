// Where a row begins and ends: its query out of the caller's tensor, its result into it.
#pragma once

#include <cstdint>

#include "core/softmax_state.h"
#include "cpu/attend_block.h"

namespace pagekv::inline v0::internal {

// key_dim floats of one query, rotated where the stored keys are. `row` counts over all rows of the
// call.
void load_query(const AttendCall& call, std::int64_t row, std::int64_t query_head, float* q);

// Folds the head's sink into the row's state, divides, undoes the rotation of stored values, and
// writes the output and log-sum-exp.
// `out`: value_dim floats, spoiled.
void write_row(const AttendCall& call, std::int64_t row, std::int64_t query_head,
               SoftmaxState state, float* out);

}  // namespace pagekv::inline v0::internal
