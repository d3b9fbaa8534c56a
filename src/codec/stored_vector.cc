#include "codec/stored_vector.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

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

// Values that were computed kShrink times as large.
void expand(float* values, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    values[i] = std::clamp(values[i], -kMax * kShrink, kMax * kShrink) / kShrink;
  }
}

// Elements of one group times `shrink`.
void decode_group(const VectorCodec& codec, const ConstStoredVector& from, std::int64_t group,
                  std::span<const std::uint8_t> codes, float shrink, float* values) {
  const float scale = load(codec.dtype(), from.scales, group) * shrink;
  if (codec.kind() == CodecKind::affine) {
    const float bias = load(codec.dtype(), from.biases, group) * shrink;
    for (const std::uint8_t code : codes) {
      const float product = static_cast<float>(code) * scale;
      *values++ = product + bias;
    }
  } else {
    for (const std::uint8_t code : codes) *values++ = centroids(codec.bits())[code] * scale;
  }
}

// Elements in the domain that is stored; with `shrink_all` all of them kShrink times as large.
void decode_elements(const VectorCodec& codec, const ConstStoredVector& from, std::int64_t dim,
                     bool shrink_all, float* values) {
  if (codec.kind() == CodecKind::dense) {
    const float shrink = shrink_all ? kShrink : 1.0f;
    for (std::int64_t i = 0; i < dim; ++i) values[i] = load(codec.dtype(), from.codes, i) * shrink;
    return;
  }
  std::array<std::uint8_t, kMaxHeadDim> codes;
  unpack_row(codec.bits(), from.codes, dim, codes.data());
  const std::int64_t count = codec.group_elements(dim);
  for (std::int64_t group = 0; group < dim / count; ++group) {
    const bool large = std::fabs(load(codec.dtype(), from.scales, group)) > kLarge;
    float* to = values + group * count;
    decode_group(codec, from, group,
                 std::span(codes).subspan(static_cast<std::size_t>(group * count),
                                          static_cast<std::size_t>(count)),
                 large || shrink_all ? kShrink : 1.0f, to);
    if (large && !shrink_all) expand(to, count);
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
  // A rotation adds up elements of all groups, so they are of one size.
  const bool shrink_all = codec.is_rotated() && is_large(codec, from, dim);
  decode_elements(codec, from, dim, shrink_all, values);
  if (codec.is_rotated()) unrotate(rotation(dim), values);
  if (shrink_all) expand(values, dim);
}

}  // namespace pagekv::inline v0::internal
