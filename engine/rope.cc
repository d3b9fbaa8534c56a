#include "engine/rope.h"

#include <cmath>

namespace pagekv::inline v0::engine {

Rope::Rope(RopePairs pairs, std::int64_t dim, double base) : pairs_(pairs) {
  for (std::int64_t pair = 0; pair < dim / 2; ++pair) {
    frequencies_.push_back(
        std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(dim)));
  }
}

void Rope::turns(std::int64_t position, float* turns) const {
  for (const double frequency : frequencies_) {
    const double angle = static_cast<double>(position) * frequency;
    *turns++ = static_cast<float>(std::cos(angle));
    *turns++ = static_cast<float>(std::sin(angle));
  }
}

void Rope::rotate(float* row, std::int64_t heads, std::int64_t head_stride,
                  const float* turns) const {
  const auto half = static_cast<std::int64_t>(frequencies_.size());
  const std::int64_t step = pairs_ == RopePairs::adjacent ? 2 : 1;
  const std::int64_t partner = pairs_ == RopePairs::adjacent ? 1 : half;
  for (std::int64_t head = 0; head < heads; ++head) {
    float* elements = row + head * head_stride;
    for (std::int64_t pair = 0; pair < half; ++pair) {
      const float cosine = turns[2 * pair];
      const float sine = turns[2 * pair + 1];
      float& first = elements[pair * step];
      float& second = elements[pair * step + partner];
      const float a = first;
      const float b = second;
      first = a * cosine - b * sine;
      second = a * sine + b * cosine;
    }
  }
}

}  // namespace pagekv::inline v0::engine
