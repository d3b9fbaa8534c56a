// One head's vector in a codec's planes, and its way there and back. The reference for every
// device: plain C++, one vector at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagekv/codec.h"

namespace pagekv::inline v0::internal {

// Where the planes of one vector lie, each contiguous; null where the codec has no such plane.
struct StoredVector {
  std::byte* codes = nullptr;
  std::byte* scales = nullptr;
  std::byte* biases = nullptr;
};

struct ConstStoredVector {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;
};

// Writes `dim` f32 elements, which are spoiled. False, and nothing written, where a dense vector of
// the codec's type would be refused: an element that is not finite or rounds to infinity. Whatever
// the rotation or a fit makes larger than that is set to the type's largest finite value.
// REQUIRES: codec.resolve(dim) == codec.
bool encode_vector(const VectorCodec& codec, float* values, std::int64_t dim,
                   const StoredVector& to);

// The stored elements as the reader's own: rotation undone. An element is code * scale + bias with
// both roundings to f32, or table[code] * scale; where a product would overflow it is computed
// 2^-32 as large, and what then exceeds the largest finite f32 is set to it.
void decode_vector(const VectorCodec& codec, const ConstStoredVector& from, std::int64_t dim,
                   float* values);

}  // namespace pagekv::inline v0::internal
