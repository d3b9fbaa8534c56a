// The end of a block read, whose last tokens are not stored: the span in which they begin and all
// after it, as f32 pages that one run() makes for itself.
//
// The view's last tokens are widened there, the block's rows are put behind them as they were
// given, and all are read by the arithmetic of f32 pages, as if the block were stored in its own
// type. Rows of rotated sides are rotated, so that queries and sums are those of the pages before.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/layer_address.h"
#include "cpu/attend_block.h"
#include "cpu/attend_scratch.h"

namespace pagekv::inline v0::internal {

// Floats of the plan's workspace for all sequences and KV heads.
std::int64_t tail_floats(const PlanState& plan, std::int64_t kv_heads, const HeadShape& shape);

// Where the tail of one sequence is. REQUIRES: the plan is a block read.
class TailPages {
 public:
  TailPages(const AttendCall& call, const PlanSequence& sequence);

  std::int64_t begin() const { return begin_; }  // position of its first token, a span's first
  // As one page of all tokens, whose id is 0.
  LayerAddress address() const;
  float* keys(std::int64_t kv_head) const;    // [tile][key_dim][16]
  float* values(std::int64_t kv_head) const;  // [token][value_dim]

 private:
  const AttendCall& call_;
  float* base_;
  std::int64_t begin_;
  std::int64_t tokens_;  // rounded up to whole tiles
};

// Fills one KV head of the sequence's tail.
void fill_tail(const AttendCall& call, const PlanSequence& sequence, std::int64_t kv_head,
               const AttendScratch& scratch);

}  // namespace pagekv::inline v0::internal
