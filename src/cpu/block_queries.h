// BlockQueries: the rows and heads that a block takes through the pages together, and what each
// sees.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "core/plan.h"
#include "cpu/attend_block.h"
#include "cpu/span_mask.h"

namespace pagekv::inline v0::internal {

// Rows [first_row, first_row + count / group) of a sequence, all query heads of one KV head. Query
// j is row j / group, head j % group of the KV head.
struct BlockQueries {
  const AttendCall& call;
  const PlanSequence& sequence;
  std::int64_t first_row;
  std::int64_t kv_head;
  std::int64_t count;
  const SpanMask* mask = nullptr;             // of the span at hand; null: a row sees a range
  const std::int64_t* shared_rows = nullptr;  // indices among all rows of the call; null: none

  bool is_shared() const { return shared_rows != nullptr; }
  std::int64_t rows() const { return count / call.shape.group; }
  std::int64_t row(std::int64_t query) const {
    if (is_shared()) return shared_rows[query / call.shape.group];
    return sequence.first_row + first_row + query / call.shape.group;
  }
  std::int64_t head(std::int64_t query) const {
    return kv_head * call.shape.group + query % call.shape.group;
  }
  // All that the block's rows see. REQUIRES: not shared.
  TokenRange visible() const { return call.plan.visible_rows(sequence, first_row, rows()); }

  // A range with all that queries [first, first + number) see of the span at `start`, counted from
  // there; the least one for a single query. Begins and ends of visible ranges ascend with the row.
  TokenRange visible_in(std::int64_t start, std::int64_t first, std::int64_t number) const {
    if (is_shared()) return {0, kSpanTokens};
    const std::int64_t first_in = first / call.shape.group;
    const std::int64_t last_in = (std::min(first + number, count) - 1) / call.shape.group;
    if (mask != nullptr) return mask->range(first_in, last_in);
    const std::int64_t begin = call.plan.visible(sequence, first_row + first_in).begin;
    const std::int64_t end = call.plan.visible(sequence, first_row + last_in).end;
    return {std::clamp<std::int64_t>(begin - start, 0, kSpanTokens),
            std::clamp<std::int64_t>(end - start, 0, kSpanTokens)};
  }
  // Calls use(first, number, what they see) for the queries, `step` at a time, but for those that
  // see nothing of the span at `start`.
  template <typename Use>
  void for_each_seen(std::int64_t start, std::int64_t step, Use use) const {
    for (std::int64_t first = 0; first < count; first += step) {
      const std::int64_t number = std::min(step, count - first);
      const TokenRange range = visible_in(start, first, number);
      if (range.begin < range.end) use(first, number, range);
    }
  }
  // What the query sees of that range; null: all of it.
  const SpanBits* bits_in(std::int64_t query) const {
    return mask == nullptr ? nullptr : mask->bits(query / call.shape.group);
  }
};

// Whether one side of the call's heads is for the matrix unit. Only where queries are bf16: others
// are two factors each, and would make decode slower. A block's own rows are read in f32, and so
// are the stored ones beside them.
inline bool takes_matrix(const AttendCall& call, std::size_t codec) {
  return call.integers && call.args.q.dtype == DType::bf16 && call.plan.spec.mask != Mask::block &&
         call.kernels.matrix.score != nullptr && codec == dtype_index(DType::bf16);
}

// Whether the block's codes, if they are multiplied as integers, are so by the matrix unit.
inline bool takes_bytes(const BlockQueries& queries) {
  return queries.count >= kLeastMatrixQueries &&
         queries.call.kernels.matrix.multiply_bytes != nullptr;
}

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
