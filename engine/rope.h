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

// Immutable; safe on any thread.
class Rope {
 public:
  // REQUIRES: dim even, dim >= 2, base > 0.
  Rope(RopePairs pairs, std::int64_t dim, double base);

  // Floats of turns(): a cosine and a sine for each pair.
  std::int64_t turn_floats() const { return 2 * static_cast<std::int64_t>(frequencies_.size()); }
  // The turns of one position, the same in all layers. Angles are computed in double: in f32 they
  // would lose a bit with every doubling of the position.
  void turns(std::int64_t position, float* turns) const;

  // Turns the first `dim` elements of `heads` heads, `head_stride` elements apart.
  void rotate(float* row, std::int64_t heads, std::int64_t head_stride, const float* turns) const;

 private:
  RopePairs pairs_;
  std::vector<double> frequencies_;  // [pair]
};

}  // namespace pagekv::inline v0::engine
