// Tile functions of quantized codecs: stored elements to f32, for keys with the tile's tokens in
// vector lanes, for values with a row's dims in them.
//
// The same bits on every target, in either form.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/widen.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/elements-inl.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// 8 codes of kLanes tokens, from bit `first_bit` of their rows on, as elements of dims
// [dim, dim + 8).
template <int kBits, class Element>
HWY_INLINE void widen_key_codes(const std::uint32_t* words, std::int64_t first_bit, Element element,
                                float* out) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  const auto mask = hn::Set(du, (1u << kBits) - 1);
  for (std::int64_t i = 0; i < 8; ++i) {
    const std::int64_t bit = first_bit + i * kBits;
    const std::uint32_t* at = words + bit / 32 * kTileTokens;
    const int shift = static_cast<int>(bit % 32);
    auto codes = hn::ShiftRightSame(hn::LoadU(du, at), shift);
    if (shift + kBits > 32) {  // goes on in the next word
      codes = hn::Or(codes, hn::ShiftLeftSame(hn::LoadU(du, at + kTileTokens), 32 - shift));
    }
    hn::StoreU(element(hn::And(codes, mask)), d, out + i * kTileTokens);
  }
}

// The same for 32 codes, which begin with a word: all shifts are constants.
template <int kBits, class Element, std::size_t... kIndex>
HWY_INLINE void widen_key_words(const std::uint32_t* from, Element element, float* out,
                                std::index_sequence<kIndex...> /* 0 to 31 */) {
  const FloatTag d;
  const hn::RebindToUnsigned<FloatTag> du;
  hn::Vec<hn::RebindToUnsigned<FloatTag>> words[kBits];
  for (int i = 0; i < kBits; ++i) words[i] = hn::LoadU(du, from + i * kTileTokens);
  (hn::StoreU(element(code_in_words<kBits, kIndex>(words)), d, out + kIndex * kTileTokens), ...);
}

// Dims [begin, end) of kLanes tokens, one group or a part of it.
template <int kBits, class Element>
HWY_INLINE void widen_key_group(const std::uint32_t* words, std::int64_t begin, std::int64_t end,
                                Element element, float* out) {
  std::int64_t dim = begin;
  for (; begin % 32 == 0 && dim + 32 <= end; dim += 32) {
    widen_key_words<kBits>(words + dim / 32 * kBits * kTileTokens, element, out + dim * kTileTokens,
                           std::make_index_sequence<32>());
  }
  for (; dim < end; dim += 8) {
    widen_key_codes<kBits>(words, dim * kBits, element, out + dim * kTileTokens);
  }
}

template <CodecKind kKind, int kBits>
void widen_key_tile(const ConstPlanePointers& tile, const SideShape& shape, float* out) {
  const FloatTag d;
  [[maybe_unused]] const TableOf<kKind, kBits, FloatTag> table;
  for (std::int64_t lane = 0; lane < kTileTokens; lane += kLanes) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(tile[0]) + lane;
    for (std::int64_t group = 0, dim = 0; dim < shape.dim; ++group, dim += shape.group) {
      const std::int64_t at = group * kTileTokens + lane;
      const std::int64_t end = dim + shape.group;
      const FloatVec scale = load_as_f32(d, shape.scales, tile[1], at);
      FloatVec bias = hn::Zero(d);
      if constexpr (kKind == CodecKind::affine) bias = load_as_f32(d, shape.scales, tile[2], at);
      with_element<kKind, kBits>(d, table, scale, bias, [&](const auto& element) HWY_ATTR {
        widen_key_group<kBits>(words, dim, end, element, out + lane);
      });
    }
  }
}

template <CodecKind kKind, int kBits>
void widen_value_rows(const SpanTiles& span, const SideShape& shape, std::int64_t panel_dims,
                      float* panels) {
  const RowWidener<kKind, kBits> widen_row;
  alignas(64) float elements[kMaxHeadDim];
  for (std::int64_t t = span.begin; t < span.end; ++t) {
    const ConstPlanePointers& tile = span.v[static_cast<std::size_t>(t / kTileTokens)];
    ConstPlanePointers row{};
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (tile[i] != nullptr) row[i] = tile[i] + t % kTileTokens * shape.row_bytes[i];
    }
    if (panel_dims >= shape.dim) {
      widen_row(row, shape, panels + t * shape.dim);
      continue;
    }
    widen_row(row, shape, elements);
    for (std::int64_t first = 0; first < shape.dim; first += panel_dims) {
      const std::int64_t width = std::min(panel_dims, shape.dim - first);
      std::copy_n(elements + first, width, panels + first * kSpanTokens + t * width);
    }
  }
}

template <CodecKind kKind, std::size_t kFirst, std::size_t kCount, std::size_t kAt = 0>
void fill_widen(const std::array<int, kCount>& widths, KernelTable& table) {
  if constexpr (kAt < kCount) {
    constexpr int kBits = kKind == CodecKind::affine ? kAffineWidths[kAt] : kCodebookWidths[kAt];
    table.widen_keys[kFirst + kAt] = widen_key_tile<kKind, kBits>;
    table.widen_values[kFirst + kAt] = widen_value_rows<kKind, kBits>;
    fill_widen<kKind, kFirst, kCount, kAt + 1>(widths, table);
  }
}

void export_widen(KernelTable& table) {
  fill_widen<CodecKind::affine, kFirstAffine>(kAffineWidths, table);
  fill_widen<CodecKind::codebook, kFirstCodebook>(kCodebookWidths, table);
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_widen);

void bind_widen(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_widen), table);
}

}  // namespace pagekv::inline v0::internal
#endif
