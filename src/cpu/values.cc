// Values: weighted sums of value rows, dims in vector lanes.
//
// The one arithmetic, whichever function runs: out[dim] starts at 0 and takes p[t] * v[t][dim] for
// ascending t within a span. A masked token has p = 0 and changes at most the sign of a zero, which
// fold() clears.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/values.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

inline constexpr int kNarrowBlock = 4;
inline constexpr int kWideValues = 6;
inline constexpr std::int64_t kPanelDims = kDimVectors * kLanes < 8 ? 8 : kDimVectors * kLanes;

// Value rows [begin, end) of a span, of `stride` elements each; p and out of the queries are
// kSpanTokens and out_stride apart.
struct ValueRows {
  std::array<const std::byte*, kSpanTiles> tiles;  // row 0 of each
  std::int64_t stride;
  std::int64_t begin;
  std::int64_t end;
  const float* p;
  float* out;
  std::int64_t out_stride;
};

// Sums of dims [dim, dim + kCount * Lanes(d)) over all rows. kCount is kDimVectors or 1.
template <DType kType, int kQueries, int kCount, class D>
HWY_INLINE void add_block(D d, const ValueRows& rows, std::int64_t dim, AskAhead& ask) {
  using V = hn::Vec<D>;
  V sums[kQueries][kCount];
  HWY_UNROLL(6)
  for (int i = 0; i < kQueries; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kCount; ++j) sums[i][j] = hn::Zero(d);
  }
  for (std::int64_t start = rows.begin; start < rows.end;) {
    const std::int64_t tile = start / kTileTokens;
    const std::int64_t end = std::min((tile + 1) * kTileTokens, rows.end);
    const std::byte* data = rows.tiles[static_cast<std::size_t>(tile)];
    for (std::int64_t t = start; t < end; ++t) {
      ask();
      const std::int64_t index = t % kTileTokens * rows.stride + dim;
      V v[kCount];
      if constexpr (kCount == 1) {
        v[0] = load_f32<kType>(d, data, index);
      } else {
        load_dims<kType>(data, index, v);
      }
      HWY_UNROLL(6)
      for (int i = 0; i < kQueries; ++i) {
        const V p = hn::Set(d, rows.p[i * kSpanTokens + t]);
        HWY_UNROLL(4)
        for (int j = 0; j < kCount; ++j) sums[i][j] = hn::MulAdd(p, v[j], sums[i][j]);
      }
    }
    start = end;
  }
  HWY_UNROLL(6)
  for (int i = 0; i < kQueries; ++i) {
    float* to = rows.out + i * rows.out_stride + dim;
    if constexpr (kCount == 1) {
      hn::StoreU(sums[i][0], d, to);
    } else {
      store_dims<kType>(sums[i], to);
    }
  }
}

template <DType kType, int kQueries>
void add_rows(const ValueRows& rows, std::int64_t dims, AskAhead& ask) {
  const FloatTag d;
  std::int64_t dim = 0;
  for (; dim + kDimVectors * kLanes <= dims; dim += kDimVectors * kLanes) {
    add_block<kType, kQueries, kDimVectors>(d, rows, dim, ask);
  }
  for (; dim + kLanes <= dims; dim += kLanes) add_block<kType, kQueries, 1>(d, rows, dim, ask);
  if (dim < dims) add_block<kType, kQueries, 1>(TailTag(), rows, dim, ask);
}

template <DType kType>
HWY_INLINE auto pick_add_rows(std::int64_t queries) -> decltype(&add_rows<kType, 1>) {
  static_assert(kNarrowBlock == 4);
  switch (queries) {
    case 1: return add_rows<kType, 1>;
    case 2: return add_rows<kType, 2>;
    case 3: return add_rows<kType, 3>;
    default: return add_rows<kType, 4>;
  }
}

template <DType kType>
void add_values_narrow(const SpanTiles& span, std::int64_t value_dim, AskAhead& ask, const float* p,
                       std::int64_t queries, float* out) {
  ask.spread((span.end - span.begin) * dim_blocks(value_dim));
  ValueRows rows{.tiles = {},
                 .stride = value_dim,
                 .begin = span.begin,
                 .end = span.end,
                 .p = p,
                 .out = out,
                 .out_stride = value_dim};
  for (std::size_t tile = 0; tile < kSpanTiles; ++tile) rows.tiles[tile] = span.v[tile][0];
  for (std::int64_t first = 0; first < queries; first += kNarrowBlock) {
    pick_add_rows<kType>(queries - first)(rows, value_dim, ask);
    rows.p += kNarrowBlock * kSpanTokens;
    rows.out += kNarrowBlock * value_dim;
  }
}

template <DType kType>
void widen_values(const SpanTiles& span, const SideShape& shape, std::int64_t panel_dims,
                  float* panels) {
  const TailTag d;
  constexpr std::int64_t kWidth = static_cast<std::int64_t>(hn::MaxLanes(TailTag()));
  for (std::int64_t first = 0; first < shape.dim; first += panel_dims) {
    const std::int64_t width = std::min(panel_dims, shape.dim - first);
    for (std::int64_t t = span.begin; t < span.end; ++t) {
      const std::byte* tile = span.v[static_cast<std::size_t>(t / kTileTokens)][0];
      const std::int64_t row = t % kTileTokens * shape.dim + first;
      float* to = panels + first * kSpanTokens + t * width;
      for (std::int64_t dim = 0; dim < width; dim += kWidth) {
        hn::StoreU(load_f32<kType>(d, tile, row + dim), d, to + dim);
      }
    }
  }
}

void add_values_wide(const float* panel, std::int64_t width, std::int64_t begin, std::int64_t end,
                     const float* p, std::int64_t value_dim, float* out) {
  ValueRows rows{.tiles = {},
                 .stride = width,
                 .begin = begin,
                 .end = end,
                 .p = p,
                 .out = out,
                 .out_stride = value_dim};
  for (std::int64_t tile = 0; tile < kSpanTiles; ++tile) {
    const float* first = panel + tile * kTileTokens * width;
    rows.tiles[static_cast<std::size_t>(tile)] = reinterpret_cast<const std::byte*>(first);
  }
  AskAhead nothing;
  add_rows<DType::f32, kWideValues>(rows, width, nothing);
}

void export_values(KernelTable& table) {
  table.add_values_narrow = {add_values_narrow<DType::f32>, add_values_narrow<DType::f16>,
                             add_values_narrow<DType::bf16>};
  table.widen_values[dtype_index(DType::f32)] = widen_values<DType::f32>;
  table.widen_values[dtype_index(DType::f16)] = widen_values<DType::f16>;
  table.widen_values[dtype_index(DType::bf16)] = widen_values<DType::bf16>;
  table.add_values_wide = add_values_wide;
  table.wide_values = kWideValues;
  table.panel_dims = kPanelDims;
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_values);

void bind_values(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_values), table);
}

}  // namespace pagekv::inline v0::internal
#endif
