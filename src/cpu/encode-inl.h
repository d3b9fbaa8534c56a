// What all encoders share: the check and rotation before, codes packed and scales stored after.

// Per-target include guard, as Highway's own headers have it.
#if defined(PAGEKV_CPU_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEKV_CPU_ENCODE_INL_H_
#undef PAGEKV_CPU_ENCODE_INL_H_
#else
#define PAGEKV_CPU_ENCODE_INL_H_
#endif

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "codec/limits.h"
#include "codec/packing.h"
#include "cpu/convert-inl.h"
#include "cpu/kernel_table.h"
#include "cpu/packed_bits.h"
#include "cpu/rotate-inl.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// Of all vectors encoded at a time.
inline constexpr std::int64_t kMaxElements = kTileTokens * kMaxHeadDim;
inline constexpr std::int64_t kMaxGroups = kMaxElements / 8;

template <class D>
HWY_INLINE void clamp_run(D d, float largest, float* values, std::int64_t begin, std::int64_t end) {
  const auto most = hn::Set(d, largest);
  for (std::int64_t i = begin; i < end; i += kLanesOf<D>) {
    const auto v = hn::LoadU(d, values + i);
    hn::StoreU(hn::Min(hn::Max(v, hn::Neg(most)), most), d, values + i);
  }
}

// One vector's elements as they are stored. False where it is refused.
inline bool prepare_row(const SideShape& shape, float* values) {
  const std::int32_t largest = largest_magnitude(values, shape.dim);
  if (largest >= std::bit_cast<std::int32_t>(overflow_limit(shape.scales))) return false;
  if (shape.rotation == nullptr) return true;
  rotate_vector(*shape.rotation, largest, values);
  // Elements up to kLarge grow by less than 2^5: only f16 cannot hold them.
  if (shape.scales == DType::f16 || largest > kLargeBits) {
    const std::int64_t whole = shape.dim / kLanes * kLanes;
    clamp_run(FloatTag(), largest_finite(shape.scales), values, 0, whole);
    clamp_run(TailTag(), largest_finite(shape.scales), values, whole, shape.dim);
  }
  return true;
}

// All vectors' elements as they are stored; zeros for those that are refused. Returns these.
inline std::uint32_t prepare(const SideShape& shape, std::int64_t rows, float* values) {
  std::uint32_t refused = 0;
  for (std::int64_t row = 0; row < rows; ++row, values += shape.dim) {
    if (prepare_row(shape, values)) continue;
    refused |= 1u << row;
    std::fill_n(values, shape.dim, 0.0f);
  }
  return refused;
}

// Pairs of fields of kField bits, each at the low end of half of kEvery bits, to one of 2 * kField.
template <int kField, int kEvery, class DQ>
HWY_INLINE hn::Vec<DQ> join_fields(DQ dq, hn::Vec<DQ> x) {
  constexpr std::uint64_t kLow = every<kField, kEvery>();
  const auto low = hn::And(x, hn::Set(dq, kLow));
  const auto high = hn::And(x, hn::Set(dq, kLow << (kEvery / 2)));
  return hn::Or(low, hn::ShiftRight<kEvery / 2 - kField>(high));
}

// Codes of lanes of `dq` into a row at `to`, which ends `room` bytes on.
template <int kBits, class DQ>
HWY_INLINE void pack_lanes(DQ dq, const std::uint8_t* codes, std::int64_t room, std::byte* to) {
  constexpr std::int64_t kCount = static_cast<std::int64_t>(hn::MaxLanes(DQ()));
  const auto pairs =
      join_fields<kBits, 16>(dq, hn::LoadU(dq, reinterpret_cast<const std::uint64_t*>(codes)));
  const auto packed = join_fields<4 * kBits, 64>(dq, join_fields<2 * kBits, 32>(dq, pairs));
  if constexpr (std::has_single_bit(static_cast<unsigned>(kBits))) {
    using Word = std::conditional_t<kBits == 4, std::uint32_t,
                                    std::conditional_t<kBits == 2, std::uint16_t, std::uint8_t>>;
    const hn::Rebind<Word, DQ> narrow;
    hn::StoreU(hn::TruncateTo(narrow, packed), narrow, reinterpret_cast<Word*>(to));
  } else {
    alignas(64) std::uint64_t words[kCount];
    hn::Store(packed, dq, words);
    // Whole words overlap, each laid over the zeros of the one before, while there is room.
    const bool whole = (kCount - 1) * kBits + 8 <= room;
    for (std::int64_t i = 0; i < kCount; ++i) {
      std::memcpy(to + i * kBits, &words[i], whole ? 8 : kBits);
    }
  }
}

// pack_row() of codec/packing.h, row by row.
template <int kBits>
HWY_INLINE void pack_codes(const std::uint8_t* codes, std::int64_t rows, std::int64_t dim,
                           std::byte* to) {
  if (dim % 32 == 0) {  // rows without padding are one long row
    dim *= rows;
    rows = 1;
  }
  const hn::CappedTag<std::uint64_t, 8> dq;
  constexpr std::int64_t kStep = 8 * static_cast<std::int64_t>(hn::MaxLanes(dq));
  const std::int64_t used = dim / 8 * kBits;
  const std::int64_t row_bytes = packed_bytes(kBits, dim);
  for (std::int64_t row = 0; row < rows; ++row, codes += dim, to += row_bytes) {
    std::int64_t at = 0;
    for (; at + kStep <= dim; at += kStep) {
      pack_lanes<kBits>(dq, codes + at, row_bytes - at / 8 * kBits, to + at / 8 * kBits);
    }
    for (; at < dim; at += 8) pack8(kBits, codes + at, to + at / 8 * kBits);
    if (used < row_bytes) std::memset(to + used, 0, static_cast<std::size_t>(row_bytes - used));
  }
}

// Room for codes of all vectors; those of 8 bits are not packed, and go where they are stored.
template <int kBits>
class CodeRoom {
 public:
  HWY_INLINE std::uint8_t* codes(std::byte* to) {
    return kBits == 8 ? reinterpret_cast<std::uint8_t*>(to) : codes_.data();
  }
  HWY_INLINE void pack(std::int64_t rows, std::int64_t dim, std::byte* to) const {
    if constexpr (kBits < 8) pack_codes<kBits>(codes_.data(), rows, dim, to);
  }

 private:
  alignas(64) std::array<std::uint8_t, kBits == 8 ? 1 : kMaxElements> codes_;
};

template <std::int64_t kBytes>
HWY_INLINE void copy_if(std::int64_t& left, const std::byte*& from, std::byte*& to) {
  if (left < kBytes) return;
  std::memcpy(to, from, kBytes);
  left -= kBytes;
  from += kBytes;
  to += kBytes;
}

// The first `count` of `values`, which has room for a multiple of 8.
HWY_INLINE void store_scales(DType type, const float* values, std::int64_t count, std::byte* to) {
  alignas(64) std::array<std::byte, kMaxGroups * sizeof(float)> stored;
  store_all_saturated(type, values, (count + 7) / 8 * 8, stored.data());
  std::int64_t left = count * size_bytes(type);
  const std::byte* from = stored.data();
  while (left >= 32) copy_if<32>(left, from, to);
  copy_if<16>(left, from, to);
  copy_if<8>(left, from, to);
  copy_if<4>(left, from, to);
  copy_if<2>(left, from, to);
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
