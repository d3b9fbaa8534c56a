#include "cpu/attend_block.h"

#include <algorithm>
#include <limits>

#include "cpu/attend_keys.h"
#include "cpu/attend_rows.h"
#include "cpu/attend_values.h"
#include "cpu/block_queries.h"
#include "cpu/span_reader.h"

namespace pagekv::inline v0::internal {

namespace {

class Block {
 public:
  Block(const AttendCall& call, const WorkItem& item, std::int64_t first_row, std::int64_t rows,
        std::int64_t kv_head, AttendScratch& scratch)
      : call_(call),
        shape_(call.shape),
        item_(item),
        sequence_(call.plan.sequences[static_cast<std::size_t>(item.sequence)]),
        mask_(call.plan, sequence_, first_row, rows),
        queries_{call,
                 sequence_,
                 first_row,
                 kv_head,
                 rows * call.shape.group,
                 sequence_.is_masked() ? &mask_ : nullptr},
        scratch_(scratch),
        reader_(call.layer, kv_head, sequence_.pages, queries_.visible()),
        keys_(queries_, reader_, scratch),
        values_(queries_, scratch),
        width_(values_.width()) {}

  void run() {
    keys_.pack();
    std::fill_n(scratch_.row_state, queries_.count, SoftmaxState{});
    for (std::int64_t chunk = 0; chunk < item_.chunks; ++chunk) {
      run_chunk((item_.first_chunk + chunk) * kChunkTokens);
      for (std::int64_t j = 0; j < queries_.count; ++j) finish_chunk(j);
    }
    if (item_.partial >= 0) return;
    for (std::int64_t j = 0; j < queries_.count; ++j) {
      float* out = scratch_.row_out + j * width_;
      const float* ordered = values_.in_order(out);
      if (ordered != out) std::copy_n(ordered, shape_.value_dim, out);
      write_row(call_, queries_.row(j), queries_.head(j), scratch_.row_state[j], out);
    }
  }

 private:
  void run_chunk(std::int64_t chunk_start) {
    std::fill_n(scratch_.chunk_state, queries_.count, SoftmaxState{});
    for (std::int64_t at = 0; at < kChunkTokens; at += kSpanTokens) {
      if (queries_.mask != nullptr && !mask_.enter(chunk_start + at)) continue;
      SpanTiles span;
      if (!reader_.locate(chunk_start + at, span)) continue;
      keys_.score(chunk_start + at, span);
      softmax_all(chunk_start + at);
      values_.add(chunk_start + at, span);
      for (std::int64_t j = 0; j < queries_.count; ++j) {
        call_.kernels.fold(scratch_.chunk_state[j], scratch_.chunk_out + j * width_,
                           scratch_.span_state[j], scratch_.span_out + j * width_, width_);
      }
    }
  }

  void softmax_all(std::int64_t start) {
    for (std::int64_t j = 0; j < queries_.count; ++j) {
      const TokenRange range = queries_.visible_in(start, j, 1);
      scratch_.span_state[j] = call_.kernels.softmax(scratch_.logits + j * kSpanTokens, range.begin,
                                                     range.end, queries_.bits_in(j), call_.map);
    }
  }

  // The chunk's state goes to its slot, or into the row's.
  void finish_chunk(std::int64_t query) {
    const SoftmaxState& state = scratch_.chunk_state[query];
    const float* out = scratch_.chunk_out + query * width_;
    if (item_.partial < 0) {
      call_.kernels.fold(scratch_.row_state[query], scratch_.row_out + query * width_, state, out,
                         width_);
      return;
    }
    const std::int64_t row = queries_.first_row - item_.first_row + query / shape_.group;
    float* slot = call_.partial(item_.partial + row, queries_.head(query));
    if (state.max != -std::numeric_limits<float>::infinity()) {
      std::copy_n(values_.in_order(out), shape_.value_dim, slot);
    }
    slot[shape_.value_dim] = state.max;
    slot[shape_.value_dim + 1] = state.sum;
  }

  const AttendCall& call_;
  const HeadShape& shape_;
  const WorkItem& item_;
  const PlanSequence& sequence_;
  SpanMask mask_;  // looked at where the sequence is masked
  const BlockQueries queries_;
  AttendScratch& scratch_;
  const SpanReader reader_;
  BlockKeys keys_;
  BlockValues values_;
  const std::int64_t width_;  // floats of an output until it is written
};

}  // namespace

void attend_item(const AttendCall& call, const WorkItem& item, std::int64_t kv_head,
                 AttendScratch& scratch) {
  const std::int64_t step = rows_per_block(call.shape.group);
  for (std::int64_t row = 0; row < item.rows; row += step) {
    Block(call, item, item.first_row + row, std::min(step, item.rows - row), kv_head, scratch)
        .run();
  }
}

void merge_item(const AttendCall& call, const MergeItem& merge, std::int64_t query_head,
                AttendScratch& scratch) {
  const PlanSequence& sequence = call.plan.sequences[static_cast<std::size_t>(merge.sequence)];
  const std::int64_t value_dim = call.shape.value_dim;
  for (std::int64_t row = 0; row < merge.rows; ++row) {
    SoftmaxState state;
    for (std::int64_t chunk = 0; chunk < merge.chunks; ++chunk) {
      const float* part = call.partial(merge.partial + chunk * merge.rows + row, query_head);
      call.kernels.fold(state, scratch.row_out, {part[value_dim], part[value_dim + 1]}, part,
                        value_dim);
    }
    write_row(call, sequence.first_row + merge.first_row + row, query_head, state, scratch.row_out);
  }
}

}  // namespace pagekv::inline v0::internal
