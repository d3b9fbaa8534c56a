// SpanMask: which tokens of one span the rows of a block see, where the plan has more to say than a
// range per row (core/plan_mask.h). Found once a span; everything that works on spans then goes by
// ranges, and only the softmax looks at bits.
#pragma once

#include <array>
#include <cstdint>

#include "core/plan.h"
#include "cpu/code_weights.h"
#include "cpu/constants.h"

namespace pagekv::inline v0::internal {

class SpanMask {
 public:
  // Rows [first_row, first_row + rows) of the sequence; at most kBlockQueries rows.
  SpanMask(const PlanState& plan, const PlanSequence& sequence, std::int64_t first_row,
           std::int64_t rows)
      : plan_(plan), sequence_(sequence), first_row_(first_row), rows_(rows) {}

  // Looks at the span at position `start`. False: no row sees any of it.
  bool enter(std::int64_t start);

  // Of the span entered, counted from its start: the least range that has what rows [first, last]
  // of the block see.
  TokenRange range(std::int64_t first, std::int64_t last) const;
  // The tokens a row sees, or null where they are all of range(row, row).
  const SpanBits* bits(std::int64_t row) const {
    const auto at = static_cast<std::size_t>(row);
    return broken_[at] ? &bits_[at] : nullptr;
  }

 private:
  const PlanState& plan_;
  const PlanSequence& sequence_;
  std::int64_t first_row_;
  std::int64_t rows_;
  std::array<SpanBits, kBlockQueries> bits_;
  std::array<TokenRange, kBlockQueries> ranges_;
  std::array<bool, kBlockQueries> broken_;  // has gaps
};

}  // namespace pagekv::inline v0::internal
