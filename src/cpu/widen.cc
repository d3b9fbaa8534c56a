// Tile functions of quantized codecs: stored elements to f32, for keys with the tile's tokens in
// vector lanes, for values with a row's dims in them.
//
// An element is f32(code) * scale + bias with both roundings, or table[code] * scale: the same bits
// on every target, in either form.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/codebook.h"
#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/widen.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// Lanes(d) elements at `data[index]` of a type known at run time.
template <class D>
HWY_INLINE hn::Vec<D> load_as_f32(D d, DType type, const std::byte* data, std::int64_t index) {
  switch (type) {
    case DType::f32: return load_f32<DType::f32>(d, data, index);
    case DType::f16: return load_f32<DType::f16>(d, data, index);
    default: return load_f32<DType::bf16>(d, data, index);
  }
}

HWY_INLINE float load_one_f32(DType type, const std::byte* data, std::int64_t index) {
  return hn::GetLane(load_as_f32(hn::CappedTag<float, 1>(), type, data, index));
}

// The table of a codebook, looked up by codes.
template <int kBits, class D>
class Table {
 public:
  using Codes = hn::Vec<hn::RebindToUnsigned<D>>;

  Table() {
    if constexpr (kInRegisters) {
      const std::span<const float> all = centroids(kBits);
      float padded[2 * kEntries];
      for (std::size_t i = 0; i < 2 * kEntries; ++i) padded[i] = all[i % all.size()];
      low_ = hn::LoadU(D(), padded);
      high_ = hn::LoadU(D(), padded + kEntries);
    }
  }

  HWY_INLINE hn::Vec<D> operator()(Codes codes) const {
    const D d;
    const hn::RebindToSigned<D> di;
    const auto index = hn::BitCast(di, codes);
    if constexpr (!kInRegisters) {
      return hn::GatherIndex(d, centroids(kBits).data(), index);
    } else if constexpr (kBits <= 4) {
      return hn::TableLookupLanes(low_, hn::IndicesFromVec(d, index));
    } else {
      const auto last = hn::Set(di, 15);
      const auto within = hn::IndicesFromVec(d, hn::And(index, last));
      const auto above = hn::RebindMask(d, hn::Gt(index, last));
      return hn::IfThenElse(above, hn::TableLookupLanes(high_, within),
                            hn::TableLookupLanes(low_, within));
    }
  }

 private:
  static constexpr std::size_t kEntries = hn::MaxLanes(D());
  static constexpr bool kInRegisters = kEntries == 16 && kBits <= 5;
  hn::Vec<D> low_;
  hn::Vec<D> high_;
};

// What turns codes of one group into elements.
template <int kBits, class D>
struct Affine {
  hn::Vec<D> scale;
  hn::Vec<D> bias;
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<hn::RebindToUnsigned<D>> codes) const {
    const D d;
    const hn::RebindToSigned<D> di;
    return hn::Add(hn::Mul(hn::ConvertTo(d, hn::BitCast(di, codes)), scale), bias);
  }
};

template <int kBits, class D>
struct Codebook {
  const Table<kBits, D>& table;
  hn::Vec<D> scale;
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<hn::RebindToUnsigned<D>> codes) const {
    return hn::Mul(table(codes), scale);
  }
};

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

template <CodecKind kKind, int kBits>
void widen_key_tile(const ConstPlanePointers& tile, const SideShape& shape, float* out) {
  const FloatTag d;
  [[maybe_unused]] const Table<kBits, FloatTag> table;
  const auto* words = reinterpret_cast<const std::uint32_t*>(tile[0]);
  for (std::int64_t lane = 0; lane < kTileTokens; lane += kLanes) {
    for (std::int64_t dim = 0; dim < shape.dim;) {
      const std::int64_t at = dim / shape.group * kTileTokens + lane;
      const FloatVec scale = load_as_f32(d, shape.scales, tile[1], at);
      [[maybe_unused]] FloatVec bias = scale;
      if constexpr (kKind == CodecKind::affine) bias = load_as_f32(d, shape.scales, tile[2], at);
      for (const std::int64_t end = dim + shape.group; dim < end; dim += 8) {
        float* to = out + dim * kTileTokens + lane;
        if constexpr (kKind == CodecKind::affine) {
          widen_key_codes<kBits>(words + lane, dim * kBits, Affine<kBits, FloatTag>{scale, bias},
                                 to);
        } else {
          widen_key_codes<kBits>(words + lane, dim * kBits, Codebook<kBits, FloatTag>{table, scale},
                                 to);
        }
      }
    }
  }
}

HWY_INLINE std::uint32_t load_word(const std::byte* from) {
  std::uint32_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// The words that hold 8 codes of a row of `row_bytes`, codes 0 to 3 and 4 to 7, and the bits before
// the first code in each. Reads no byte outside the row.
struct CodeWords {
  std::uint32_t low;
  std::uint32_t high;
};
template <int kBits>
HWY_INLINE CodeWords load_code_words(const std::byte* row, std::int64_t row_bytes,
                                     std::int64_t step) {
  const std::int64_t byte = step * kBits;
  if constexpr (kBits < 4) {
    const std::int64_t from = std::min(byte, row_bytes - 4);
    const std::uint32_t word = load_word(row + from) >> (8 * (byte - from));
    return {word, word >> (4 * kBits)};
  } else {
    constexpr int kHighShift = 32 - 4 * kBits;
    return {load_word(row + byte), load_word(row + byte + kBits - 4) >> kHighShift};
  }
}

// 8 elements from step * 8 on.
template <int kBits, class Element>
HWY_INLINE void widen_row_codes(const std::byte* row, std::int64_t row_bytes, std::int64_t step,
                                Element element, float* out) {
  const TailTag d;
  const hn::RebindToUnsigned<TailTag> du;
  constexpr std::int64_t kWidth = static_cast<std::int64_t>(hn::MaxLanes(TailTag()));
  const auto mask = hn::Set(du, (1u << kBits) - 1);
  const CodeWords words = load_code_words<kBits>(row, row_bytes, step);
  if constexpr (kWidth == 8) {
    const auto lane = hn::Iota(du, 0);
    const auto first = hn::RebindMask(du, hn::Lt(lane, hn::Set(du, 4u)));
    const auto in_word = hn::And(lane, hn::Set(du, 3u));
    const auto shift = hn::Mul(in_word, hn::Set(du, static_cast<std::uint32_t>(kBits)));
    const auto both = hn::IfThenElse(first, hn::Set(du, words.low), hn::Set(du, words.high));
    hn::StoreU(element(hn::And(hn::Shr(both, shift), mask)), d, out);
  } else {
    for (std::int64_t i = 0; i < 8; i += kWidth) {
      const std::uint32_t word = i < 4 ? words.low : words.high;
      const auto lane = hn::Iota(du, static_cast<std::uint32_t>(i % 4));
      const auto shift = hn::Mul(lane, hn::Set(du, static_cast<std::uint32_t>(kBits)));
      hn::StoreU(element(hn::And(hn::Shr(hn::Set(du, word), shift), mask)), d, out + i);
    }
  }
}

// One row's elements as they are stored (rotated where the codec is).
template <CodecKind kKind, int kBits, class TableType>
HWY_INLINE void widen_row(const ConstPlanePointers& row, const SideShape& shape,
                          [[maybe_unused]] const TableType& table, float* out) {
  const TailTag d;
  for (std::int64_t dim = 0; dim < shape.dim;) {
    const std::int64_t group = dim / shape.group;
    const auto scale = hn::Set(d, load_one_f32(shape.scales, row[1], group));
    for (const std::int64_t end = dim + shape.group; dim < end; dim += 8) {
      if constexpr (kKind == CodecKind::affine) {
        const auto bias = hn::Set(d, load_one_f32(shape.scales, row[2], group));
        widen_row_codes<kBits>(row[0], shape.row_bytes[0], dim / 8,
                               Affine<kBits, TailTag>{scale, bias}, out + dim);
      } else {
        widen_row_codes<kBits>(row[0], shape.row_bytes[0], dim / 8,
                               Codebook<kBits, TailTag>{table, scale}, out + dim);
      }
    }
  }
}

template <CodecKind kKind, int kBits>
void widen_value_rows(const SpanTiles& span, const SideShape& shape, std::int64_t panel_dims,
                      float* panels) {
  const Table<kBits, TailTag> table;
  alignas(64) float elements[kMaxHeadDim];
  for (std::int64_t t = span.begin; t < span.end; ++t) {
    const ConstPlanePointers& tile = span.v[static_cast<std::size_t>(t / kTileTokens)];
    ConstPlanePointers row{};
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (tile[i] != nullptr) row[i] = tile[i] + t % kTileTokens * shape.row_bytes[i];
    }
    if (panel_dims >= shape.dim) {
      widen_row<kKind, kBits>(row, shape, table, panels + t * shape.dim);
      continue;
    }
    widen_row<kKind, kBits>(row, shape, table, elements);
    for (std::int64_t first = 0; first < shape.dim; first += panel_dims) {
      const std::int64_t width = std::min(panel_dims, shape.dim - first);
      std::copy_n(elements + first, width, panels + first * kSpanTokens + t * width);
    }
  }
}

template <CodecKind kKind, std::size_t kFirst, std::size_t kCount, std::size_t kAt = 0>
void fill(const std::array<int, kCount>& widths, KernelTable& table) {
  if constexpr (kAt < kCount) {
    constexpr int kBits = kKind == CodecKind::affine ? kAffineWidths[kAt] : kCodebookWidths[kAt];
    table.widen_keys[kFirst + kAt] = widen_key_tile<kKind, kBits>;
    table.widen_values[kFirst + kAt] = widen_value_rows<kKind, kBits>;
    fill<kKind, kFirst, kCount, kAt + 1>(widths, table);
  }
}

void export_widen(KernelTable& table) {
  fill<CodecKind::affine, kFirstAffine>(kAffineWidths, table);
  fill<CodecKind::codebook, kFirstCodebook>(kCodebookWidths, table);
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
