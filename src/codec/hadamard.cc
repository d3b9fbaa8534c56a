#include "codec/hadamard.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <mutex>

#include "codec/limits.h"

namespace pagekv::inline v0::internal {

namespace {

struct Words {
  std::uint32_t first;
  std::uint32_t second;
};

Words threefry(Words key, Words counter) {
  constexpr std::array<std::array<int, 4>, 2> kRotations = {{{13, 15, 26, 6}, {17, 29, 16, 24}}};
  const std::array<std::uint32_t, 3> keys = {key.first, key.second,
                                             key.first ^ key.second ^ 0x1bd11bdau};
  std::uint32_t x = counter.first + keys[0];
  std::uint32_t y = counter.second + keys[1];
  for (std::uint32_t round = 0; round < 5; ++round) {
    for (const int turn : kRotations[round % 2]) {
      x += y;
      y = std::rotl(y, turn) ^ x;
    }
    x += keys[(round + 1) % 3];
    y += keys[(round + 2) % 3] + round + 1;
  }
  return {x, y};
}

std::unique_ptr<const Rotation> make_rotation(std::int64_t dim) {
  auto made = std::make_unique<Rotation>();
  made->dim = dim;
  made->block = dim & -dim;
  made->norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(made->block)));
  const std::int64_t half = dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const Words words =
        threefry({0, 42}, {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i + half)});
    made->signs[static_cast<std::size_t>(i)] = words.first >> 31 != 0 ? -1.0f : 1.0f;
    made->signs[static_cast<std::size_t>(i + half)] = words.second >> 31 != 0 ? -1.0f : 1.0f;
  }
  return made;
}

void butterflies(const Rotation& rotation, float* values) {
  for (std::int64_t stride = 1; stride < rotation.block; stride *= 2) {
    for (std::int64_t start = 0; start < rotation.dim; start += 2 * stride) {
      for (std::int64_t i = start; i < start + stride; ++i) {
        const float a = values[i];
        const float b = values[i + stride];
        values[i] = a + b;
        values[i + stride] = a - b;
      }
    }
  }
}

// The transform without the signs.
void transform(const Rotation& rotation, float* values) {
  const float* end = values + rotation.dim;
  const bool large = std::any_of(values, values + rotation.dim,
                                 [](float value) { return std::fabs(value) > kLarge; });
  if (large) std::for_each(values, values + rotation.dim, [](float& value) { value *= kShrink; });
  butterflies(rotation, values);
  for (float* value = values; value != end; ++value) *value *= rotation.norm;
  if (!large) return;
  constexpr float kMax = std::numeric_limits<float>::max();
  for (float* value = values; value != end; ++value) {
    *value = std::clamp(*value, -kMax * kShrink, kMax * kShrink) / kShrink;
  }
}

void apply_signs(const Rotation& rotation, float* values) {
  for (std::int64_t i = 0; i < rotation.dim; ++i) {
    values[i] *= rotation.signs[static_cast<std::size_t>(i)];
  }
}

}  // namespace

const Rotation& rotation(std::int64_t dim) {
  static std::array<std::once_flag, kMaxHeadDim / 8 + 1> once;
  static std::array<std::unique_ptr<const Rotation>, kMaxHeadDim / 8 + 1> made;
  const auto at = static_cast<std::size_t>(dim / 8);
  std::call_once(once[at], [&] { made[at] = make_rotation(dim); });
  return *made[at];
}

void rotate(const Rotation& rotation, float* values) {
  apply_signs(rotation, values);
  transform(rotation, values);
}

void unrotate(const Rotation& rotation, float* values) {
  transform(rotation, values);
  apply_signs(rotation, values);
}

}  // namespace pagekv::inline v0::internal
