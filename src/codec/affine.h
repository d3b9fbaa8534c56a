// Affine quantization of one group: codes, a scale and a bias. The reference for every device.
//
// The definition is that of MLX's CPU quantizer (mlx/backend/cpu/quantized.cpp): true minimum and
// maximum, ties to even, the edge of larger magnitude on a code exactly. All arithmetic is f32.
//
// With n = 2^bits - 1 levels above the first, an element x of a group with the edges lo and hi,
// that is stored with scale S = round(s) and bias B = round(b), is read as x' with
//
//   |x - x'| <= max(|s| / 2, hi - lo - n |s|) + n |S - s| + |B - b| + 2^-22 (|b| + n |s|)
//
// The second of the maximum is what the far edge loses where 0 takes a level: at most
// |s| (hi - lo) / (2 max(|lo|, |hi|)), so |s| at worst ([-1, 1] in 2 bits has the levels 1, 0.5, 0
// and -0.5). |B - b| is 0 for elements of the stored type.
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
