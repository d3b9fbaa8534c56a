// Codebook values, weighted, with scales factored out of the sums and centroids looked up as f32:
// `fast`, where codes are not looked up as bytes (cpu/code_table.h).
//
// The one arithmetic, whichever function runs: out[dim] starts at 0 and takes
// (p[t] * scale[t][group]) * centroid(code[t][dim]) for ascending t within a span.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/table_values.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/elements-inl.h"
#include "cpu/span_scales-inl.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

void load_table_scales(const SpanTiles& span, const SideShape& shape, float* scales,
                       SpanBits& large) {
  load_span_scales(span, shape, scales, nullptr, large);
}

void weigh_table(const SpanTiles& span, const SideShape& shape, const float* scales, const float* p,
                 std::int64_t queries, float* weights) {
  const FloatTag d;
  for (std::int64_t query = 0; query < queries; ++query) {
    for (std::int64_t group = 0; group < shape.groups; ++group) {
      float* to = weights + (group * queries + query) * kSpanTokens;
      for (std::int64_t t = span.first_tile * kTileTokens; t < span.end_tile * kTileTokens;
           t += kLanes) {
        hn::StoreU(hn::Mul(hn::LoadU(d, p + query * kSpanTokens + t),
                           hn::LoadU(d, scales + group * kSpanTokens + t)),
                   d, to + t);
      }
    }
  }
}

// Dims [dim, dim + kCount * Lanes(d)) of all tokens; no vector of dims has two groups.
template <int kBits, int kQueries, int kCount, class D>
HWY_INLINE void add_table_block(D d, const Table<kBits, D>& worth, const SpanTiles& span,
                                const SideShape& shape, std::int64_t dim, const float* weights,
                                AskAhead& ask, float* out) {
  constexpr std::int64_t kWidth = kLanesOf<D>;
  const float* own[kCount];
  hn::Vec<D> sums[kQueries * kCount];
  HWY_UNROLL(4)
  for (int j = 0; j < kCount; ++j) {
    own[j] = weights + (dim + j * kWidth) / shape.group * kQueries * kSpanTokens;
  }
  HWY_UNROLL(16)
  for (int i = 0; i < kQueries * kCount; ++i) sums[i] = hn::Zero(d);
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const auto at = static_cast<std::size_t>(tile);
    const std::int64_t start = tile * kTileTokens;
    const auto [begin, end] = span.rows(tile);
    const std::byte* rows = span.v[at][0];
    for (std::int64_t t = begin; t < end; ++t) {
      ask();
      hn::Vec<D> v[kCount];
      HWY_UNROLL(4)
      for (int j = 0; j < kCount; ++j) {
        v[j] = worth(load_codes<kBits>(d, rows + t * shape.row_bytes[0], dim + j * kWidth));
      }
      HWY_UNROLL(16)
      for (int i = 0; i < kQueries * kCount; ++i) {
        const auto weight = hn::Set(d, own[i % kCount][i / kCount * kSpanTokens + start + t]);
        sums[i] = hn::MulAdd(weight, v[i % kCount], sums[i]);
      }
    }
  }
  HWY_UNROLL(16)
  for (int i = 0; i < kQueries * kCount; ++i) {
    hn::StoreU(sums[i], d, out + i / kCount * shape.dim + dim + i % kCount * kWidth);
  }
}

template <int kBits, int kQueries>
void add_table_rows(const SpanTiles& span, const SideShape& shape, AskAhead& ask,
                    const float* weights, float* out) {
  const FloatTag d;
  const Table<kBits, FloatTag> worth;
  ask.spread((span.end - span.begin) * dim_blocks(shape.dim));
  std::int64_t dim = 0;
  for (; dim + kDimVectors * kLanes <= shape.dim; dim += kDimVectors * kLanes) {
    add_table_block<kBits, kQueries, kDimVectors>(d, worth, span, shape, dim, weights, ask, out);
  }
  for (; dim + kLanes <= shape.dim; dim += kLanes) {
    add_table_block<kBits, kQueries, 1>(d, worth, span, shape, dim, weights, ask, out);
  }
  if (dim < shape.dim) {
    const Table<kBits, TailTag> tail;
    add_table_block<kBits, kQueries, 1>(TailTag(), tail, span, shape, dim, weights, ask, out);
  }
}

template <int kBits>
void add_table(const SpanTiles& span, const SideShape& shape, AskAhead& ask, const float* weights,
               std::int64_t queries, float* out) {
  switch (queries) {
    case 1: return add_table_rows<kBits, 1>(span, shape, ask, weights, out);
    case 2: return add_table_rows<kBits, 2>(span, shape, ask, weights, out);
    case 3: return add_table_rows<kBits, 3>(span, shape, ask, weights, out);
    default: return add_table_rows<kBits, 4>(span, shape, ask, weights, out);
  }
}

// For many queries: what the span's codes are worth, [panel][token][panel width] as widen_values
// has them.
template <int kBits>
void spread_table(const SpanTiles& span, const SideShape& shape, std::int64_t panel_dims,
                  float* panels) {
  const TailTag d;
  const Table<kBits, TailTag> worth;
  for (std::int64_t first = 0; first < shape.dim; first += panel_dims) {
    const std::int64_t width = std::min(panel_dims, shape.dim - first);
    for (std::int64_t t = span.begin; t < span.end; ++t) {
      const std::byte* rows = span.v[static_cast<std::size_t>(t / kTileTokens)][0];
      const std::byte* row = rows + t % kTileTokens * shape.row_bytes[0];
      float* to = panels + first * kSpanTokens + t * width;
      for (std::int64_t dim = 0; dim < width; dim += kTailLanes) {
        hn::StoreU(worth(load_codes<kBits>(d, row, first + dim)), d, to + dim);
      }
    }
  }
}

template <std::size_t kAt = 0>
void fill_tables(TableKernels& tables) {
  if constexpr (kLanes >= 8 && kAt < kCodebookWidths.size()) {  // what load_codes() takes
    constexpr int kBits = kCodebookWidths[kAt];
    tables.load_scales = load_table_scales;
    tables.weigh = weigh_table;
    tables.add[kAt] = add_table<kBits>;
    tables.spread[kAt] = spread_table<kBits>;
    fill_tables<kAt + 1>(tables);
  }
}

void export_tables(KernelTable& table) {
  fill_tables(table.tables);
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_tables);

void bind_tables(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_tables), table);
}

}  // namespace pagekv::inline v0::internal
#endif
