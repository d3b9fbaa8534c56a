// Random masks of every kind: spans and boolean matrices.
#pragma once

#include <cstdint>
#include <vector>

#include "pagekv/attend.h"
#include "support/random_data.h"
#include "support/reference.h"

namespace pagekv::testing {

// Ascending, disjoint, within [0, length), some alone and some in sets.
std::vector<BidirectionalSpan> pick_spans(Random& random, std::int64_t length);

// [row][length]: single tokens here and there, runs, all, or nothing, row by row.
std::vector<std::uint8_t> pick_matrix(Random& random, std::int64_t rows, std::int64_t length);

// The matrix that says what the case's mask says.
std::vector<std::uint8_t> matrix_of(const ReferenceCase& reference);

}  // namespace pagekv::testing
