// Every codec there is, with the vectors that break careless ones: what is finite stays finite,
// what is not is refused.
#include "codec/stored_vector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codec/codebook.h"
#include "codec/hadamard.h"
#include "codec/limits.h"
#include "support/codecs.h"

namespace pagekv::testing {
namespace {

using Vector = std::vector<float>;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Vector normal_vector(Random& random, std::int64_t dim, float deviation = 1.0f) {
  std::normal_distribution<float> normal(0.0f, deviation);
  Vector values;
  for (std::int64_t i = 0; i < dim; ++i) values.push_back(normal(random));
  return values;
}

double length(const Vector& values) {
  double sum = 0.0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

bool all_finite(const Vector& values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

bool fits(const Vector& values, DType type) {
  return std::ranges::all_of(
      values, [=](float value) { return std::fabs(value) < internal::overflow_limit(type); });
}

class OfDim : public ::testing::TestWithParam<std::int64_t> {};

// Also no element grows without reason: what comes back is at most about as long as what went in.
TEST_P(OfDim, FiniteVectorsStayFinite) {
  const std::int64_t dim = GetParam();
  for (const DType type : kAllDTypes) {
    const std::vector<NamedVector> vectors = edge_vectors(type, dim);
    for (const VectorCodec& codec : all_codecs(dim)) {
      // Scales that are denormal in f16 may be rounded by half: of steps of 1e-7, 255 at most.
      const double slack = 1e-4 * std::sqrt(static_cast<double>(dim));
      for (const NamedVector& vector : vectors) {
        SCOPED_TRACE(::testing::Message()
                     << codec.name() << ", " << vector.name << " of " << name(type));
        const auto stored = encode_alone(codec, vector.elements);
        ASSERT_EQ(stored.has_value(), fits(vector.elements, codec.dtype()));
        if (!stored) continue;
        const Vector back = decode_alone(codec, *stored, dim);
        ASSERT_TRUE(all_finite(back));
        ASSERT_LE(length(back), 2 * length(vector.elements) + slack);
      }
    }
  }
}

TEST_P(OfDim, ZerosComeBackAsZeros) {
  const Vector zeros(static_cast<std::size_t>(GetParam()), 0.0f);
  for (const VectorCodec& codec : all_codecs(GetParam())) {
    EXPECT_EQ(through_codec(codec, zeros), zeros) << codec.name();
  }
}

TEST_P(OfDim, WhatIsNotFiniteOrOverflowsIsRefusedAndNothingIsWritten) {
  Random random(71);
  const Vector usual = normal_vector(random, GetParam());
  for (const VectorCodec& codec : all_codecs(GetParam())) {
    const float limit = internal::overflow_limit(codec.dtype());
    for (const float bad : {kNaN, -kNaN, kInfinity, -kInfinity, limit, -limit}) {
      for (const std::int64_t at : {std::int64_t{0}, GetParam() / 2 + 1, GetParam() - 1}) {
        Vector values = usual;
        values[static_cast<std::size_t>(at)] = bad;
        std::vector<std::byte> room(4096, std::byte{0xab});
        const std::vector<std::byte> before = room;
        EXPECT_FALSE(internal::encode_vector(codec, values.data(), GetParam(),
                                             {room.data(), room.data(), room.data()}))
            << codec.name() << ' ' << bad;
        EXPECT_EQ(room, before);
      }
    }
    Vector values = usual;
    values[1] = std::nextafter(limit, 0.0f);
    EXPECT_TRUE(encode_alone(codec, values).has_value()) << codec.name() << " just below";
  }
}

// The dense ones hold every element rounded to their type.
TEST_P(OfDim, DenseElementsAreRoundedOnce) {
  Random random(72);
  for (const DType type : kAllDTypes) {
    const Vector values = normal_vector(random, GetParam(), 100.0f);
    Vector want;
    for (const float value : values) {
      std::byte element[4];
      store_element(type, value, element);
      want.push_back(load_element(type, element));
    }
    EXPECT_EQ(through_codec(VectorCodec::dense(type), values), want);
  }
}

// An element is code * scale + bias, both rounded to f32, or table[code] * scale.
TEST_P(OfDim, ElementsAreWhatTheirBytesSay) {
  constexpr std::uint64_t kSeed = 73;
  Random random(kSeed);
  for (const VectorCodec& codec : all_codecs(GetParam())) {
    if (codec.kind() == CodecKind::dense || codec.is_rotated()) continue;
    const auto stored = encode_alone(codec, normal_vector(random, GetParam(), 3.0f));
    ASSERT_TRUE(stored);
    const auto& [codes, scales, biases] = stored->planes;
    const Vector back = decode_alone(codec, *stored, GetParam());
    const auto size = size_bytes(codec.dtype());
    for (std::int64_t i = 0; i < GetParam(); ++i) {
      std::size_t code = 0;
      for (int bit = 0; bit < codec.bits(); ++bit) {
        const auto at = static_cast<std::size_t>(i * codec.bits() + bit);
        code |= (std::to_integer<std::size_t>(codes[at / 8]) >> at % 8 & 1) << bit;
      }
      const std::int64_t group = i / codec.group_elements(GetParam());
      const float scale = load_element(codec.dtype(), scales.data() + group * size);
      float want = 0.0f;
      if (codec.kind() == CodecKind::codebook) {
        want = internal::centroids(codec.bits())[code] * scale;
      } else {
        const float product = static_cast<float>(code) * scale;
        want = product + load_element(codec.dtype(), biases.data() + group * size);
      }
      ASSERT_EQ(back[static_cast<std::size_t>(i)], want) << codec.name() << " seed " << kSeed;
    }
  }
}

// A rotated codec is the plain one on the rotated vector.
TEST_P(OfDim, RotationComesFirstAndGoesLast) {
  constexpr std::uint64_t kSeed = 74;
  Random random(kSeed);
  for (const VectorCodec& codec : all_codecs(GetParam())) {
    if (codec.is_rotated()) continue;
    const Vector values = normal_vector(random, GetParam());
    Vector turned = values;
    internal::rotate(internal::rotation(GetParam()), turned.data());
    const auto plain = encode_alone(codec, turned);
    ASSERT_TRUE(plain);
    const VectorCodec rotated = codec.rotated();
    EXPECT_EQ(encode_alone(rotated, values), plain) << codec.name() << " seed " << kSeed;
    Vector want = decode_alone(codec, *plain, GetParam());
    internal::unrotate(internal::rotation(GetParam()), want.data());
    EXPECT_EQ(decode_alone(rotated, *plain, GetParam()), want) << codec.name();
  }
}

// Groups know nothing of each other.
TEST(StoredVector, AGroupHasTheBytesItHasAlone) {
  constexpr std::uint64_t kSeed = 75;
  Random random(kSeed);
  constexpr std::int64_t kDim = 128;
  for (const VectorCodec& codec : all_codecs(kDim)) {
    if (codec.kind() == CodecKind::dense || codec.is_rotated()) continue;
    const std::int64_t count = codec.group_elements(kDim);
    const Vector values = normal_vector(random, kDim);
    EncodedVector joined;
    for (std::int64_t first = 0; first < kDim; first += count) {
      const auto alone =
          encode_alone(codec, Vector(values.begin() + first, values.begin() + first + count));
      ASSERT_TRUE(alone);
      for (std::size_t i = 0; i < joined.planes.size(); ++i) {
        const auto& plane = alone->planes[i];
        // Codes of short groups are padded to words when they are alone.
        const std::size_t used =
            i == 0 ? static_cast<std::size_t>(count * codec.bits() / 8) : plane.size();
        joined.planes[i].insert(joined.planes[i].end(), plane.begin(),
                                plane.begin() + static_cast<std::ptrdiff_t>(used));
      }
    }
    EXPECT_EQ(encode_alone(codec, values), joined) << codec.name() << " seed " << kSeed;
  }
}

// More bits err less, at the same group.
TEST(StoredVector, ErrorFallsWithBits) {
  constexpr std::uint64_t kSeed = 76;
  constexpr std::int64_t kDim = 128;
  Random random(kSeed);
  std::vector<Vector> vectors;
  for (int i = 0; i < 50; ++i) vectors.push_back(normal_vector(random, kDim));
  const auto error = [&](const VectorCodec& codec) {
    double sum = 0.0;
    for (const Vector& values : vectors) {
      const Vector back = through_codec(codec, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        sum += std::pow(static_cast<double>(back[i]) - static_cast<double>(values[i]), 2);
      }
    }
    return sum;
  };
  const auto group = VectorCodec::exactly(32);
  double last = std::numeric_limits<double>::max();
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const double now = error(VectorCodec::affine(bits, group));
    EXPECT_LT(now, last / 2) << bits;
    last = now;
  }
  last = std::numeric_limits<double>::max();
  for (const int bits : {1, 2, 3, 4, 5, 8}) {
    const double now = error(VectorCodec::codebook(bits, group));
    EXPECT_LT(now, last / 2) << bits;
    last = now;
  }
}

INSTANTIATE_TEST_SUITE_P(Dims, OfDim, ::testing::Values(24, 72, 128),
                         [](const auto& dim) { return "dim" + std::to_string(dim.param); });

}  // namespace
}  // namespace pagekv::testing
