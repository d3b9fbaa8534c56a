// Conversions between element types: integer arithmetic on the bit patterns, the same steps as the
// scalar conversions of dtype.h, so that every target stores and gathers the same bytes.
#include <cstddef>
#include <cstdint>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/convert.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

using BitsTag = hn::RebindToUnsigned<TailTag>;
using Bits = hn::Vec<BitsTag>;
using HalfTag = hn::Rebind<std::uint16_t, BitsTag>;

HWY_INLINE Bits f32_bits_from_f16(Bits half) {
  const TailTag d;
  const BitsTag du;
  const hn::RebindToSigned<BitsTag> di;
  const Bits magnitude = hn::And(half, hn::Set(du, 0x7fffu));
  const Bits sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000u)));
  const Bits rebias = hn::Set(du, 112u << 23);
  const Bits normal = hn::Add(hn::ShiftLeft<13>(magnitude), rebias);
  const Bits infinite = hn::Add(normal, rebias);
  const auto tiny = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, magnitude)), hn::Set(d, 0x1p-24f));
  const auto is_tiny = hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 0x400));
  const auto is_infinite = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7bff));
  Bits wide = hn::IfThenElse(hn::RebindMask(du, is_tiny), hn::BitCast(du, tiny), normal);
  wide = hn::IfThenElse(hn::RebindMask(du, is_infinite), infinite, wide);
  return hn::Or(wide, sign);
}

HWY_INLINE Bits f16_from_f32_bits(Bits bits) {
  const TailTag d;
  const BitsTag du;
  const hn::RebindToSigned<BitsTag> di;
  const Bits sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 0x8000u));
  const Bits magnitude = hn::And(bits, hn::Set(du, 0x7fffffffu));
  const auto signed_magnitude = hn::BitCast(di, magnitude);  // below 2^31: signed compares do
  const Bits odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1u));
  const Bits rounded = hn::Add(hn::Add(magnitude, hn::Set(du, 0xfffu)), odd);
  const Bits normal = hn::ShiftRight<13>(hn::Sub(rounded, hn::Set(du, 0x38000000u)));
  // Subnormal in f16: adding 0.5 lines the mantissa up so that the FPU rounds at 2^-24.
  const auto shifted = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5f));
  const Bits tiny = hn::Sub(hn::BitCast(du, shifted), hn::Set(du, 0x3f000000u));
  const auto is_tiny = hn::Lt(signed_magnitude, hn::Set(di, 0x38800000));
  const auto overflows = hn::Gt(signed_magnitude, hn::Set(di, 0x477fefff));
  const auto is_nan = hn::Gt(signed_magnitude, hn::Set(di, 0x7f800000));
  Bits half = hn::IfThenElse(hn::RebindMask(du, is_tiny), tiny, normal);
  half = hn::IfThenElse(hn::RebindMask(du, overflows), hn::Set(du, 0x7c00u), half);
  half = hn::IfThenElse(hn::RebindMask(du, is_nan), hn::Set(du, 0x7e00u), half);
  return hn::Or(half, sign);
}

HWY_INLINE Bits bf16_from_f32_bits(Bits bits) {
  const BitsTag du;
  const hn::RebindToSigned<BitsTag> di;
  const Bits high = hn::ShiftRight<16>(bits);
  const Bits odd = hn::And(high, hn::Set(du, 1u));
  const Bits rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd));
  const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7fffffffu)));
  const auto is_nan = hn::RebindMask(du, hn::Gt(magnitude, hn::Set(di, 0x7f800000)));
  return hn::IfThenElse(is_nan, hn::Or(high, hn::Set(du, 0x40u)), rounded);
}

// The stored pattern in the low bits of each lane.
template <DType kType>
HWY_INLINE Bits load_bits(const void* from, std::int64_t index) {
  const BitsTag du;
  if constexpr (kType == DType::f32) {
    return hn::LoadU(du, static_cast<const std::uint32_t*>(from) + index);
  } else {
    return hn::PromoteTo(du, hn::LoadU(HalfTag(), static_cast<const std::uint16_t*>(from) + index));
  }
}

template <DType kFrom, DType kTo>
HWY_INLINE Bits convert_bits(Bits bits) {
  if constexpr (kFrom == kTo) {
    return bits;
  } else {
    if constexpr (kFrom == DType::f16) bits = f32_bits_from_f16(bits);
    if constexpr (kFrom == DType::bf16) bits = hn::ShiftLeft<16>(bits);
    if constexpr (kTo == DType::f16) bits = f16_from_f32_bits(bits);
    if constexpr (kTo == DType::bf16) bits = bf16_from_f32_bits(bits);
    return bits;
  }
}

template <DType kFrom, DType kTo>
bool convert(const void* from, void* to, std::int64_t count) {
  const BitsTag du;
  constexpr std::int64_t kStep = static_cast<std::int64_t>(hn::MaxLanes(BitsTag()));
  constexpr std::uint32_t kExponent = kTo == DType::f32    ? 0x7f800000u
                                      : kTo == DType::bf16 ? 0x7f80u
                                                           : 0x7c00u;
  const Bits exponent = hn::Set(du, kExponent);
  Bits bad = hn::Zero(du);
  for (std::int64_t i = 0; i < count; i += kStep) {
    const Bits stored = convert_bits<kFrom, kTo>(load_bits<kFrom>(from, i));
    bad = hn::Or(bad, hn::VecFromMask(du, hn::Eq(hn::And(stored, exponent), exponent)));
    if constexpr (kTo == DType::f32) {
      hn::StoreU(stored, du, static_cast<std::uint32_t*>(to) + i);
    } else {
      hn::StoreU(hn::TruncateTo(HalfTag(), stored), HalfTag(), static_cast<std::uint16_t*>(to) + i);
    }
  }
  return hn::AllTrue(du, hn::Eq(bad, hn::Zero(du)));
}

void export_convert(KernelTable& table) {
  const auto bind_from = [&table]<DType kFrom>() {
    auto& row = table.convert[dtype_index(kFrom)];
    row[dtype_index(DType::f32)] = convert<kFrom, DType::f32>;
    row[dtype_index(DType::f16)] = convert<kFrom, DType::f16>;
    row[dtype_index(DType::bf16)] = convert<kFrom, DType::bf16>;
  };
  bind_from.template operator()<DType::f32>();
  bind_from.template operator()<DType::f16>();
  bind_from.template operator()<DType::bf16>();
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_convert);

void bind_convert(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_convert), table);
}

}  // namespace pagekv::inline v0::internal
#endif
