// The cut of one attention read into work: plain data made by core, executed by a backend.
//
// The cut never changes a result. A row's tokens are covered by chunks at absolute positions, a
// chunk by spans; span states fold left within a chunk, chunk states fold left in order
// (softmax_state.h). An item that covers all chunks of its rows folds as it goes; items of a split
// sequence store one partial state per row and chunk, and a merge folds those in the same order:
// the same bits. Rows that share a prefix go through its chunks first, in shared items, each of
// which leaves what its rows' folds have come to; from there they go on alone. Work is done in this
// order: shared items, items, merges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/ids.h"
#include "core/token_range.h"
#include "pagekv/attend.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::internal {

class StoreCore;

// How a backend cuts; constants of the backend, on absolute token positions.
struct AttendCut {
  std::int64_t chunk_tokens = 0;   // a multiple of the backend's span
  std::int64_t rows_per_item = 0;  // query rows one item takes at most
};

// One view with its queries.
struct PlanSequence {
  const PageId* pages = nullptr;  // page table by position / page_tokens
  std::int64_t length = 0;        // tokens of the view
  std::int64_t rows = 0;          // queries, for its last `rows` tokens
  std::int64_t first_row = 0;     // index of its first query among all rows of the call
  // What a range per row cannot say (core/plan_mask.h): PlanState::spans [first_span, first_span +
  // spans), or rows of `row_words` words from PlanState::matrix[first_word] on.
  std::int64_t first_span = 0;
  std::int64_t spans = 0;
  std::int64_t first_word = 0;
  std::int64_t row_words = 0;
  // Of PlanState::prefixes, or -1; and which of the prefix's rows is this sequence's first.
  std::int32_t prefix = -1;
  std::int64_t prefix_row = 0;
  std::int64_t block_tokens = 0;  // unstored ones behind the view, of Mask::block

  std::int64_t end() const { return length + block_tokens; }
  bool is_masked() const { return spans > 0 || row_words > 0; }
  std::int64_t position(std::int64_t row) const { return length - rows + row; }
};

// Chunks [0, chunks) that the rows of several sequences see whole, in the same pages.
struct SharedPrefix {
  std::int32_t sequence = 0;   // one of them: its page table is read
  std::int64_t first_row = 0;  // rows PlanState::shared_rows [first_row, first_row + rows)
  std::int64_t rows = 0;
  std::int64_t chunks = 0;
  // Partial states of a row: 1, of all chunks, or one of each.
  std::int64_t parts = 1;
  std::int64_t partial = 0;

  std::int64_t slot(std::int64_t row, std::int64_t part) const {
    return partial + part * rows + row;
  }
};

// Rows [first_row, first_row + rows) of a prefix, over chunks [first_chunk, first_chunk + chunks).
struct SharedItem {
  std::int32_t prefix = 0;
  std::int32_t rows = 0;
  std::int64_t first_row = 0;  // within the prefix
  std::int64_t first_chunk = 0;
  std::int64_t chunks = 0;
  std::int64_t partial = 0;  // slot of the first row's state
};

// Rows [first_row, first_row + rows) of one sequence, over chunks [first_chunk, first_chunk +
// chunks), none of them of its prefix. Every KV head is separate work on top.
struct WorkItem {
  std::int32_t sequence = 0;
  std::int32_t rows = 0;
  std::int64_t first_row = 0;  // within the sequence
  std::int64_t first_chunk = 0;
  std::int64_t chunks = 0;
  // Slot of the first partial state (one per row, since chunks == 1); -1: covers all chunks of its
  // rows behind their prefix, goes on from that and writes the output itself.
  std::int64_t partial = -1;
};

// Partial states of a split: that of row r and chunk c is in slot partial + c * rows + r. Those of
// a prefix come before.
struct MergeItem {
  std::int32_t sequence = 0;
  std::int32_t rows = 0;
  std::int64_t first_row = 0;
  std::int64_t chunks = 0;
  std::int64_t partial = 0;
};

// A sequence while sharers are looked for (core/share_prefixes.h).
struct Sharer {
  PageId first_page{};
  std::int32_t sequence = 0;
  std::int64_t tokens = 0;  // from the front, that all of its rows see
  std::int64_t chunks = 0;  // in common with the sharer that leads
};

struct PlanState;

// The least range that has all tokens which rows [first_row, first_row + rows) of a masked sequence
// see; empty where they see none.
TokenRange masked_rows(const PlanState& plan, const PlanSequence& sequence, std::int64_t first_row,
                       std::int64_t rows);

struct PlanState {
  std::shared_ptr<StoreCore> store;
  AttendSpec spec;
  std::int64_t window_tokens = 0;  // resolved; 0: none
  std::int64_t total_rows = 0;
  std::int64_t partial_slots = 0;
  std::vector<PlanSequence> sequences;
  std::vector<BidirectionalSpan> spans;
  std::vector<std::uint64_t> matrix;  // a bit per token, least significant first
  std::vector<SharedPrefix> prefixes;
  std::vector<std::int64_t> shared_rows;  // of prefixes: indices among all rows of the call
  std::vector<Sharer> sharers;
  std::vector<SharedItem> shared_items;
  std::vector<WorkItem> items;
  std::vector<MergeItem> merges;
  std::vector<float> workspace;  // partial states, then scratch of each worker

  // Tokens that a row of a sequence without spans and matrix sees. Begins and ends ascend with the
  // row.
  TokenRange visible(const PlanSequence& sequence, std::int64_t row) const {
    if (spec.mask != Mask::causal && spec.mask != Mask::local) return {0, sequence.end()};
    const std::int64_t position = sequence.position(row);
    if (position < 0) return {};
    if (window_tokens == 0) {
      return {0, spec.mask == Mask::causal ? position + 1 : sequence.length};
    }
    const std::int64_t begin = std::max<std::int64_t>(0, position + 1 - window_tokens);
    const std::int64_t ahead = spec.mask == Mask::causal ? 1 : window_tokens;
    return {begin, std::min(sequence.length, position + ahead)};
  }

  // The least range that has all tokens which rows [first_row, first_row + rows) see.
  TokenRange visible_rows(const PlanSequence& sequence, std::int64_t first_row,
                          std::int64_t rows) const {
    if (sequence.is_masked()) return masked_rows(*this, sequence, first_row, rows);
    const std::int64_t last = first_row + rows - 1;
    // Rows before the first token see nothing.
    const std::int64_t first = std::clamp(sequence.rows - sequence.length, first_row, last);
    return {visible(sequence, first).begin, visible(sequence, last).end};
  }
};

// Fills shared_items, items, merges and partial_slots from spec, window_tokens, sequences and
// prefixes, for `threads` threads and the smallest number of KV heads the plan will run on.
void cut_work(PlanState& plan, const AttendCut& cut, int threads, int kv_heads);

}  // namespace pagekv::inline v0::internal
