// Encode, decode and rotate of every target: the bytes and the bits of the reference in src/codec.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "codec/codebook.h"
#include "codec/hadamard.h"
#include "codec/limits.h"
#include "cpu/targets.h"
#include "support/codecs.h"
#include "support/random_data.h"

namespace pagekv::testing {
namespace {

using internal::kernel_tables;
using internal::KernelTable;
using internal::SideShape;

constexpr std::int64_t kDims[] = {8, 24, 40, 64, 72, 80, 96, 128, 192, 256, 576};
constexpr std::byte kCanary{0xab};
constexpr std::size_t kCanaries = 16;

std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    const char* digits = "0123456789abcdef";
    text += digits[std::to_integer<int>(byte >> 4)];
    text += digits[std::to_integer<int>(byte & std::byte{15})];
  }
  return text;
}

// A codec as kernels are told of it.
SideShape shape_of(const VectorCodec& codec, std::int64_t dim) {
  PlaneLayouts planes;
  std::size_t count = 0;
  for (const Plane& plane : codec.planes(dim)) {
    planes[count++] = {.row_bytes = plane.bytes_per_vector, .unit_bytes = plane.unit_bytes};
  }
  return internal::side_shape(codec, planes, dim);
}

std::vector<float> normals(Random& random, std::int64_t dim) {
  std::normal_distribution<float> bell;
  std::vector<float> values(static_cast<std::size_t>(dim));
  for (float& value : values) value = bell(random);
  return values;
}

std::vector<float> heavy_tails(Random& random, std::int64_t dim) {
  std::vector<float> values = normals(random, dim);
  for (float& value : values) value = std::copysign(std::pow(std::fabs(value), 5.0f), value);
  return values;
}

// Groups from 0 to the largest code, or to its negative: the step is 1, and every other element is
// halfway between codes.
std::vector<float> affine_ties(Random& random, const VectorCodec& codec, std::int64_t dim) {
  const auto last = static_cast<float>((1 << codec.bits()) - 1);
  const std::int64_t group = codec.group_elements(dim);
  std::vector<float> values;
  for (std::int64_t i = 0; i < dim; ++i) {
    const float sign = i / group % 2 == 0 ? 1.0f : -1.0f;
    const auto code = static_cast<float>(pick(random, 0, (1 << codec.bits()) - 2));
    values.push_back(sign * (i % group == 0 ? 0.0f : i % group == 1 ? last : code + 0.5f));
  }
  return values;
}

// Groups of a root mean square of 1 within rounding, half of them boundaries.
std::vector<float> codebook_ties(Random& random, const VectorCodec& codec, std::int64_t dim) {
  const auto bounds = internal::boundaries(codec.bits());
  const std::int64_t group = codec.group_elements(dim);
  std::vector<float> values;
  while (std::ssize(values) < dim) {
    std::vector<float> made;
    double squares = 0.0;
    for (std::int64_t i = 0; i < group / 2; ++i) {
      made.push_back(bounds[static_cast<std::size_t>(pick(random, 0, std::ssize(bounds) - 1))]);
      if (std::fabs(made.back()) > 1.5f) made.back() = bounds[bounds.size() / 2];
      squares += std::pow(static_cast<double>(made.back()), 2);
    }
    const auto rest = static_cast<double>(group - group / 2);
    const double filler = std::sqrt(std::max(static_cast<double>(group) - squares, 0.0) / rest);
    made.resize(static_cast<std::size_t>(group), static_cast<float>(filler));
    values.insert(values.end(), made.begin(), made.end());
  }
  return values;
}

// Vectors for one codec: random ones, and a part of the edges, which takes turns.
std::vector<NamedVector> vectors_for(Random& random, const VectorCodec& codec, std::int64_t dim,
                                     std::size_t turn) {
  const std::size_t kTurns = dim > 128 ? 8 : 4;
  std::vector<NamedVector> all = {{"normals", normals(random, dim)},
                                  {"heavy tails", heavy_tails(random, dim)}};
  if (codec.kind() == CodecKind::affine) all.push_back({"ties", affine_ties(random, codec, dim)});
  if (codec.kind() == CodecKind::codebook) {
    all.push_back({"ties", codebook_ties(random, codec, dim)});
  }
  std::vector<NamedVector> edges = edge_vectors(codec.dtype(), dim);
  for (std::size_t i = turn % kTurns; i < edges.size(); i += kTurns) all.push_back(edges[i]);
  return all;
}

void check_encode(const KernelTable& table, const VectorCodec& codec,
                  const std::vector<float>& vector, const EncodedVector& want, std::int64_t rows) {
  EncodedVector got;
  internal::PlanePointers to{};
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (want.planes[i].empty()) continue;
    got.planes[i].assign(want.planes[i].size() * static_cast<std::size_t>(rows) + kCanaries,
                         kCanary);
    to[i] = got.planes[i].data();
  }
  std::vector<float> values;
  for (std::int64_t row = 0; row < rows; ++row) {
    values.insert(values.end(), vector.begin(), vector.end());
  }
  const auto dim = static_cast<std::int64_t>(vector.size());
  EXPECT_EQ(
      table.encode[internal::codec_index(codec)](values.data(), rows, shape_of(codec, dim), to),
      0u);
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (want.planes[i].empty()) continue;
    std::vector<std::byte> expected;
    for (std::int64_t row = 0; row < rows; ++row) {
      expected.insert(expected.end(), want.planes[i].begin(), want.planes[i].end());
    }
    expected.insert(expected.end(), kCanaries, kCanary);
    EXPECT_EQ(hex(got.planes[i]), hex(expected)) << "plane " << i << " of " << rows << " rows";
  }
}

// Whether a scale, or an element of a dense vector, is beyond what decode kernels take.
bool is_large(const VectorCodec& codec, const EncodedVector& stored) {
  const std::vector<std::byte>& plane = stored.planes[codec.kind() == CodecKind::dense ? 0 : 1];
  const auto size = static_cast<std::size_t>(size_bytes(codec.dtype()));
  for (std::size_t at = 0; at < plane.size(); at += size) {
    if (std::fabs(load_element(codec.dtype(), plane.data() + at)) > internal::kLarge) return true;
  }
  return false;
}

void check_decode(const KernelTable& table, const VectorCodec& codec, const EncodedVector& stored,
                  const std::vector<float>& values, DType type) {
  const auto dim = static_cast<std::int64_t>(values.size());
  internal::ConstPlanePointers from{};
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (!stored.planes[i].empty()) from[i] = stored.planes[i].data();
  }
  const auto size = static_cast<std::size_t>(size_bytes(type));
  const auto bytes = size * values.size();
  std::vector<std::byte> got(bytes + kCanaries, kCanary);
  const bool decoded =
      table.decode[internal::codec_index(codec)](from, shape_of(codec, dim), type, got.data());
  EXPECT_EQ(decoded, !is_large(codec, stored));
  std::vector<std::byte> want(bytes + kCanaries, kCanary);
  if (decoded) {
    const float most = internal::largest_finite(type);
    for (std::size_t i = 0; i < values.size(); ++i) {
      store_element(type, std::clamp(values[i], -most, most), want.data() + i * size);
    }
  }
  EXPECT_EQ(hex(got), hex(want)) << "to " << name(type);
}

class OfDim : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(OfDim, EncodeAndDecodeAreTheReferences) {
  constexpr std::uint64_t kSeed = 51;
  Random random(kSeed);
  const std::int64_t dim = GetParam();
  std::size_t turn = 0;
  for (const VectorCodec& codec : all_codecs(dim)) {
    if (dim > 128 && pick(random, 0, 2) != 0) continue;  // the same again, at length
    for (const NamedVector& vector : vectors_for(random, codec, dim, turn++)) {
      const auto stored = encode_alone(codec, vector.elements);
      if (!stored) continue;  // heavy tails beyond f16
      const std::vector<float> values = decode_alone(codec, *stored, dim);
      const std::int64_t rows = pick(random, 0, 3) == 0 ? kTileTokens : 1;
      const DType type = kAllDTypes[static_cast<std::size_t>(pick(random, 0, 2))];
      const bool converted = codec.kind() == CodecKind::dense && !codec.is_rotated();
      for (const KernelTable& table : kernel_tables()) {
        SCOPED_TRACE(::testing::Message() << table.name << ' ' << codec.name() << ' ' << vector.name
                                          << ", seed " << kSeed);
        check_encode(table, codec, vector.elements, *stored, rows);
        if (!converted) check_decode(table, codec, *stored, values, type);
        if (HasFailure()) return;
      }
    }
  }
}

// Refused rows are named, and the others of the call are stored as ever.
TEST_P(OfDim, WhatCannotBeStoredIsRefused) {
  constexpr std::uint64_t kSeed = 52;
  constexpr std::int64_t kCount = 5;
  constexpr std::int64_t kBad = 3;
  Random random(kSeed);
  const std::int64_t dim = GetParam();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const VectorCodec& codec : all_codecs(dim)) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity,
                            internal::overflow_limit(codec.dtype())}) {
      std::vector<float> vectors;
      EncodedVector want;
      for (std::int64_t row = 0; row < kCount; ++row) {
        std::vector<float> vector = normals(random, dim);
        const auto stored = encode_alone(codec, vector);
        for (std::size_t i = 0; i < want.planes.size(); ++i) {
          want.planes[i].insert(want.planes[i].end(), stored->planes[i].begin(),
                                stored->planes[i].end());
        }
        if (row == kBad) vector[static_cast<std::size_t>(pick(random, 0, dim - 1))] = bad;
        vectors.insert(vectors.end(), vector.begin(), vector.end());
      }
      for (const KernelTable& table : kernel_tables()) {
        SCOPED_TRACE(::testing::Message() << table.name << ' ' << codec.name() << ' ' << bad);
        std::vector<float> values = vectors;
        EncodedVector got = want;
        internal::PlanePointers to{};
        for (std::size_t i = 0; i < to.size(); ++i) {
          std::fill(got.planes[i].begin(), got.planes[i].end(), kCanary);
          to[i] = got.planes[i].data();
        }
        EXPECT_EQ(table.encode[internal::codec_index(codec)](values.data(), kCount,
                                                             shape_of(codec, dim), to),
                  1u << kBad);
        for (std::size_t i = 0; i < to.size(); ++i) {
          const std::ptrdiff_t row = std::ssize(want.planes[i]) / kCount;
          std::copy_n(want.planes[i].begin() + kBad * row, row, got.planes[i].begin() + kBad * row);
        }
        EXPECT_EQ(got, want);
      }
    }
  }
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

TEST_P(OfDim, RotationIsTheReferences) {
  constexpr std::uint64_t kSeed = 53;
  Random random(kSeed);
  const std::int64_t dim = GetParam();
  const internal::Rotation& rotation = internal::rotation(dim);
  std::vector<NamedVector> vectors = edge_vectors(DType::f32, dim);
  for (int i = 0; i < 20; ++i) vectors.push_back({"normals", normals(random, dim)});
  vectors.push_back({"NaN", normals(random, dim)});
  vectors.back().elements[5] = std::numeric_limits<float>::quiet_NaN();
  vectors.push_back({"infinity", normals(random, dim)});
  vectors.back().elements[2] = std::numeric_limits<float>::infinity();
  for (const NamedVector& vector : vectors) {
    std::vector<float> rotated = vector.elements;
    std::vector<float> unrotated = vector.elements;
    internal::rotate(rotation, rotated.data());
    internal::unrotate(rotation, unrotated.data());
    for (const KernelTable& table : kernel_tables()) {
      std::vector<float> got = vector.elements;
      table.rotate(rotation, got.data());
      EXPECT_EQ(bits_of(got), bits_of(rotated)) << table.name << ' ' << vector.name;
      got = vector.elements;
      table.unrotate(rotation, got.data());
      EXPECT_EQ(bits_of(got), bits_of(unrotated)) << table.name << ' ' << vector.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dims, OfDim, ::testing::ValuesIn(kDims));

}  // namespace
}  // namespace pagekv::testing
