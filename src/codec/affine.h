// Affine quantization of one group: codes, a scale and a bias. The reference for every device.
//
// The definition is that of MLX's CPU quantizer (mlx/backend/cpu/quantized.cpp): true minimum and
// maximum, ties to even, the edge of larger magnitude on a code exactly. All arithmetic is f32.
#pragma once

#include <cstdint>

namespace pagekv::inline v0::internal {

struct AffineGroup {
  float scale = 0.0f;  // before rounding to the stored type
  float bias = 0.0f;
};

// Codes of `count` finite elements. Where hi - lo overflows, the step is hi / n - lo / n.
AffineGroup encode_affine(const float* values, std::int64_t count, int bits, std::uint8_t* codes);

}  // namespace pagekv::inline v0::internal
