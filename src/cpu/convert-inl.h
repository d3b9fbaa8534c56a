// Conversions between element types in vector lanes: integer arithmetic on the bit patterns, the
// same steps as the scalar conversions of dtype.h, so that every target stores and gathers the same
// bytes.

// Per-target include guard, as Highway's own headers have it.
#if defined(PAGEKV_CPU_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEKV_CPU_CONVERT_INL_H_
#undef PAGEKV_CPU_CONVERT_INL_H_
#else
#define PAGEKV_CPU_CONVERT_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "codec/limits.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// All take and give patterns in the low bits of 32-bit lanes.

template <class Bits>
HWY_INLINE Bits f32_bits_from_f16(Bits half) {
  const hn::DFromV<Bits> du;
  const hn::RebindToFloat<decltype(du)> d;
  const hn::RebindToSigned<decltype(du)> di;
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

template <class Bits>
HWY_INLINE Bits f16_from_f32_bits(Bits bits) {
  const hn::DFromV<Bits> du;
  const hn::RebindToFloat<decltype(du)> d;
  const hn::RebindToSigned<decltype(du)> di;
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

template <class Bits>
HWY_INLINE Bits bf16_from_f32_bits(Bits bits) {
  const hn::DFromV<Bits> du;
  const hn::RebindToSigned<decltype(du)> di;
  const Bits high = hn::ShiftRight<16>(bits);
  const Bits odd = hn::And(high, hn::Set(du, 1u));
  const Bits rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7fffu)), odd));
  const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7fffffffu)));
  const auto is_nan = hn::RebindMask(du, hn::Gt(magnitude, hn::Set(di, 0x7f800000)));
  return hn::IfThenElse(is_nan, hn::Or(high, hn::Set(du, 0x40u)), rounded);
}

template <DType kFrom, DType kTo, class Bits>
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

// Lanes(du) patterns of a type from and to `index`.
template <DType kType, class DU>
HWY_INLINE hn::Vec<DU> load_bits(DU du, const void* from, std::int64_t index) {
  if constexpr (kType == DType::f32) {
    return hn::LoadU(du, static_cast<const std::uint32_t*>(from) + index);
  } else {
    const hn::Rebind<std::uint16_t, DU> d16;
    return hn::PromoteTo(du, hn::LoadU(d16, static_cast<const std::uint16_t*>(from) + index));
  }
}

template <DType kType, class DU>
HWY_INLINE void store_bits(DU du, hn::Vec<DU> bits, void* to, std::int64_t index) {
  if constexpr (kType == DType::f32) {
    hn::StoreU(bits, du, static_cast<std::uint32_t*>(to) + index);
  } else {
    const hn::Rebind<std::uint16_t, DU> d16;
    hn::StoreU(hn::TruncateTo(d16, bits), d16, static_cast<std::uint16_t*>(to) + index);
  }
}

template <DType kTo, class D>
HWY_INLINE void store_saturated(D d, hn::Vec<D> values, void* to, std::int64_t index) {
  const hn::RebindToUnsigned<D> du;
  const auto largest = hn::Set(d, largest_finite(kTo));
  const auto within = hn::Min(hn::Max(values, hn::Neg(largest)), largest);
  store_bits<kTo>(du, convert_bits<DType::f32, kTo>(hn::BitCast(du, within)), to, index);
}

template <DType kTo>
HWY_INLINE void store_all_saturated(const float* values, std::int64_t count, void* to) {
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    store_saturated<kTo>(FloatTag(), hn::LoadU(FloatTag(), values + i), to, i);
  }
  for (; i < count; i += kTailLanes) {
    store_saturated<kTo>(TailTag(), hn::LoadU(TailTag(), values + i), to, i);
  }
}

// `count` elements (a multiple of 8) that are not NaN. What would round to infinity is set to the
// type's largest finite value.
inline void store_all_saturated(DType type, const float* values, std::int64_t count, void* to) {
  switch (type) {
    case DType::f32: return store_all_saturated<DType::f32>(values, count, to);
    case DType::f16: return store_all_saturated<DType::f16>(values, count, to);
    case DType::bf16: return store_all_saturated<DType::bf16>(values, count, to);
  }
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
