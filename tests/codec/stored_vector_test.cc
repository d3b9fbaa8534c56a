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

// What a rotation lifts above the largest value of the type is set to it, before it is coded.
TEST_P(OfDim, RotatedElementsAreHeldToTheType) {
  const internal::Rotation& turn = internal::rotation(GetParam());
  for (const VectorCodec& codec : all_codecs(GetParam())) {
    if (codec.is_rotated()) continue;
    const float largest = internal::largest_finite(codec.dtype());
    Vector values;  // one element of each block becomes as large as all of it
    for (std::int64_t i = 0; i < GetParam(); ++i) {
      values.push_back(turn.signs[static_cast<std::size_t>(i)] * largest *
                       (i % 3 == 0 ? 0.75f : 0.5f));
    }
    Vector turned = values;
    internal::rotate(turn, turned.data());
    if (codec.dtype() == DType::f16) {
      EXPECT_GT(*std::ranges::max_element(turned), largest);
    }
    for (float& value : turned) value = std::clamp(value, -largest, largest);
    EXPECT_EQ(encode_alone(codec.rotated(), values), encode_alone(codec, turned)) << codec.name();
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

// Numbers between -4 and 4 that every library draws alike.
Vector drawn_vector(std::uint32_t& state, std::int64_t dim) {
  Vector values;
  for (std::int64_t i = 0; i < dim; ++i) {
    float sum = 0.0f;
    for (int draw = 0; draw < 4; ++draw) {
      state = state * 1664525u + 1013904223u;
      sum += static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    }
    values.push_back(sum);
  }
  return values;
}

std::uint64_t digest(const EncodedVector& stored, std::uint64_t so_far) {
  for (const auto& plane : stored.planes) {
    for (const std::byte byte : plane) {
      so_far = (so_far ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3u;
    }
  }
  return so_far;
}

// Stored pages outlive a build: what a codec makes of a vector never changes. A codec that must
// change is a new codec.
TEST(StoredVector, BytesAreThoseOfEveryOtherBuild) {
  struct Known {
    const char* codec;
    std::int64_t dim;
    std::uint64_t digest;
  };
  const Known all[] = {{"f16", 128, 0x2819033be6466d40u},
                       {"bf16:rot", 80, 0xead29a83337f6236u},
                       {"f32:rot", 576, 0x1f2b92ba1e7fa8e0u},
                       {"affine:2:32", 128, 0xe2e708e0f4de7de5u},
                       {"affine:3:8:f16", 72, 0x6f7e574d3edc026fu},
                       {"affine:4", 128, 0x105af6c1ae1318b3u},
                       {"affine:5:16", 80, 0xa0c2cfb4f89e9063u},
                       {"affine:6:64:f32", 192, 0xcab0233613cb32f5u},
                       {"affine:8:max32", 96, 0x2608a3689dae1a80u},
                       {"affine:4:64:rot", 64, 0xab6164d08bc5cc82u},
                       {"codebook:1", 64, 0xffc89d4babeabdb2u},
                       {"codebook:2:head:rms", 80, 0x9b26fac865e72d77u},
                       {"codebook:3:rot", 128, 0x291f8a59892a39d7u},
                       {"codebook:4:rot", 128, 0xea12a4809e1e4ffeu},
                       {"codebook:5:64:norm:f16", 64, 0x2b55ef5af2e0e6b9u},
                       {"codebook:8:head:f32:rot", 576, 0xa4d0ce7c275bcefbu},
                       {"codebook:4:128:norm:rot", 256, 0x574cd0aa6e72d177u}};
  for (const Known& known : all) {
    const VectorCodec codec = *VectorCodec::parse(known.codec)->resolve(known.dim);
    std::uint32_t state = 1;
    std::uint64_t got = 0xcbf29ce484222325u;
    for (int at = 0; at < 100; ++at) {
      const auto stored = encode_alone(codec, drawn_vector(state, known.dim));
      ASSERT_TRUE(stored);
      got = digest(*stored, got);
    }
    EXPECT_EQ(got, known.digest) << known.codec << " of " << known.dim << ": 0x" << std::hex << got;
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
