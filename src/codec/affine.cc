#include "codec/affine.h"

#include <algorithm>
#include <cmath>

namespace pagekv::inline v0::internal {

namespace {

constexpr float kSmallestStep = 1e-7f;

// NaN is code 0: in a large constant group the steps to zero overflow, and all codes are 0 / 0.
std::uint8_t clamp_code(float code, float last) {
  return static_cast<std::uint8_t>(std::min(std::max(0.0f, code), last));
}

}  // namespace

AffineGroup encode_affine(const float* values, std::int64_t count, int bits, std::uint8_t* codes) {
  const auto [lowest, highest] = std::minmax_element(values, values + count);
  const float low = *lowest;
  const float high = *highest;
  const float last = static_cast<float>((1 << bits) - 1);
  const bool fits = std::isfinite(high - low);
  const float step = std::max(fits ? (high - low) / last : high / last - low / last, kSmallestStep);
  const bool low_edge = std::fabs(low) > std::fabs(high);
  const float edge = low_edge ? low : high;
  AffineGroup group{.scale = low_edge ? step : -step, .bias = 0.0f};
  const float steps_to_zero = std::nearbyint(edge / group.scale);
  if (steps_to_zero != 0.0f) group = {.scale = edge / steps_to_zero, .bias = edge};
  for (std::int64_t i = 0; i < count; ++i) {
    const float steps = fits ? (values[i] - group.bias) / group.scale
                             : values[i] / group.scale - group.bias / group.scale;
    codes[i] = clamp_code(std::nearbyint(steps), last);
  }
  return group;
}

}  // namespace pagekv::inline v0::internal
