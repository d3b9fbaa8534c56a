// Values of codebooks, weighted, with scales factored out of the sums: `fast`.
//
// The one arithmetic, whichever function runs: out[dim] starts at 0 and takes
// (p[t] * scale[t][group]) * centroid[t][dim] for ascending t within a span.
#include <algorithm>
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
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const std::int64_t start = tile * kTileTokens;
    transpose_scales(shape.scales, span.v[static_cast<std::size_t>(tile)][1], shape.groups,
                     std::max<std::int64_t>(span.begin - start, 0),
                     std::min(span.end - start, kTileTokens), scales + start);
    take_out_large(shape.groups, tile, scales, nullptr, large);
  }
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

// Vectors of dims and queries held in registers, as in cpu/values.cc.
inline constexpr int kTableVectors = kLanes == 16 ? 4 : 2;

// Dims [dim, dim + kCount * Lanes(d)) of all tokens, within one group, whose weights are
// weights[query][token].
template <int kBits, int kQueries, int kCount, class D>
HWY_INLINE void add_table_block(D d, const Table<kBits, D>& table, const SpanTiles& span,
                                const SideShape& shape, std::int64_t dim, const float* weights,
                                std::int64_t key_bytes, float* out) {
  constexpr std::int64_t kWidth = kLanesOf<D>;
  hn::Vec<D> sums[kQueries * kCount];
  HWY_UNROLL(16)
  for (int i = 0; i < kQueries * kCount; ++i) sums[i] = hn::Zero(d);
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const auto at = static_cast<std::size_t>(tile);
    const std::int64_t start = tile * kTileTokens;
    const std::int64_t begin = std::max<std::int64_t>(span.begin - start, 0);
    const std::int64_t end = std::min(span.end - start, kTileTokens);
    const std::byte* rows = span.v[at][0];
    Ahead ahead(key_bytes == 0 ? nullptr : span.next_k[at], key_bytes, kTileTokens);
    for (std::int64_t t = begin; t < end; ++t) {
      ahead.ask();
      hn::Vec<D> v[kCount];
      HWY_UNROLL(4)
      for (int j = 0; j < kCount; ++j) {
        v[j] = table(load_codes<kBits>(d, rows + t * shape.row_bytes[0], dim + j * kWidth));
      }
      HWY_UNROLL(16)
      for (int i = 0; i < kQueries * kCount; ++i) {
        const auto weight = hn::Set(d, weights[i / kCount * kSpanTokens + start + t]);
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
void add_table_rows(const SpanTiles& span, const SideShape& shape, std::int64_t key_row_bytes,
                    const float* weights, float* out) {
  const Table<kBits, FloatTag> table;
  std::int64_t key_bytes = key_row_bytes * kTileTokens;
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    const float* own = weights + group * kQueries * kSpanTokens;
    const std::int64_t end = (group + 1) * shape.group;
    std::int64_t dim = group * shape.group;
    for (; dim + kTableVectors * kLanes <= end; dim += kTableVectors * kLanes) {
      add_table_block<kBits, kQueries, kTableVectors>(FloatTag(), table, span, shape, dim, own,
                                                      key_bytes, out);
      key_bytes = 0;
    }
    for (; dim + kLanes <= end; dim += kLanes) {
      add_table_block<kBits, kQueries, 1>(FloatTag(), table, span, shape, dim, own, key_bytes, out);
      key_bytes = 0;
    }
    if (dim < end) {  // 8 dims: codebooks' groups are multiples of 8
      const Table<kBits, TailTag> tail;
      add_table_block<kBits, kQueries, 1>(TailTag(), tail, span, shape, dim, own, key_bytes, out);
    }
  }
}

template <int kBits>
void add_table(const SpanTiles& span, const SideShape& shape, std::int64_t key_row_bytes,
               const float* weights, std::int64_t queries, float* out) {
  switch (queries) {
    case 1: return add_table_rows<kBits, 1>(span, shape, key_row_bytes, weights, out);
    case 2: return add_table_rows<kBits, 2>(span, shape, key_row_bytes, weights, out);
    case 3: return add_table_rows<kBits, 3>(span, shape, key_row_bytes, weights, out);
    default: return add_table_rows<kBits, 4>(span, shape, key_row_bytes, weights, out);
  }
}

// For many queries: the span's centroids, [panel][token][panel width] as widen_values has them.
template <int kBits>
void spread_table(const SpanTiles& span, const SideShape& shape, std::int64_t panel_dims,
                  float* panels) {
  const TailTag d;
  const Table<kBits, TailTag> table;
  for (std::int64_t first = 0; first < shape.dim; first += panel_dims) {
    const std::int64_t width = std::min(panel_dims, shape.dim - first);
    for (std::int64_t t = span.begin; t < span.end; ++t) {
      const std::byte* rows = span.v[static_cast<std::size_t>(t / kTileTokens)][0];
      const std::byte* row = rows + t % kTileTokens * shape.row_bytes[0];
      float* to = panels + first * kSpanTokens + t * width;
      for (std::int64_t dim = 0; dim < width; dim += kTailLanes) {
        hn::StoreU(table(load_codes<kBits>(d, row, first + dim)), d, to + dim);
      }
    }
  }
}

template <std::int64_t kWidth, std::size_t kAt = 0>
void fill_tables(KernelTable& table) {
  if constexpr (kWidth >= 8 && kAt < kCodebookWidths.size()) {  // what load_codes() takes
    table.tables.load_scales = load_table_scales;
    table.tables.weigh = weigh_table;
    table.tables.add[kAt] = add_table<kCodebookWidths[kAt]>;
    table.tables.spread[kAt] = spread_table<kCodebookWidths[kAt]>;
    fill_tables<kWidth, kAt + 1>(table);
  }
}

void export_tables(KernelTable& table) {
  fill_tables<kLanes>(table);
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
