// Conversions between element types, rows at a time.
#include <cstddef>
#include <cstdint>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/convert.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/convert-inl.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// The exponent's bits: all set in infinities and NaN.
template <DType kType>
inline constexpr std::uint32_t kExponent = kType == DType::f32    ? 0x7f800000u
                                           : kType == DType::bf16 ? 0x7f80u
                                                                  : 0x7c00u;

// All lanes where `stored` is not finite.
template <class Bits>
HWY_INLINE Bits not_finite(Bits stored, Bits exponent) {
  return hn::VecFromMask(hn::DFromV<Bits>(), hn::Eq(hn::And(stored, exponent), exponent));
}

// Elements [begin, end); a multiple of Lanes(du). Returns whether all stored ones are finite.
template <DType kFrom, DType kTo, class DU>
HWY_INLINE bool convert_run(DU du, const void* from, void* to, std::int64_t begin,
                            std::int64_t end) {
  constexpr std::int64_t kStep = static_cast<std::int64_t>(hn::MaxLanes(DU()));
  const auto exponent = hn::Set(du, kExponent<kTo>);
  auto bad = hn::Zero(du);
  for (std::int64_t i = begin; i < end; i += kStep) {
    const auto stored = convert_bits<kFrom, kTo>(load_bits<kFrom>(du, from, i));
    bad = hn::Or(bad, not_finite(stored, exponent));
    store_bits<kTo>(du, stored, to, i);
  }
  return hn::AllTrue(du, hn::Eq(bad, hn::Zero(du)));
}

// As above, of one 16-bit type to itself: no need for wider lanes.
template <DType kType, class D16>
HWY_INLINE bool copy_run(D16 d, const void* from, void* to, std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kStep = static_cast<std::int64_t>(hn::MaxLanes(D16()));
  const auto exponent = hn::Set(d, static_cast<std::uint16_t>(kExponent<kType>));
  auto bad = hn::Zero(d);
  for (std::int64_t i = begin; i < end; i += kStep) {
    const auto stored = hn::LoadU(d, static_cast<const std::uint16_t*>(from) + i);
    bad = hn::Or(bad, not_finite(stored, exponent));
    hn::StoreU(stored, d, static_cast<std::uint16_t*>(to) + i);
  }
  return hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
}

template <DType kFrom, DType kTo>
bool convert(const void* from, void* to, std::int64_t count) {
  if constexpr (kFrom == kTo && kTo != DType::f32) {
    using Wide = hn::CappedTag<std::uint16_t, 32>;
    constexpr std::int64_t kWide = static_cast<std::int64_t>(hn::MaxLanes(Wide()));
    const std::int64_t whole = count / kWide * kWide;
    const bool finite = copy_run<kTo>(Wide(), from, to, 0, whole);
    return copy_run<kTo>(hn::CappedTag<std::uint16_t, 8>(), from, to, whole, count) && finite;
  } else {
    const std::int64_t whole = count / kLanes * kLanes;
    const bool finite =
        convert_run<kFrom, kTo>(hn::RebindToUnsigned<FloatTag>(), from, to, 0, whole);
    return convert_run<kFrom, kTo>(hn::RebindToUnsigned<TailTag>(), from, to, whole, count) &&
           finite;
  }
}

// Not by load_f32(): it has no infinities and NaN of f16 on every target. Nobody asks convert_run()
// what it found, so the compiler leaves the search out.
template <DType kFrom>
void to_float(const void* from, float* to, std::int64_t count) {
  const std::int64_t whole = count / kLanes * kLanes;
  convert_run<kFrom, DType::f32>(hn::RebindToUnsigned<FloatTag>(), from, to, 0, whole);
  convert_run<kFrom, DType::f32>(hn::RebindToUnsigned<TailTag>(), from, to, whole, count);
}

void export_convert(KernelTable& table) {
  const auto bind_from = [&table]<DType kFrom>() {
    auto& row = table.convert[dtype_index(kFrom)];
    row[dtype_index(DType::f32)] = convert<kFrom, DType::f32>;
    row[dtype_index(DType::f16)] = convert<kFrom, DType::f16>;
    row[dtype_index(DType::bf16)] = convert<kFrom, DType::bf16>;
    table.to_float[dtype_index(kFrom)] = to_float<kFrom>;
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
