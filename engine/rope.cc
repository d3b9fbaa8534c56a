#include "engine/rope.h"

#include <cmath>

namespace pagekv::inline v0::engine {

RopeTable::RopeTable(RopePairs pairs, std::int64_t dim, std::int64_t positions, double base)
    : pairs_(pairs),
      half_(dim / 2),
      positions_(positions),
      cosines_(static_cast<std::size_t>(positions * (dim / 2))),
      sines_(cosines_.size()) {
  for (std::int64_t pair = 0; pair < half_; ++pair) {
    const double frequency =
        std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(dim));
    for (std::int64_t position = 0; position < positions; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      const auto at = static_cast<std::size_t>(position * half_ + pair);
      cosines_[at] = static_cast<float>(std::cos(angle));
      sines_[at] = static_cast<float>(std::sin(angle));
    }
  }
}

void RopeTable::rotate(float* row, std::int64_t heads, std::int64_t head_stride,
                       std::int64_t position) const {
  const float* cosines = cosines_.data() + position * half_;
  const float* sines = sines_.data() + position * half_;
  const std::int64_t step = pairs_ == RopePairs::adjacent ? 2 : 1;
  const std::int64_t partner = pairs_ == RopePairs::adjacent ? 1 : half_;
  for (std::int64_t head = 0; head < heads; ++head) {
    float* elements = row + head * head_stride;
    for (std::int64_t pair = 0; pair < half_; ++pair) {
      float& first = elements[pair * step];
      float& second = elements[pair * step + partner];
      const float a = first;
      const float b = second;
      first = a * cosines[pair] - b * sines[pair];
      second = a * sines[pair] + b * cosines[pair];
    }
  }
}

}  // namespace pagekv::inline v0::engine
