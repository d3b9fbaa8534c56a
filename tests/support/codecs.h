// The codecs that tests run over, what a codec makes of one vector (the naive model of a page), and
// the vectors that break careless codecs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pagekv/codec.h"
#include "pagekv/layout.h"
#include "support/random_data.h"

namespace pagekv::testing {

inline constexpr std::array kAllDTypes = {DType::f32, DType::f16, DType::bf16};
inline constexpr std::array kAllFits = {ScaleFit::rms, ScaleFit::norm, ScaleFit::search};

// Every legal codec for vectors of `dim` elements, its group settled: all kinds, widths, groups,
// fits and types of scales, rotated and not.
std::vector<VectorCodec> all_codecs(std::int64_t dim);

// Kinds and widths are numbered: a test that takes each of [0, kCodecWidths) leaves no kernel out.
inline constexpr int kCodecWidths = 15;
// A random one of that kind and width: groups, fits, types of scales, rotated or not.
VectorCodec pick_codec(Random& random, int width, std::int64_t dim);

// One vector as the reference codec stores it: the bytes of each plane, in storage order.
struct EncodedVector {
  std::array<std::vector<std::byte>, kMaxPlanes> planes;
  bool operator==(const EncodedVector&) const = default;
};

// Nothing where the codec refuses the vector.
std::optional<EncodedVector> encode_alone(const VectorCodec& codec, std::vector<float> values);
std::vector<float> decode_alone(const VectorCodec& codec, const EncodedVector& stored,
                                std::int64_t dim);
// There and back. REQUIRES: a vector that the codec takes.
std::vector<float> through_codec(const VectorCodec& codec, const std::vector<float>& values);

struct NamedVector {
  std::string name;
  std::vector<float> elements;
};

// Finite vectors at the edges of `type`, their elements exact in it: zeros, constants, the largest
// values, denormals, outliers, signs.
std::vector<NamedVector> edge_vectors(DType type, std::int64_t dim);

}  // namespace pagekv::testing
