// Tiles of key_tile16 form out of 16 rows, and back: 4 x 4 transposes of words within 128-bit
// blocks, as many blocks at a time as a vector has.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/arrangement.h"
#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/interleave.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::int64_t kUnit = 4;
constexpr std::int64_t kUnitStride = kTileTokens * kUnit;

// Words [first, row_bytes / 4) of the rows.
HWY_INLINE void interleave_rest(const std::byte* rows, std::int64_t row_bytes, std::int64_t first,
                                std::byte* tile) {
  for (std::int64_t token = 0; token < kTileTokens; ++token) {
    copy_units<kUnit>(rows + token * row_bytes + first * kUnit, kUnit,
                      tile + first * kUnitStride + token * kUnit, kUnitStride,
                      row_bytes - first * kUnit);
  }
}

HWY_INLINE void deinterleave_rest(const std::byte* tile, std::int64_t row_bytes, std::int64_t first,
                                  std::byte* rows) {
  for (std::int64_t token = 0; token < kTileTokens; ++token) {
    copy_units<kUnit>(tile + first * kUnitStride + token * kUnit, kUnitStride,
                      rows + token * row_bytes + first * kUnit, kUnit, row_bytes - first * kUnit);
  }
}

#if HWY_TARGET == HWY_SCALAR

void interleave(const std::byte* rows, std::int64_t row_bytes, std::byte* tile) {
  interleave_rest(rows, row_bytes, 0, tile);
}
void deinterleave(const std::byte* tile, std::int64_t row_bytes, std::byte* rows) {
  deinterleave_rest(tile, row_bytes, 0, rows);
}

#else

using Words = hn::CappedTag<std::uint32_t, 16>;
constexpr std::int64_t kBlocks = static_cast<std::int64_t>(hn::MaxLanes(Words())) / 4;

// 4 words of every fourth row from `row` on, one row a block.
template <class D>
HWY_INLINE hn::Vec<D> load_rows(D d, const std::byte* row, std::int64_t row_bytes) {
  constexpr std::int64_t kRows = static_cast<std::int64_t>(hn::MaxLanes(D()));
  if constexpr (kRows == 4) {
    return hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(row));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_rows(half, row + kRows / 2 * row_bytes, row_bytes),
                       load_rows(half, row, row_bytes));
  }
}

template <class D>
HWY_INLINE void store_rows(D d, hn::Vec<D> words, std::byte* row, std::int64_t row_bytes) {
  constexpr std::int64_t kRows = static_cast<std::int64_t>(hn::MaxLanes(D()));
  if constexpr (kRows == 4) {
    hn::StoreU(words, d, reinterpret_cast<std::uint32_t*>(row));
  } else {
    const hn::Half<D> half;
    store_rows(half, hn::LowerHalf(half, words), row, row_bytes);
    store_rows(half, hn::UpperHalf(half, words), row + kRows / 2 * row_bytes, row_bytes);
  }
}

// In each block, rows become columns.
HWY_INLINE void transpose(Words d, hn::Vec<Words> (&v)[4]) {
  const hn::Repartition<std::uint64_t, Words> dq;
  const auto low_even = hn::BitCast(dq, hn::InterleaveLower(d, v[0], v[1]));
  const auto low_odd = hn::BitCast(dq, hn::InterleaveLower(d, v[2], v[3]));
  const auto high_even = hn::BitCast(dq, hn::InterleaveUpper(d, v[0], v[1]));
  const auto high_odd = hn::BitCast(dq, hn::InterleaveUpper(d, v[2], v[3]));
  v[0] = hn::BitCast(d, hn::InterleaveLower(dq, low_even, low_odd));
  v[1] = hn::BitCast(d, hn::InterleaveUpper(dq, low_even, low_odd));
  v[2] = hn::BitCast(d, hn::InterleaveLower(dq, high_even, high_odd));
  v[3] = hn::BitCast(d, hn::InterleaveUpper(dq, high_even, high_odd));
}

void interleave(const std::byte* rows, std::int64_t row_bytes, std::byte* tile) {
  const Words d;
  const std::int64_t whole = row_bytes / (4 * kUnit) * 4;
  for (std::int64_t unit = 0; unit < whole; unit += 4) {
    for (std::int64_t token = 0; token < kTileTokens; token += 4 * kBlocks) {
      hn::Vec<Words> v[4];
      for (std::int64_t i = 0; i < 4; ++i) {
        v[i] = load_rows(d, rows + (token + i) * row_bytes + unit * kUnit, row_bytes);
      }
      transpose(d, v);
      std::byte* to = tile + unit * kUnitStride + token * kUnit;
      for (std::int64_t i = 0; i < 4; ++i) {
        hn::StoreU(v[i], d, reinterpret_cast<std::uint32_t*>(to + i * kUnitStride));
      }
    }
  }
  interleave_rest(rows, row_bytes, whole, tile);
}

void deinterleave(const std::byte* tile, std::int64_t row_bytes, std::byte* rows) {
  const Words d;
  const std::int64_t whole = row_bytes / (4 * kUnit) * 4;
  for (std::int64_t unit = 0; unit < whole; unit += 4) {
    for (std::int64_t token = 0; token < kTileTokens; token += 4 * kBlocks) {
      const std::byte* from = tile + unit * kUnitStride + token * kUnit;
      hn::Vec<Words> v[4];
      for (std::int64_t i = 0; i < 4; ++i) {
        v[i] = hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(from + i * kUnitStride));
      }
      transpose(d, v);
      for (std::int64_t i = 0; i < 4; ++i) {
        store_rows(d, v[i], rows + (token + i) * row_bytes + unit * kUnit, row_bytes);
      }
    }
  }
  deinterleave_rest(tile, row_bytes, whole, rows);
}

#endif

void export_interleave(KernelTable& table) {
  table.interleave = interleave;
  table.deinterleave = deinterleave;
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_interleave);

void bind_interleave(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_interleave), table);
}

}  // namespace pagekv::inline v0::internal
#endif
