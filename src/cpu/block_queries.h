// BlockQueries: the rows and heads that a block takes through the pages together, and what each
// sees.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/plan.h"
#include "cpu/attend_block.h"

namespace pagekv::inline v0::internal {

// Rows [first_row, first_row + rows) of a sequence, all query heads of one KV head. Query j is row
// j / group, head j % group of the KV head.
struct BlockQueries {
  const AttendCall& call;
  const PlanSequence& sequence;
  std::int64_t first_row;
  std::int64_t kv_head;
  std::int64_t count;

  TokenRange visible(std::int64_t query) const {
    return call.plan.visible(sequence, first_row + query / call.shape.group);
  }
  std::int64_t row(std::int64_t query) const {
    return sequence.first_row + first_row + query / call.shape.group;
  }
  std::int64_t head(std::int64_t query) const {
    return kv_head * call.shape.group + query % call.shape.group;
  }

  // What queries [first, first + number) see of the span at `start`, counted from there. Begins and
  // ends of visible ranges ascend with the row.
  TokenRange visible_in(std::int64_t start, std::int64_t first, std::int64_t number) const {
    const std::int64_t last = std::min(first + number, count) - 1;
    return {std::clamp<std::int64_t>(visible(first).begin - start, 0, kSpanTokens),
            std::clamp<std::int64_t>(visible(last).end - start, 0, kSpanTokens)};
  }
};

// Calls use(token) for the tokens of a span that are marked.
template <typename Use>
void for_each_token(const SpanBits& marked, Use use) {
  for (std::size_t word = 0; word < marked.size(); ++word) {
    for (std::uint64_t left = marked[word]; left != 0; left &= left - 1) {
      use(static_cast<std::int64_t>(64 * word) + std::countr_zero(left));
    }
  }
}

}  // namespace pagekv::inline v0::internal
