// The signed Hadamard rotation of a head's vector. The reference for every device.
//
// rotate(x) = H (x * s): s is the dim's vector of signs, H the orthonormal Walsh-Hadamard transform
// in Sylvester order, taken in blocks of the largest power of two that divides the dim (80 is 5
// blocks of 16). unrotate() is its inverse. Signs are the top bits of Threefry-2x32-20 under the
// key (0, 42), as MLX's random bits are (Salmon et al. 2011, "Parallel random numbers").
#pragma once

#include <array>
#include <cstdint>

#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

struct Rotation {
  std::int64_t dim = 0;
  std::int64_t block = 0;                  // a power of two that divides dim
  float norm = 0.0f;                       // f32(1 / sqrt(block))
  std::array<float, kMaxHeadDim> signs{};  // +1 or -1
};

// Made once per dim and kept for ever. REQUIRES: dim a multiple of 8, at most kMaxHeadDim.
const Rotation& rotation(std::int64_t dim);

// In place, all f32: butterflies (a + b, a - b) with strides 1, 2, 4, .., block / 2, then one
// product with norm. Elements beyond 2^96 are scaled by 2^-32 on the way, so that sums stay finite;
// what then exceeds the largest finite f32 is set to it.
void rotate(const Rotation& rotation, float* values);
void unrotate(const Rotation& rotation, float* values);

}  // namespace pagekv::inline v0::internal
