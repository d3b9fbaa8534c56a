// Values: weighted sums of value rows, dims in vector lanes.
//
// The one arithmetic, whichever function runs: out[dim] starts at 0 and takes p[t] * v[t][dim] for
// ascending t within a span. A masked token has p = 0 and changes at most the sign of a zero, which
// fold() clears.
#include <algorithm>
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

// Value rows [begin, end) of `stride` elements each; p and out of the queries are kSpanTokens and
// out_stride apart.
struct ValueRows {
  const std::byte* data;
  std::int64_t stride;
  std::int64_t begin;
  std::int64_t end;
  const float* p;
  float* out;
  std::int64_t out_stride;
  // Bytes to prefetch meanwhile, spread evenly over rows and dims: a burst of requests would fill
  // the line buffers and stall (it cost 15 % of decode).
  const std::byte* ahead = nullptr;
  std::int64_t ahead_row_bytes = 0;
};

// Bytes [begin, end) of row t's share.
HWY_INLINE void prefetch_share(const ValueRows& rows, std::int64_t t, std::int64_t begin,
                               std::int64_t end) {
  const std::byte* row = rows.ahead + t * rows.ahead_row_bytes;
  for (std::int64_t byte = begin; byte < end; byte += kLineBytes) {
    __builtin_prefetch(row + byte, 0, 2);
  }
}

// Adds dims [dim, dim + kCount * Lanes(d)) of all rows to the queries' sums.
template <DType kType, int kQueries, int kCount, class D>
HWY_INLINE void add_block(D d, const ValueRows& rows, std::int64_t dim, bool from_zero) {
  using V = hn::Vec<D>;
  constexpr std::int64_t kWidth = static_cast<std::int64_t>(hn::MaxLanes(D()));
  const std::int64_t ahead_begin = rows.ahead_row_bytes * dim / rows.stride;
  const std::int64_t ahead_end = rows.ahead_row_bytes * (dim + kCount * kWidth) / rows.stride;
  V sums[kQueries][kCount];
  HWY_UNROLL(6)
  for (int i = 0; i < kQueries; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kCount; ++j) {
      sums[i][j] =
          from_zero ? hn::Zero(d) : hn::LoadU(d, rows.out + i * rows.out_stride + dim + j * kWidth);
    }
  }
  for (std::int64_t t = rows.begin; t < rows.end; ++t) {
    prefetch_share(rows, t, ahead_begin, ahead_end);
    V v[kCount];
    HWY_UNROLL(4)
    for (int j = 0; j < kCount; ++j) {
      v[j] = load_f32<kType>(d, rows.data, t * rows.stride + dim + j * kWidth);
    }
    HWY_UNROLL(6)
    for (int i = 0; i < kQueries; ++i) {
      const V p = hn::Set(d, rows.p[i * kSpanTokens + t]);
      HWY_UNROLL(4)
      for (int j = 0; j < kCount; ++j) sums[i][j] = hn::MulAdd(p, v[j], sums[i][j]);
    }
  }
  HWY_UNROLL(6)
  for (int i = 0; i < kQueries; ++i) {
    HWY_UNROLL(4)
    for (int j = 0; j < kCount; ++j) {
      hn::StoreU(sums[i][j], d, rows.out + i * rows.out_stride + dim + j * kWidth);
    }
  }
}

template <DType kType, int kQueries>
void add_rows(const ValueRows& rows, std::int64_t dims, bool from_zero) {
  const FloatTag d;
  std::int64_t dim = 0;
  for (; dim + kDimVectors * kLanes <= dims; dim += kDimVectors * kLanes) {
    add_block<kType, kQueries, kDimVectors>(d, rows, dim, from_zero);
  }
  for (; dim + kLanes <= dims; dim += kLanes) {
    add_block<kType, kQueries, 1>(d, rows, dim, from_zero);
  }
  if (dim < dims) add_block<kType, kQueries, 1>(TailTag(), rows, dim, from_zero);
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
void add_values_narrow(const SpanTiles& span, std::int64_t value_dim, std::int64_t key_row_bytes,
                       const float* p, std::int64_t queries, float* out) {
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const auto at = static_cast<std::size_t>(tile);
    const std::int64_t start = tile * kTileTokens;
    const TokenRange readable = span.rows(tile);
    for (std::int64_t first = 0; first < queries; first += kNarrowBlock) {
      const ValueRows rows{
          .data = span.v[at][0],
          .stride = value_dim,
          .begin = readable.begin,
          .end = readable.end,
          .p = p + first * kSpanTokens + start,
          .out = out + first * value_dim,
          .out_stride = value_dim,
          .ahead = span.next_k[at],
          .ahead_row_bytes = span.next_k[at] == nullptr || first > 0 ? 0 : key_row_bytes};
      pick_add_rows<kType>(queries - first)(rows, value_dim, tile == span.first_tile);
    }
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
  const ValueRows rows{.data = reinterpret_cast<const std::byte*>(panel),
                       .stride = width,
                       .begin = begin,
                       .end = end,
                       .p = p,
                       .out = out,
                       .out_stride = value_dim};
  add_rows<DType::f32, kWideValues>(rows, width, true);
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
