// Quantized values, weighted, with scales factored out of the sums and codes looked up or converted
// to f32: `fast`, for codebooks and for affine codes in groups too small for cpu/codes.cc.
//
// The one arithmetic, whichever function runs: out[dim] starts at 0 and takes
// (p[t] * scale[t][group]) * f32(code[t][dim]) for ascending t within a span, then the sum of
// p[t] * bias[t][group].
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

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

// What a code is worth before its scale.
template <class D>
struct Converted {
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<hn::RebindToUnsigned<D>> codes) const {
    return hn::ConvertTo(D(), hn::BitCast(hn::RebindToSigned<D>(), codes));
  }
};
template <CodecKind kKind, int kBits, class D>
using Worth = std::conditional_t<kKind == CodecKind::codebook, Table<kBits, D>, Converted<D>>;

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
template <CodecKind kKind, int kBits, int kQueries, int kCount, class D>
HWY_INLINE void add_table_block(D d, const Worth<kKind, kBits, D>& worth, const SpanTiles& span,
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

template <CodecKind kKind, int kBits, int kQueries>
void add_table_rows(const SpanTiles& span, const SideShape& shape, AskAhead& ask,
                    const float* weights, float* out) {
  const FloatTag d;
  const Worth<kKind, kBits, FloatTag> worth;
  ask.spread((span.end - span.begin) * dim_blocks(shape.dim));
  std::int64_t dim = 0;
  for (; dim + kDimVectors * kLanes <= shape.dim; dim += kDimVectors * kLanes) {
    add_table_block<kKind, kBits, kQueries, kDimVectors>(d, worth, span, shape, dim, weights, ask,
                                                         out);
  }
  for (; dim + kLanes <= shape.dim; dim += kLanes) {
    add_table_block<kKind, kBits, kQueries, 1>(d, worth, span, shape, dim, weights, ask, out);
  }
  if (dim < shape.dim) {
    const Worth<kKind, kBits, TailTag> tail;
    add_table_block<kKind, kBits, kQueries, 1>(TailTag(), tail, span, shape, dim, weights, ask,
                                               out);
  }
}

template <CodecKind kKind, int kBits>
void add_table(const SpanTiles& span, const SideShape& shape, AskAhead& ask, const float* weights,
               std::int64_t queries, float* out) {
  switch (queries) {
    case 1: return add_table_rows<kKind, kBits, 1>(span, shape, ask, weights, out);
    case 2: return add_table_rows<kKind, kBits, 2>(span, shape, ask, weights, out);
    case 3: return add_table_rows<kKind, kBits, 3>(span, shape, ask, weights, out);
    default: return add_table_rows<kKind, kBits, 4>(span, shape, ask, weights, out);
  }
}

// For many queries: what the span's codes are worth, [panel][token][panel width] as widen_values
// has them.
template <CodecKind kKind, int kBits>
void spread_table(const SpanTiles& span, const SideShape& shape, std::int64_t panel_dims,
                  float* panels) {
  const TailTag d;
  const Worth<kKind, kBits, TailTag> worth;
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

// Adds each group's sum of p * bias to its dims.
void add_table_biases(const SpanTiles& span, const SideShape& shape, const float* biases,
                      const float* p, std::int64_t queries, float* out) {
  const TailTag d;
  for (std::int64_t query = 0; query < queries; ++query) {
    for (std::int64_t group = 0; group < shape.groups; ++group) {
      const float bias = weigh_biases(span, p + query * kSpanTokens, biases + group * kSpanTokens);
      float* dims = out + query * shape.dim + group * shape.group;
      for (std::int64_t i = 0; i < shape.group; i += kTailLanes) {
        hn::StoreU(hn::Add(hn::LoadU(d, dims + i), hn::Set(d, bias)), d, dims + i);
      }
    }
  }
}

template <CodecKind kKind, std::size_t kFirst, std::size_t kCount, std::size_t kAt = 0>
void fill_tables(const std::array<int, kCount>& widths, TableKernels& tables) {
  if constexpr (kLanes >= 8 && kAt < kCount) {  // what load_codes() takes
    constexpr int kBits = kKind == CodecKind::affine ? kAffineWidths[kAt] : kCodebookWidths[kAt];
    tables.load_scales = load_span_scales;
    tables.weigh = weigh_table;
    tables.add_biases = add_table_biases;
    tables.add[kFirst + kAt] = add_table<kKind, kBits>;
    tables.spread[kFirst + kAt] = spread_table<kKind, kBits>;
    fill_tables<kKind, kFirst, kCount, kAt + 1>(widths, tables);
  }
}

void export_tables(KernelTable& table) {
  fill_tables<CodecKind::affine, 0>(kAffineWidths, table.tables);
  fill_tables<CodecKind::codebook, kFirstCodebook - kFirstAffine>(kCodebookWidths, table.tables);
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
