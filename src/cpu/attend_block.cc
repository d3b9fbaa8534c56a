#include "cpu/attend_block.h"

#include <algorithm>
#include <array>
#include <limits>

#include "cpu/attend_rows.h"
#include "cpu/head_planes.h"
#include "cpu/span_reader.h"

namespace pagekv::inline v0::internal {

namespace {

// Rows [first_row, first_row + rows) of a sequence; query j of the block is row j / group, head
// j % group of the KV head.
class Block {
 public:
  Block(const AttendCall& call, const WorkItem& item, std::int64_t first_row, std::int64_t rows,
        std::int64_t kv_head, AttendScratch& scratch)
      : call_(call),
        kernels_(call.kernels),
        shape_(call.shape),
        item_(item),
        sequence_(call.plan.sequences[static_cast<std::size_t>(item.sequence)]),
        first_row_(first_row),
        queries_(rows * call.shape.group),
        kv_head_(kv_head),
        wide_(queries_ >= kWideQueries),
        scratch_(scratch),
        // Begins and ends of visible ranges ascend with the row.
        range_{visible(0).begin, visible(queries_ - 1).end},
        reader_(call.layer, kv_head, sequence_.pages, range_),
        key_codec_(codec_index(call.layer.format.k)),
        value_codec_(codec_index(call.layer.format.v)) {}

  void run() {
    pack_block();
    std::fill_n(scratch_.row_state, queries_, SoftmaxState{});
    for (std::int64_t chunk = 0; chunk < item_.chunks; ++chunk) {
      run_chunk((item_.first_chunk + chunk) * kChunkTokens);
      for (std::int64_t j = 0; j < queries_; ++j) finish_chunk(j);
    }
    if (item_.partial >= 0) return;
    for (std::int64_t j = 0; j < queries_; ++j) {
      write_row(call_, row_of(j), query_head(j), scratch_.row_state[j],
                scratch_.row_out + j * shape_.value_dim);
    }
  }

 private:
  TokenRange visible(std::int64_t query) const {
    return call_.plan.visible(sequence_, first_row_ + query / shape_.group);
  }
  std::int64_t row_of(std::int64_t query) const {
    return sequence_.first_row + first_row_ + query / shape_.group;
  }
  std::int64_t query_head(std::int64_t query) const {
    return kv_head_ * shape_.group + query % shape_.group;
  }

  // What queries [first, last] see of the span at `start`, counted from there.
  TokenRange visible_in(std::int64_t start, std::int64_t first, std::int64_t last) const {
    return {std::clamp<std::int64_t>(visible(first).begin - start, 0, kSpanTokens),
            std::clamp<std::int64_t>(visible(last).end - start, 0, kSpanTokens)};
  }

  void pack_block() {
    const std::int64_t width = wide_ ? kernels_.wide_queries : kernels_.narrow_queries;
    alignas(64) std::array<float, kMaxHeadDim> q;
    for (std::int64_t j = 0; j < (queries_ + width - 1) / width * width; ++j) {
      if (j < queries_) {
        load_query(call_, row_of(j), query_head(j), q.data());
      } else {
        q.fill(0.0f);  // fills the last kernel block; its results are not looked at
      }
      float* to = scratch_.packed_q + j / width * width * shape_.key_dim + j % width;
      for (std::int64_t dim = 0; dim < shape_.key_dim; ++dim) {
        to[dim * width] = q[static_cast<std::size_t>(dim)];
      }
    }
  }

  void run_chunk(std::int64_t chunk_start) {
    std::fill_n(scratch_.chunk_state, queries_, SoftmaxState{});
    for (std::int64_t at = 0; at < kChunkTokens; at += kSpanTokens) {
      SpanTiles span;
      if (!reader_.locate(chunk_start + at, span)) continue;
      if (wide_) {
        run_span_wide(chunk_start + at, span);
      } else {
        run_span_narrow(chunk_start + at, span);
      }
      for (std::int64_t j = 0; j < queries_; ++j) {
        kernels_.fold(scratch_.chunk_state[j], scratch_.chunk_out + j * shape_.value_dim,
                      scratch_.span_state[j], scratch_.span_out + j * shape_.value_dim,
                      shape_.value_dim);
      }
    }
  }

  void softmax_all(std::int64_t start) {
    for (std::int64_t j = 0; j < queries_; ++j) {
      const TokenRange range = visible_in(start, j, j);
      scratch_.span_state[j] =
          kernels_.softmax(scratch_.logits + j * kSpanTokens, range.begin, range.end, call_.map);
    }
  }

  void run_span_narrow(std::int64_t start, SpanTiles& span) {
    const std::int64_t value_row_bytes = call_.value_side.row_bytes[0];
    if (key_codec_ < kDTypes) {
      reader_.stage(start, span, reinterpret_cast<std::byte*>(scratch_.keys));
      kernels_.score_narrow[key_codec_](span, shape_.key_dim, value_row_bytes, scratch_.packed_q,
                                        queries_, scratch_.logits);
    } else {
      widen_tiles(start, span);
      kernels_.score_narrow[dtype_index(DType::f32)](span, shape_.key_dim, value_row_bytes,
                                                     scratch_.packed_q, queries_, scratch_.logits);
    }
    softmax_all(start);
    std::size_t value_type = value_codec_;
    if (value_codec_ >= kDTypes) {
      widen_rows(span);
      value_type = dtype_index(DType::f32);
    }
    kernels_.add_values_narrow[value_type](span, shape_.value_dim, call_.key_side.row_bytes[0],
                                           scratch_.logits, queries_, scratch_.span_out);
  }

  // Replaces the span's key tiles by their elements: [key_dim][16] floats are f32 keys in
  // key_tile16 form.
  void widen_tiles(std::int64_t start, SpanTiles& span) {
    for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
      float* to = scratch_.keys + tile * kTileTokens * shape_.key_dim;
      widen_tile(start, tile, span, to);
      span.k[static_cast<std::size_t>(tile)] = {reinterpret_cast<const std::byte*>(to)};
    }
  }

  // Replaces the span's value tiles by their elements, row-major.
  void widen_rows(SpanTiles& span) {
    kernels_.widen_values[value_codec_](span, call_.value_side, shape_.value_dim, scratch_.panels);
    for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
      const float* rows = scratch_.panels + tile * kTileTokens * shape_.value_dim;
      span.v[static_cast<std::size_t>(tile)] = {reinterpret_cast<const std::byte*>(rows)};
    }
  }

  void widen_tile(std::int64_t start, std::int64_t tile, const SpanTiles& span, float* to) {
    const ConstPlanePointers keys =
        reader_.stage_tile(start, tile, span, reinterpret_cast<std::byte*>(scratch_.key_tile));
    kernels_.widen_keys[key_codec_](keys, call_.key_side, to);
  }

  void run_span_wide(std::int64_t start, const SpanTiles& span) {
    widen_span(start, span);
    const std::int64_t step = kernels_.wide_tiles;
    for (std::int64_t tile = span.first_tile / step * step; tile < span.end_tile; tile += step) {
      for (std::int64_t j = 0; j < queries_; j += kernels_.wide_queries) {
        const TokenRange range = wide_range(start, j, kernels_.wide_queries);
        if (range.end <= tile * kTileTokens || range.begin >= (tile + step) * kTileTokens) continue;
        kernels_.score_wide(scratch_.keys + tile * kTileTokens * shape_.key_dim, shape_.key_dim,
                            scratch_.packed_q + j * shape_.key_dim,
                            scratch_.logits + j * kSpanTokens + tile * kTileTokens);
      }
    }
    softmax_all(start);
    for (std::int64_t dim = 0; dim < shape_.value_dim; dim += kernels_.panel_dims) {
      const std::int64_t width = std::min(kernels_.panel_dims, shape_.value_dim - dim);
      for (std::int64_t j = 0; j < queries_; j += kernels_.wide_values) {
        const TokenRange range = wide_range(start, j, kernels_.wide_values);
        if (range.begin >= range.end) continue;
        kernels_.add_values_wide(scratch_.panels + dim * kSpanTokens, width, range.begin, range.end,
                                 scratch_.logits + j * kSpanTokens, shape_.value_dim,
                                 scratch_.span_out + j * shape_.value_dim + dim);
      }
    }
  }

  TokenRange wide_range(std::int64_t start, std::int64_t first, std::int64_t count) const {
    return visible_in(start, first, std::min(first + count, queries_) - 1);
  }

  void widen_span(std::int64_t start, const SpanTiles& span) {
    const std::int64_t tile_floats = kTileTokens * shape_.key_dim;
    const std::int64_t step = kernels_.wide_tiles;
    const std::int64_t first = span.first_tile / step * step;
    const std::int64_t end = (span.end_tile + step - 1) / step * step;
    for (std::int64_t tile = first; tile < end; ++tile) {
      float* to = scratch_.keys + tile * tile_floats;
      if (tile < span.first_tile || tile >= span.end_tile) {
        std::fill_n(to, tile_floats, 0.0f);  // scored beside its neighbour, then masked
        continue;
      }
      widen_tile(start, tile, span, to);
    }
    kernels_.widen_values[value_codec_](span, call_.value_side, kernels_.panel_dims,
                                        scratch_.panels);
  }

  // The chunk's state goes to its slot, or into the row's.
  void finish_chunk(std::int64_t query) {
    const SoftmaxState& state = scratch_.chunk_state[query];
    const float* out = scratch_.chunk_out + query * shape_.value_dim;
    if (item_.partial < 0) {
      kernels_.fold(scratch_.row_state[query], scratch_.row_out + query * shape_.value_dim, state,
                    out, shape_.value_dim);
      return;
    }
    const std::int64_t row = first_row_ - item_.first_row + query / shape_.group;
    float* slot = call_.partial(item_.partial + row, query_head(query));
    if (state.max != -std::numeric_limits<float>::infinity()) {
      std::copy_n(out, shape_.value_dim, slot);
    }
    slot[shape_.value_dim] = state.max;
    slot[shape_.value_dim + 1] = state.sum;
  }

  const AttendCall& call_;
  const KernelTable& kernels_;
  const HeadShape& shape_;
  const WorkItem& item_;
  const PlanSequence& sequence_;
  const std::int64_t first_row_;
  const std::int64_t queries_;
  const std::int64_t kv_head_;
  const bool wide_;
  AttendScratch& scratch_;
  const TokenRange range_;
  const SpanReader reader_;
  const std::size_t key_codec_;
  const std::size_t value_codec_;
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
