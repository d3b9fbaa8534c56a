// The signed Hadamard rotation in vector lanes: the butterflies of codec/hadamard.h in their order,
// so that every target has the bits of the reference.
//
// An element's value after a stride depends on two elements before it alone, so butterflies of one
// stride may run in any order. Those of strides below kMostVectors vectors run in registers.

// Per-target include guard, as Highway's own headers have it.
#if defined(PAGEKV_CPU_ROTATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PAGEKV_CPU_ROTATE_INL_H_
#undef PAGEKV_CPU_ROTATE_INL_H_
#else
#define PAGEKV_CPU_ROTATE_INL_H_
#endif

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "codec/hadamard.h"
#include "codec/limits.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

// The largest magnitude of `dim` elements as its bits: compares like the magnitudes themselves, and
// puts NaN above infinity.
HWY_INLINE std::int32_t largest_magnitude(const float* values, std::int64_t dim) {
  const hn::RebindToSigned<FloatTag> di;
  const hn::RebindToSigned<TailTag> tail;
  const auto* bits = reinterpret_cast<const std::int32_t*>(values);
  constexpr std::int32_t kMagnitude = 0x7fffffff;
  auto largest = hn::Zero(di);
  auto of_tail = hn::Zero(tail);
  std::int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    largest = hn::Max(largest, hn::And(hn::LoadU(di, bits + i), hn::Set(di, kMagnitude)));
  }
  if (i < dim) of_tail = hn::And(hn::LoadU(tail, bits + i), hn::Set(tail, kMagnitude));
  return std::max(hn::GetLane(hn::MaxOfLanes(di, largest)),
                  hn::GetLane(hn::MaxOfLanes(tail, of_tail)));
}

// Lane i takes lane i ^ kStride.
template <std::int64_t kStride, class V>
HWY_INLINE V swap_lanes(V v) {
#if HWY_TARGET == HWY_SCALAR
  return v;  // never called
#else
  if constexpr (kStride == 1) return hn::Shuffle2301(v);
  if constexpr (kStride == 2) return hn::Shuffle1032(v);
  if constexpr (kStride == 4) return hn::SwapAdjacentBlocks(v);
  if constexpr (kStride == 8) return hn::ConcatLowerUpper(hn::DFromV<V>(), v, v);
#endif
}

// Butterflies of strides kStride, 2 * kStride, .. within a vector. a - b is a + (-b) in every bit.
template <std::int64_t kStride, class D>
HWY_INLINE hn::Vec<D> butterflies_in_lanes(D d, hn::Vec<D> v) {
  if constexpr (kStride < kLanesOf<D>) {
    const hn::RebindToUnsigned<D> du;
    constexpr int kToSign = 31 - std::countr_zero(static_cast<std::uint32_t>(kStride));
    const auto second = hn::And(hn::Iota(du, 0), hn::Set(du, static_cast<std::uint32_t>(kStride)));
    const auto negate = hn::BitCast(d, hn::ShiftLeft<kToSign>(second));
    v = hn::Add(swap_lanes<kStride>(v), hn::Xor(v, negate));
    return butterflies_in_lanes<2 * kStride>(d, v);
  } else {
    return v;
  }
}

// Where the signs go: before the transform (rotate), or after it (unrotate).
enum class Signs { before, after };

// What ends a block: the product with norm, and the signs of unrotate.
template <Signs kSigns, class D>
HWY_INLINE hn::Vec<D> finish(D d, hn::Vec<D> v, const Rotation& rotation, const float* signs) {
  v = hn::Mul(v, hn::Set(d, rotation.norm));
  if constexpr (kSigns == Signs::after) v = hn::Mul(v, hn::LoadU(d, signs));
  return v;
}

// The first strides, up to half of kVectors vectors, of these vectors. kWhole: they are a block.
template <Signs kSigns, int kVectors, bool kWhole, class D>
HWY_INLINE void butterflies_in_registers(D d, const Rotation& rotation, const float* signs,
                                         float* values) {
  constexpr std::int64_t kWidth = kLanesOf<D>;
  hn::Vec<D> v[kVectors];
  HWY_UNROLL(8)
  for (int i = 0; i < kVectors; ++i) {
    v[i] = hn::LoadU(d, values + i * kWidth);
    if constexpr (kSigns == Signs::before) v[i] = hn::Mul(v[i], hn::LoadU(d, signs + i * kWidth));
    v[i] = butterflies_in_lanes<1>(d, v[i]);
  }
  HWY_UNROLL(3)
  for (int stride = 1; stride < kVectors; stride *= 2) {
    HWY_UNROLL(4)
    for (int i = 0; i < kVectors / 2; ++i) {
      const int first = i / stride * 2 * stride + i % stride;
      const auto a = v[first];
      const auto b = v[first + stride];
      v[first] = hn::Add(a, b);
      v[first + stride] = hn::Sub(a, b);
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kVectors; ++i) {
    if constexpr (kWhole) v[i] = finish<kSigns>(d, v[i], rotation, signs + i * kWidth);
    hn::StoreU(v[i], d, values + i * kWidth);
  }
}

// Butterflies of one stride, of at least one vector, within a block. kLast: of half the block.
template <Signs kSigns, bool kLast, class D>
HWY_INLINE void butterflies_in_memory(D d, const Rotation& rotation, std::int64_t stride,
                                      const float* signs, float* values) {
  for (std::int64_t start = 0; start < rotation.block; start += 2 * stride) {
    for (std::int64_t i = start; i < start + stride; i += kLanesOf<D>) {
      const auto a = hn::LoadU(d, values + i);
      const auto b = hn::LoadU(d, values + i + stride);
      auto sum = hn::Add(a, b);
      auto difference = hn::Sub(a, b);
      if constexpr (kLast) {
        sum = finish<kSigns>(d, sum, rotation, signs + i);
        difference = finish<kSigns>(d, difference, rotation, signs + i + stride);
      }
      hn::StoreU(sum, d, values + i);
      hn::StoreU(difference, d, values + i + stride);
    }
  }
}

inline constexpr int kMostVectors = 8;

template <Signs kSigns, int kVectors, class D>
HWY_INLINE void transform_block(D d, const Rotation& rotation, const float* signs, float* values) {
  constexpr std::int64_t kElements = kVectors * kLanesOf<D>;
  if (rotation.block < kElements) {
    if constexpr (kVectors > 1 && kElements > 8) {
      transform_block<kSigns, kVectors / 2>(d, rotation, signs, values);
    }
    return;
  }
  if (rotation.block == kElements) {
    butterflies_in_registers<kSigns, kVectors, true>(d, rotation, signs, values);
    return;
  }
  if constexpr (kVectors == kMostVectors) {
    for (std::int64_t at = 0; at < rotation.block; at += kElements) {
      butterflies_in_registers<kSigns, kVectors, false>(d, rotation, signs + at, values + at);
    }
    std::int64_t stride = kElements;
    for (; 2 * stride < rotation.block; stride *= 2) {
      butterflies_in_memory<kSigns, false>(d, rotation, stride, signs, values);
    }
    butterflies_in_memory<kSigns, true>(d, rotation, stride, signs, values);
  }
}

template <Signs kSigns>
HWY_INLINE void transform(const Rotation& rotation, float* values) {
  for (std::int64_t at = 0; at < rotation.dim; at += rotation.block) {
    if (rotation.block >= kLanes) {
      transform_block<kSigns, kMostVectors>(FloatTag(), rotation, rotation.signs.data() + at,
                                            values + at);
    } else {
      transform_block<kSigns, kMostVectors>(TailTag(), rotation, rotation.signs.data() + at,
                                            values + at);
    }
  }
}

inline constexpr std::int32_t kLargeBits = std::bit_cast<std::int32_t>(kLarge);

// internal::rotate() and unrotate() for elements whose largest_magnitude() is `largest`.
inline void rotate_vector(const Rotation& rotation, std::int32_t largest, float* values) {
  if (largest > kLargeBits) return internal::rotate(rotation, values);
  transform<Signs::before>(rotation, values);
}
inline void unrotate_vector(const Rotation& rotation, std::int32_t largest, float* values) {
  if (largest > kLargeBits) return internal::unrotate(rotation, values);
  transform<Signs::after>(rotation, values);
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
