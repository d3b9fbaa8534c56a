// Rotary position encoding: pairs of a head's elements turned by an angle that grows with the
// position, angle(pair, position) = position * base^(-2 * pair / dim).
#pragma once

#include <cstdint>
#include <vector>

namespace pagekv::inline v0::engine {

// Which elements make a pair. GGUF files of the llama architecture store query and key weights
// permuted for adjacent pairs; most other architectures turn the two halves against each other.
enum class RopePairs : std::uint8_t {
  adjacent = 0,  // elements 2i and 2i + 1
  halves = 1,    // elements i and i + dim / 2
};

// Sines and cosines of all positions, made once. Immutable; safe on any thread.
class RopeTable {
 public:
  RopeTable() = default;
  // REQUIRES: dim even, dim >= 2, positions >= 1, base > 0. Angles are computed in double.
  RopeTable(RopePairs pairs, std::int64_t dim, std::int64_t positions, double base);

  std::int64_t positions() const { return positions_; }
  // Turns the first `dim` elements of `heads` heads, `head_stride` elements apart.
  // REQUIRES: 0 <= position < positions().
  void rotate(float* row, std::int64_t heads, std::int64_t head_stride,
              std::int64_t position) const;

 private:
  RopePairs pairs_ = RopePairs::adjacent;
  std::int64_t half_ = 0;  // pairs of a head
  std::int64_t positions_ = 0;
  std::vector<float> cosines_;  // [position, pair]
  std::vector<float> sines_;    // [position, pair]
};

}  // namespace pagekv::inline v0::engine
