#include "codec/stored_vector.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "codec/affine.h"
#include "codec/codebook.h"
#include "codec/hadamard.h"
#include "codec/limits.h"
#include "codec/packing.h"
#include "pagekv/dtype.h"
#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr float kMax = std::numeric_limits<float>::max();

float load(DType type, const std::byte* from, std::int64_t index) {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, from + 4 * index, 4);
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, from + 2 * index, 2);
  return type == DType::bf16 ? f32_from_bf16(bits) : f32_from_f16(bits);
}

// REQUIRES: a finite value. What rounding would carry to infinity is set to the largest finite one.
void store(DType type, float value, std::byte* to, std::int64_t index) {
  const float largest = largest_finite(type);
  value = std::clamp(value, -largest, largest);
  if (type == DType::f32) {
    std::memcpy(to + 4 * index, &value, 4);
    return;
  }
  const std::uint16_t bits = type == DType::bf16 ? bf16_from_f32(value) : f16_from_f32(value);
  std::memcpy(to + 2 * index, &bits, 2);
}

void encode_groups(const VectorCodec& codec, const float* values, std::int64_t dim,
                   const StoredVector& to) {
  std::array<std::uint8_t, kMaxHeadDim> codes;
  const std::int64_t count = codec.group_elements(dim);
  for (std::int64_t group = 0; group < dim / count; ++group) {
    const float* from = values + group * count;
    std::uint8_t* group_codes = codes.data() + group * count;
    if (codec.kind() == CodecKind::affine) {
      const AffineGroup made = encode_affine(from, count, codec.bits(), group_codes);
      store(codec.dtype(), made.scale, to.scales, group);
      store(codec.dtype(), made.bias, to.biases, group);
    } else {
      const float scale = encode_codebook(from, count, codec.bits(), codec.fit(), group_codes);
      store(codec.dtype(), scale, to.scales, group);
    }
  }
  pack_row(codec.bits(), codes.data(), dim, to.codes);
}

// Elements times `shrink`, in the domain that is stored.
void decode_elements(const VectorCodec& codec, const ConstStoredVector& from, std::int64_t dim,
                     float shrink, float* values) {
  if (codec.kind() == CodecKind::dense) {
    for (std::int64_t i = 0; i < dim; ++i) values[i] = load(codec.dtype(), from.codes, i) * shrink;
    return;
  }
  std::array<std::uint8_t, kMaxHeadDim> codes;
  unpack_row(codec.bits(), from.codes, dim, codes.data());
  const std::int64_t count = codec.group_elements(dim);
  for (std::int64_t i = 0; i < dim; ++i) {
    const std::uint8_t code = codes[static_cast<std::size_t>(i)];
    const float scale = load(codec.dtype(), from.scales, i / count) * shrink;
    if (codec.kind() == CodecKind::affine) {
      const float product = static_cast<float>(code) * scale;
      values[i] = product + load(codec.dtype(), from.biases, i / count) * shrink;
    } else {
      values[i] = centroids(codec.bits())[code] * scale;
    }
  }
}

bool is_large(const VectorCodec& codec, const ConstStoredVector& from, std::int64_t dim) {
  const bool dense = codec.kind() == CodecKind::dense;
  const std::byte* magnitudes = dense ? from.codes : from.scales;
  for (std::int64_t i = 0; i < (dense ? dim : codec.groups(dim)); ++i) {
    if (std::fabs(load(codec.dtype(), magnitudes, i)) > kLarge) return true;
  }
  return false;
}

}  // namespace

bool encode_vector(const VectorCodec& codec, float* values, std::int64_t dim,
                   const StoredVector& to) {
  const float limit = overflow_limit(codec.dtype());
  if (!std::all_of(values, values + dim, [=](float value) { return std::fabs(value) < limit; })) {
    return false;
  }
  if (codec.is_rotated()) {
    rotate(rotation(dim), values);
    const float largest = largest_finite(codec.dtype());
    for (std::int64_t i = 0; i < dim; ++i) values[i] = std::clamp(values[i], -largest, largest);
  }
  if (codec.kind() == CodecKind::dense) {
    for (std::int64_t i = 0; i < dim; ++i) store(codec.dtype(), values[i], to.codes, i);
  } else {
    encode_groups(codec, values, dim, to);
  }
  return true;
}

void decode_vector(const VectorCodec& codec, const ConstStoredVector& from, std::int64_t dim,
                   float* values) {
  const bool exact = codec.kind() == CodecKind::dense && !codec.is_rotated();
  const bool large = !exact && is_large(codec, from, dim);
  decode_elements(codec, from, dim, large ? kShrink : 1.0f, values);
  if (codec.is_rotated()) unrotate(rotation(dim), values);
  if (!large) return;
  for (std::int64_t i = 0; i < dim; ++i) {
    values[i] = std::clamp(values[i], -kMax * kShrink, kMax * kShrink) / kShrink;
  }
}

}  // namespace pagekv::inline v0::internal
