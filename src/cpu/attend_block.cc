#include "cpu/attend_block.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "cpu/attend_keys.h"
#include "cpu/attend_rows.h"
#include "cpu/attend_values.h"
#include "cpu/block_queries.h"
#include "cpu/block_tail.h"
#include "cpu/span_reader.h"

namespace pagekv::inline v0::internal {

namespace {

// A block's way to stored rows of one codec.
struct Source {
  Source(const BlockQueries& queries, SpanReader span_reader, AttendScratch& scratch)
      : reader(span_reader), keys(queries, reader, scratch), values(queries, scratch) {}
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  const SpanReader reader;
  BlockKeys keys;
  BlockValues values;
};

// The same for the tail of a block read.
struct TailSource {
  TailSource(const BlockQueries& stored, const TailPages& pages, AttendScratch& scratch)
      : layer(pages.address()),
        call(stored.call.on(layer)),
        queries{call,         stored.sequence, stored.first_row, stored.kv_head,
                stored.count, nullptr,         nullptr},
        begin(pages.begin()),
        source(queries,
               SpanReader(layer, stored.kv_head, &kOnlyPage, {begin, stored.sequence.end()}, begin),
               scratch) {}

  static constexpr PageId kOnlyPage{0};
  const LayerAddress layer;
  const AttendCall call;
  const BlockQueries queries;
  const std::int64_t begin;  // position of its first token
  Source source;
};

class Block {
 public:
  Block(const BlockQueries& queries, TokenRange readable, AttendScratch& scratch)
      : call_(queries.call),
        shape_(queries.call.shape),
        mask_(call_.plan, queries.sequence, queries.first_row, queries.rows()),
        queries_(queries),
        scratch_(scratch),
        stored_(queries_,
                SpanReader(call_.layer, queries.kv_head, queries.sequence.pages, readable),
                scratch),
        width_(stored_.values.width()) {
    if (!queries.is_shared() && queries.sequence.is_masked()) queries_.mask = &mask_;
    if (call_.plan.spec.mask == Mask::block && !queries.is_shared()) {
      tail_.emplace(queries_, TailPages(call_, queries.sequence), scratch);
    }
    stored_.keys.pack();
    std::fill_n(scratch_.row_state, queries_.count, SoftmaxState{});
  }

  // Goes on from the states of the prefix that the rows share with others.
  void begin_from(const SharedPrefix& prefix) {
    for (std::int64_t j = 0; j < queries_.count; ++j) {
      const std::int64_t row = queries_.sequence.prefix_row + queries_.first_row + j / shape_.group;
      for (std::int64_t part = 0; part < prefix.parts; ++part) {
        const float* from = call_.partial(prefix.slot(row, part), queries_.head(j));
        const SoftmaxState state{from[shape_.value_dim], from[shape_.value_dim + 1]};
        if (part == 0) {  // as it was left: what folds do to zeros is done
          scratch_.row_state[j] = state;
          stored_.values.from_order(from, scratch_.row_out + j * width_);
          continue;
        }
        stored_.values.from_order(from, scratch_.span_out);
        call_.kernels.fold(scratch_.row_state[j], scratch_.row_out + j * width_, state,
                           scratch_.span_out, width_);
      }
    }
  }

  void attend(std::int64_t first_chunk, std::int64_t chunks) {
    for (std::int64_t chunk = first_chunk; chunk < first_chunk + chunks; ++chunk) {
      run_chunk(chunk * kChunkTokens);
      for (std::int64_t j = 0; j < queries_.count; ++j) {
        call_.kernels.fold(scratch_.row_state[j], scratch_.row_out + j * width_,
                           scratch_.chunk_state[j], scratch_.chunk_out + j * width_, width_);
      }
    }
  }

  // The rows' states into slots from `slot` on, one for each row.
  void store(std::int64_t slot) {
    for (std::int64_t j = 0; j < queries_.count; ++j) {
      const SoftmaxState& state = scratch_.row_state[j];
      float* to = call_.partial(slot + j / shape_.group, queries_.head(j));
      if (state.max != -std::numeric_limits<float>::infinity()) {
        std::copy_n(stored_.values.in_order(scratch_.row_out + j * width_), shape_.value_dim, to);
      }
      to[shape_.value_dim] = state.max;
      to[shape_.value_dim + 1] = state.sum;
    }
  }

  void write() {
    for (std::int64_t j = 0; j < queries_.count; ++j) {
      float* out = scratch_.row_out + j * width_;
      const float* ordered = stored_.values.in_order(out);
      if (ordered != out) std::copy_n(ordered, shape_.value_dim, out);
      write_row(call_, queries_.row(j), queries_.head(j), scratch_.row_state[j], out);
    }
  }

 private:
  void run_chunk(std::int64_t chunk_start) {
    std::fill_n(scratch_.chunk_state, queries_.count, SoftmaxState{});
    for (std::int64_t start = chunk_start; start < chunk_start + kChunkTokens;
         start += kSpanTokens) {
      if (queries_.mask != nullptr && !mask_.enter(start)) continue;
      if (tail_ && start >= tail_->begin) {
        if (!run_tail_span(start)) continue;
      } else if (!run_span(start, stored_)) {
        continue;
      }
      for (std::int64_t j = 0; j < queries_.count; ++j) {
        call_.kernels.fold(scratch_.chunk_state[j], scratch_.chunk_out + j * width_,
                           scratch_.span_state[j], scratch_.span_out + j * width_, width_);
      }
    }
  }

  // False: nothing of the span is readable.
  bool run_span(std::int64_t start, Source& source) {
    SpanTiles span;
    if (!source.reader.locate(start, span)) return false;
    source.keys.score(start, span);
    AskAhead ask = span.next_keys.lines();
    softmax_all(start, source.values.softmax(), ask);
    source.values.add(start, span, ask);
    return true;
  }

  // Stored rows come first: the queries are packed anew once.
  bool run_tail_span(std::int64_t start) {
    if (!tail_packed_) tail_->source.keys.pack();
    tail_packed_ = true;
    if (!run_span(start, tail_->source)) return false;
    // Into the order of what is stored; the last query first, since its place may be further on.
    for (std::int64_t j = queries_.count - 1; j >= 0; --j) {
      stored_.values.from_order(scratch_.span_out + j * shape_.value_dim,
                                scratch_.span_out + j * width_);
    }
    return true;
  }

  void softmax_all(std::int64_t start, KernelTable::Softmax* softmax, AskAhead& ask) {
    std::array<SeenTokens, kSoftmaxRows> seen;
    for (std::int64_t first = 0; first < queries_.count; first += kSoftmaxRows) {
      const std::int64_t rows = std::min(kSoftmaxRows, queries_.count - first);
      float* logits = scratch_.logits + first * kSpanTokens;
      for (std::int64_t j = 0; j < rows; ++j) {
        ask.ask(kSoftmaxRounds);
        const TokenRange range = queries_.visible_in(start, first + j, 1);
        seen[static_cast<std::size_t>(j)] = {range, queries_.bits_in(first + j)};
        if (call_.map.is_capped()) {
          call_.kernels.cap_logits(logits + j * kSpanTokens, range, call_.map);
        }
      }
      softmax(logits, seen.data(), rows, call_.map.factor(), scratch_.span_state + first);
    }
  }

  const AttendCall& call_;
  const HeadShape& shape_;
  SpanMask mask_;  // looked at where the sequence is masked
  BlockQueries queries_;
  AttendScratch& scratch_;
  Source stored_;
  std::optional<TailSource> tail_;
  bool tail_packed_ = false;
  const std::int64_t width_;  // floats of an output until it is written
};

// What of the rows' tokens is read from pages.
TokenRange readable(const BlockQueries& queries) {
  TokenRange range = queries.visible();
  if (queries.call.plan.spec.mask == Mask::block) {
    range.end = TailPages(queries.call, queries.sequence).begin();
  }
  return range;
}

// Calls use(first row, rows) for the rows of an item, a block at a time.
template <typename Use>
void for_each_block(const AttendCall& call, std::int64_t rows, Use use) {
  const std::int64_t step = rows_per_block(call.shape.group);
  for (std::int64_t row = 0; row < rows; row += step) use(row, std::min(step, rows - row));
}

}  // namespace

void attend_shared(const AttendCall& call, const SharedItem& item, std::int64_t kv_head,
                   AttendScratch& scratch) {
  const SharedPrefix& prefix = call.plan.prefixes[static_cast<std::size_t>(item.prefix)];
  const PlanSequence& sequence = call.plan.sequences[static_cast<std::size_t>(prefix.sequence)];
  for_each_block(call, item.rows, [&](std::int64_t row, std::int64_t rows) {
    const std::int64_t* shared_rows =
        call.plan.shared_rows.data() + prefix.first_row + item.first_row + row;
    Block block({call, sequence, 0, kv_head, rows * call.shape.group, nullptr, shared_rows},
                {0, prefix.chunks * kChunkTokens}, scratch);
    block.attend(item.first_chunk, item.chunks);
    block.store(item.partial + row);
  });
}

void attend_item(const AttendCall& call, const WorkItem& item, std::int64_t kv_head,
                 AttendScratch& scratch) {
  const PlanSequence& sequence = call.plan.sequences[static_cast<std::size_t>(item.sequence)];
  for_each_block(call, item.rows, [&](std::int64_t row, std::int64_t rows) {
    const BlockQueries queries{
        call, sequence, item.first_row + row, kv_head, rows * call.shape.group, nullptr, nullptr};
    Block block(queries, readable(queries), scratch);
    if (item.partial < 0 && sequence.prefix >= 0) {
      block.begin_from(call.plan.prefixes[static_cast<std::size_t>(sequence.prefix)]);
    }
    block.attend(item.first_chunk, item.chunks);
    if (item.partial < 0) {
      block.write();
    } else {
      block.store(item.partial + row);
    }
  });
}

void merge_item(const AttendCall& call, const MergeItem& merge, std::int64_t query_head,
                AttendScratch& scratch) {
  const PlanSequence& sequence = call.plan.sequences[static_cast<std::size_t>(merge.sequence)];
  const std::int64_t value_dim = call.shape.value_dim;
  for (std::int64_t row = 0; row < merge.rows; ++row) {
    SoftmaxState state;
    const auto fold = [&](std::int64_t slot) {
      const float* part = call.partial(slot, query_head);
      call.kernels.fold(state, scratch.row_out, {part[value_dim], part[value_dim + 1]}, part,
                        value_dim);
    };
    if (sequence.prefix >= 0) {
      const SharedPrefix& prefix = call.plan.prefixes[static_cast<std::size_t>(sequence.prefix)];
      const std::int64_t prefix_row = sequence.prefix_row + merge.first_row + row;
      const float* first = call.partial(prefix.slot(prefix_row, 0), query_head);
      state = {first[value_dim], first[value_dim + 1]};
      std::copy_n(first, value_dim, scratch.row_out);
      for (std::int64_t part = 1; part < prefix.parts; ++part) fold(prefix.slot(prefix_row, part));
    }
    for (std::int64_t chunk = 0; chunk < merge.chunks; ++chunk) {
      fold(merge.partial + chunk * merge.rows + row);
    }
    write_row(call, sequence.first_row + merge.first_row + row, query_head, state, scratch.row_out);
  }
}

}  // namespace pagekv::inline v0::internal
