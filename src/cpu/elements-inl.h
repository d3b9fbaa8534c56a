// Stored elements of quantized rows in vector lanes.
//
// An element is f32(code) * scale + bias with both roundings, or table[code] * scale: the same bits
// on every target.

// Per-target include guard, as Highway's own headers have it.
#if defined(PAGEKV_CPU_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEKV_CPU_ELEMENTS_INL_H_
#undef PAGEKV_CPU_ELEMENTS_INL_H_
#else
#define PAGEKV_CPU_ELEMENTS_INL_H_
#endif

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "codec/limits.h"
#include "cpu/codebook-inl.h"
#include "cpu/kernel_table.h"
#include "cpu/packed_bits.h"
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
  Table<kBits, D> table;  // a copy: stores could alias one in memory
  hn::Vec<D> scale;
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<hn::RebindToUnsigned<D>> codes) const {
    return hn::Mul(table(codes), scale);
  }
};

template <class Word>
HWY_INLINE std::uint64_t load_word(const std::byte* from) {
  Word word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// The same where `large` scales could overflow: those elements are computed kShrink times as large,
// and what exceeds the largest finite f32 is set to it.
template <class D, class Element>
struct Saturated {
  Element element;
  Element shrunk;
  hn::Mask<D> large;
  HWY_INLINE hn::Vec<D> operator()(hn::Vec<hn::RebindToUnsigned<D>> codes) const {
    const D d;
    const auto most = hn::Set(d, std::numeric_limits<float>::max() * kShrink);
    const auto within = hn::Min(hn::Max(shrunk(codes), hn::Neg(most)), most);
    return hn::IfThenElse(large, hn::Mul(within, hn::Set(d, 1 / kShrink)), element(codes));
  }
};

// Calls use() with what turns the codes of one group into elements; `bias` is of affine ones.
template <CodecKind kKind, int kBits, class D, class TableType, class Use>
HWY_INLINE void with_element(D d, [[maybe_unused]] const TableType& table, hn::Vec<D> scale,
                             hn::Vec<D> bias, Use use) {
  const auto make = [&](hn::Vec<D> factor) HWY_ATTR {
    if constexpr (kKind == CodecKind::affine) {
      return Affine<kBits, D>{hn::Mul(scale, factor), hn::Mul(bias, factor)};
    } else {
      return Codebook<kBits, D>{table, hn::Mul(scale, factor)};
    }
  };
  const auto large = hn::Gt(hn::Abs(scale), hn::Set(d, kLarge));
  if (HWY_LIKELY(hn::AllFalse(d, large))) {
    if constexpr (kKind == CodecKind::affine) {
      use(Affine<kBits, D>{scale, bias});
    } else {
      use(Codebook<kBits, D>{table, scale});
    }
  } else {
    const auto element = make(hn::Set(d, 1.0f));
    use(Saturated<D, decltype(element)>{element, make(hn::Set(d, kShrink)), large});
  }
}

// 8 codes of a row, from a multiple of 8 on, as the low bits of a number. In at most two loads: a
// copy of 3, 5 or 6 bytes would go through memory and stall.
template <int kBits>
HWY_INLINE std::uint64_t load_stream(const std::byte* from) {
  if constexpr (kBits == 8) {
    return load_word<std::uint64_t>(from);
  } else if constexpr (kBits > 4) {
    using Rest = std::conditional_t<kBits == 5, std::uint8_t, std::uint16_t>;
    return load_word<std::uint32_t>(from) | load_word<Rest>(from + 4) << 32;
  } else if constexpr (kBits == 3) {
    return load_word<std::uint16_t>(from) | load_word<std::uint8_t>(from + 2) << 16;
  } else {
    using Whole = std::conditional_t<kBits == 4, std::uint32_t,
                                     std::conditional_t<kBits == 2, std::uint16_t, std::uint8_t>>;
    return load_word<Whole>(from);
  }
}

// A stream's codes into the 8 bytes of a number: halves of it move apart, then quarters, eighths.
template <int kBits>
HWY_INLINE std::uint64_t codes_to_bytes(std::uint64_t x) {
  if constexpr (kBits < 8) {
    x = (x & every<4 * kBits, 64>()) | (x & every<4 * kBits, 64>() << 4 * kBits)
                                           << (32 - 4 * kBits);
    x = (x & every<2 * kBits, 32>()) | (x & every<2 * kBits, 32>() << 2 * kBits)
                                           << (16 - 2 * kBits);
    x = (x & every<kBits, 16>()) | (x & every<kBits, 16>() << kBits) << (8 - kBits);
  }
  return x;
}

// Codes [at, at + Lanes(d)) of a row; `at` is a multiple of 8. Reads no byte outside the row.
template <int kBits, class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> load_codes(D /* d */, const std::byte* row,
                                                       std::int64_t at) {
  static_assert(kLanesOf<D> == 8 || kLanesOf<D> == 16);
  const hn::RebindToUnsigned<D> du;
  if constexpr (kBits == 8) {
    const hn::Rebind<std::uint8_t, D> d8;
    return hn::PromoteTo(du, hn::LoadU(d8, reinterpret_cast<const std::uint8_t*>(row + at)));
  } else if constexpr (kBits == 1 || kBits == 2 || kBits == 4) {
    // One stream for all lanes, or one for each half of them.
    const std::byte* from = row + at / 8 * kBits;
    constexpr int kBytes = static_cast<int>(kLanesOf<D>) * kBits / 8;
    constexpr std::uint32_t kStep = kBits;
    alignas(64) static constexpr std::uint32_t kShifts[16] = {0,
                                                              kStep,
                                                              2 * kStep,
                                                              3 * kStep,
                                                              4 * kStep,
                                                              5 * kStep,
                                                              6 * kStep,
                                                              7 * kStep,
                                                              kBytes > 4 ? 0 : 8 * kStep,
                                                              kBytes > 4 ? kStep : 9 * kStep,
                                                              kBytes > 4 ? 2 * kStep : 10 * kStep,
                                                              kBytes > 4 ? 3 * kStep : 11 * kStep,
                                                              kBytes > 4 ? 4 * kStep : 12 * kStep,
                                                              kBytes > 4 ? 5 * kStep : 13 * kStep,
                                                              kBytes > 4 ? 6 * kStep : 14 * kStep,
                                                              kBytes > 4 ? 7 * kStep : 15 * kStep};
    using Stream = std::conditional_t<kBytes >= 4, std::uint32_t,
                                      std::conditional_t<kBytes == 2, std::uint16_t, std::uint8_t>>;
    auto stream = hn::Set(du, static_cast<std::uint32_t>(load_word<Stream>(from)));
    if constexpr (kBytes > 4) {
      const auto rest = hn::Set(du, static_cast<std::uint32_t>(load_word<Stream>(from + 4)));
      stream = hn::IfThenElse(hn::FirstN(du, 8), stream, rest);
    }
    return hn::And(hn::Shr(stream, hn::Load(du, kShifts)), hn::Set(du, (1u << kBits) - 1));
  } else {
    // A 64-bit lane takes two codes out of the stream they are in.
    const hn::Repartition<std::uint64_t, D> dq;
    const std::byte* from = row + at / 8 * kBits;
    constexpr std::uint64_t kFirst = (std::uint64_t{1} << kBits) - 1;
    constexpr std::uint64_t kStep = 2 * kBits;
    alignas(64) static constexpr std::uint64_t kShifts[8] = {0, kStep, 2 * kStep, 3 * kStep,
                                                             0, kStep, 2 * kStep, 3 * kStep};
    auto stream = hn::Set(dq, load_stream<kBits>(from));
    if constexpr (kLanesOf<D> == 16) {
      stream =
          hn::IfThenElse(hn::FirstN(dq, 4), stream, hn::Set(dq, load_stream<kBits>(from + kBits)));
    }
    const auto pairs = hn::Shr(stream, hn::Load(dq, kShifts));
    const auto even = hn::And(pairs, hn::Set(dq, kFirst));
    const auto odd = hn::And(hn::ShiftLeft<32 - kBits>(pairs), hn::Set(dq, kFirst << 32));
    return hn::BitCast(du, hn::Or(even, odd));
  }
}

// Code kIndex of 32 in kBits words.
template <int kBits, std::size_t kIndex, class V>
HWY_INLINE V code_in_words(const V* words) {
  constexpr int kShift = kIndex * kBits % 32;
  constexpr std::size_t kWord = kIndex * kBits / 32;
  const V mask = hn::Set(hn::DFromV<V>(), (1u << kBits) - 1);
  if constexpr (kShift + kBits > 32) {
    return hn::And(
        hn::Or(hn::ShiftRight<kShift>(words[kWord]), hn::ShiftLeft<32 - kShift>(words[kWord + 1])),
        mask);
  } else if constexpr (kShift + kBits == 32) {
    return hn::ShiftRight<kShift>(words[kWord]);
  } else {
    return hn::And(hn::ShiftRight<kShift>(words[kWord]), mask);
  }
}

// What a codec's rows need to be widened in vectors of D: a codebook's table.
struct NoTable {};
template <CodecKind kKind, int kBits, class D>
using TableOf = std::conditional_t<kKind == CodecKind::codebook, Table<kBits, D>, NoTable>;

// Elements [begin, end) of one group.
template <int kBits, class D, class Element>
HWY_INLINE void widen_run(D d, const std::byte* codes, std::int64_t begin, std::int64_t end,
                          Element element, float* out) {
  if constexpr (kLanesOf<D> >= 8) {
    for (std::int64_t at = begin; at < end; at += kLanesOf<D>) {
      hn::StoreU(element(load_codes<kBits>(d, codes, at)), d, out + at);
    }
  } else {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint8_t, D> d8;
    for (std::int64_t at = begin; at < end; at += 8) {
      const std::uint64_t stream = load_stream<kBits>(codes + at / 8 * kBits);
      const auto bytes = std::bit_cast<std::array<std::uint8_t, 8>>(codes_to_bytes<kBits>(stream));
      for (std::int64_t part = 0; part < 8; part += kLanesOf<D>) {
        const auto stored = hn::PromoteTo(du, hn::LoadU(d8, bytes.data() + part));
        hn::StoreU(element(stored), d, out + at + part);
      }
    }
  }
}

// Widens rows: their elements as they are stored (rotated where the codec is).
template <CodecKind kKind, int kBits>
class RowWidener {
 public:
  HWY_INLINE void operator()(const ConstPlanePointers& row, const SideShape& shape,
                             float* out) const {
    const std::int64_t whole = shape.group / kLanes * kLanes;
    for (std::int64_t group = 0, at = 0; at < shape.dim; ++group, at += shape.group) {
      widen_group(FloatTag(), table_, row, shape, group, at, at + whole, out);
      widen_group(TailTag(), tail_table_, row, shape, group, at + whole, at + shape.group, out);
    }
  }

 private:
  // Elements [begin, end) of a group.
  template <class D>
  static HWY_INLINE void widen_group(D d, const TableOf<kKind, kBits, D>& table,
                                     const ConstPlanePointers& row, const SideShape& shape,
                                     std::int64_t group, std::int64_t begin, std::int64_t end,
                                     float* out) {
    if (begin == end) return;
    const auto scale = hn::Set(d, load_one_f32(shape.scales, row[1], group));
    auto bias = hn::Zero(d);
    if constexpr (kKind == CodecKind::affine) {
      bias = hn::Set(d, load_one_f32(shape.scales, row[2], group));
    }
    with_element<kKind, kBits>(d, table, scale, bias, [&](const auto& element) HWY_ATTR {
      widen_run<kBits>(d, row[0], begin, end, element, out);
    });
  }

  TableOf<kKind, kBits, FloatTag> table_;
  TableOf<kKind, kBits, TailTag> tail_table_;
};

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
