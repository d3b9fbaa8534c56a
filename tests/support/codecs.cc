#include "support/codecs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "codec/limits.h"
#include "codec/stored_vector.h"

namespace pagekv::testing {

namespace {

constexpr std::array kAffineBits = {2, 3, 4, 5, 6, 8};
constexpr std::array kCodebookBits = {1, 2, 3, 4, 5, 8};

void push_settled(std::vector<VectorCodec>& to, const VectorCodec& codec, std::int64_t dim) {
  for (const VectorCodec& either : {codec, codec.rotated()}) {
    if (const auto settled = either.resolve(dim)) to.push_back(*settled);
  }
}

// All codecs of one kind and width. Dense types count as widths of their own.
std::vector<VectorCodec> codecs_of(CodecKind kind, int bits, DType type, std::int64_t dim) {
  std::vector<VectorCodec> all;
  if (kind == CodecKind::dense) {
    push_settled(all, VectorCodec::dense(type), dim);
    return all;
  }
  for (const DType scales : kAllDTypes) {
    for (const int group : {8, 16, 32, 64, 128, VectorCodec::kWholeHead}) {
      if (kind == CodecKind::affine) {
        push_settled(all, VectorCodec::affine(bits, VectorCodec::exactly(group), scales), dim);
        continue;
      }
      for (const ScaleFit fit : kAllFits) {
        push_settled(all, VectorCodec::codebook(bits, VectorCodec::exactly(group), fit, scales),
                     dim);
      }
    }
  }
  return all;
}

static_assert(kCodecWidths == kAllDTypes.size() + kAffineBits.size() + kCodebookBits.size());

std::vector<VectorCodec> codecs_of_width(int width, std::int64_t dim) {
  auto index = static_cast<std::size_t>(width);
  if (index < kAllDTypes.size()) return codecs_of(CodecKind::dense, 0, kAllDTypes[index], dim);
  index -= kAllDTypes.size();
  if (index < kAffineBits.size()) {
    return codecs_of(CodecKind::affine, kAffineBits[index], DType::f32, dim);
  }
  index -= kAffineBits.size();
  return codecs_of(CodecKind::codebook, kCodebookBits[index], DType::f32, dim);
}

}  // namespace

std::vector<VectorCodec> all_codecs(std::int64_t dim) {
  std::vector<VectorCodec> all;
  for (int width = 0; width < kCodecWidths; ++width) {
    const std::vector<VectorCodec> codecs = codecs_of_width(width, dim);
    all.insert(all.end(), codecs.begin(), codecs.end());
  }
  return all;
}

VectorCodec pick_codec(Random& random, int width, std::int64_t dim) {
  return pick_one(random, codecs_of_width(width, dim));
}

std::optional<EncodedVector> encode_alone(const VectorCodec& codec, std::vector<float> values) {
  const auto dim = static_cast<std::int64_t>(values.size());
  EncodedVector stored;
  std::size_t count = 0;
  for (const Plane& plane : codec.planes(dim)) {
    stored.planes[count++].resize(static_cast<std::size_t>(plane.bytes_per_vector));
  }
  auto& [codes, scales, biases] = stored.planes;
  const bool taken = internal::encode_vector(codec, values.data(), dim,
                                             {codes.data(), scales.data(), biases.data()});
  return taken ? std::optional(stored) : std::nullopt;
}

std::vector<float> decode_alone(const VectorCodec& codec, const EncodedVector& stored,
                                std::int64_t dim) {
  std::vector<float> values(static_cast<std::size_t>(dim));
  const auto& [codes, scales, biases] = stored.planes;
  internal::decode_vector(codec, {codes.data(), scales.data(), biases.data()}, dim, values.data());
  return values;
}

std::vector<float> through_codec(const VectorCodec& codec, const std::vector<float>& values) {
  const auto stored = encode_alone(codec, values);
  EXPECT_TRUE(stored.has_value()) << codec.name();
  return decode_alone(codec, *stored, static_cast<std::int64_t>(values.size()));
}

namespace {

float smallest_denormal(DType type) {
  switch (type) {
    case DType::f32: return std::numeric_limits<float>::denorm_min();
    case DType::f16: return 0x1p-24f;
    case DType::bf16: return 0x1p-133f;
  }
  return 0.0f;
}

float smallest_normal(DType type) {
  return type == DType::f16 ? 0x1p-14f : std::numeric_limits<float>::min();
}

// Elements made by `make(index)`, rounded to `type`.
template <typename Make>
NamedVector make_vector(const char* name, DType type, std::int64_t dim, Make make) {
  NamedVector made{name, {}};
  for (std::int64_t at = 0; at < dim; ++at) {
    std::byte element[4];
    store_element(type, make(at), element);
    made.elements.push_back(load_element(type, element));
  }
  return made;
}

}  // namespace

std::vector<NamedVector> edge_vectors(DType type, std::int64_t dim) {
  const float max = internal::largest_finite(type);
  const float tiny = smallest_denormal(type);
  const float normal = smallest_normal(type);
  const float outlier = type == DType::f16 ? 60000.0f : 1e30f;
  Random random(41);
  std::normal_distribution<float> bell(0.0f, 1.0f);
  std::vector<NamedVector> all;
  const auto add = [&](const char* name, auto make) {
    all.push_back(make_vector(name, type, dim, make));
  };
  const auto add_constant = [&](const char* name, float value) {
    add(name, [=](std::int64_t) { return value; });
  };
  const auto add_alternating = [&](const char* name, float value) {
    add(name, [=](std::int64_t at) { return at % 2 == 0 ? value : -value; });
  };
  add_constant("zeros", 0.0f);
  add_alternating("zeros of both signs", 0.0f);
  add_constant("constant", 1.5f);
  add_constant("negative constant", -0.3f);
  add_constant("largest", max);
  add_constant("largest negative", -max);
  add_constant("smallest normal", normal);
  add_constant("smallest denormal", tiny);
  add_constant("negative denormal", -tiny);
  add_constant("constant of 1e-7", 1e-7f);
  add_alternating("alternating", 1.0f);
  add_alternating("alternating largest", max);
  add_alternating("alternating half of the largest", max / 2);
  add_alternating("alternating denormals", tiny);
  add("half the largest, half its negative",
      [=](std::int64_t at) { return at < dim / 2 ? max : -max; });
  add("denormals", [=](std::int64_t at) { return static_cast<float>(at % 7 - 3) * tiny; });
  add("around the smallest normal",
      [=](std::int64_t at) { return static_cast<float>(at % 5 - 2) * normal; });
  add("one denormal among zeros", [=](std::int64_t at) { return at == 3 ? tiny : 0.0f; });
  add("the largest among zeros", [=](std::int64_t at) { return at == dim - 1 ? max : 0.0f; });
  add("the largest among denormals", [=](std::int64_t at) { return at == 5 ? -max : tiny; });
  add("one outlier", [&](std::int64_t at) { return at == 7 ? outlier : bell(random); });
  add("one negative outlier", [&](std::int64_t at) { return at == 0 ? -outlier : bell(random); });
  add("mixed signs", [&](std::int64_t) { return bell(random); });
  add("all negative", [&](std::int64_t) { return -10.0f - std::abs(bell(random)); });
  add("all positive", [&](std::int64_t) { return 1e-3f + std::abs(bell(random)); });
  add("tiny", [&](std::int64_t) { return 1e-6f * bell(random); });
  add("large", [&](std::int64_t) { return max / 16 * std::clamp(bell(random), -16.0f, 16.0f); });
  add("far from zero", [](std::int64_t at) { return 1000.0f + static_cast<float>(at % 3); });
  add("powers of two", [=](std::int64_t at) {
    return std::ldexp(at % 2 == 0 ? normal : -normal, static_cast<int>(at % 28));
  });
  return all;
}

}  // namespace pagekv::testing
