// CodeTable: a codebook's centroids as integers, so that its codes are multiplied as affine ones
// are (cpu/code_weights.h). A centroid is
//
//   first + step * (high + low / 256)
//
// with two unsigned bytes, looked up by the code: 65,536 levels from the first centroid to the
// last. What that rounds, and the product of two low parts that is left out, is about 2^-16 of the
// span of centroids, as what is rounded of the integers beside them is of the largest of these.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pagekv::inline v0::internal {

// As many as a shuffle of bytes looks up.
inline constexpr int kMostLookedUpBits = 4;

struct CodeTable {
  float first = 0.0f;
  float step = 1.0f;
  // By code, again and again: of an index only the low bits count.
  alignas(64) std::array<std::uint8_t, 64> high{};
  alignas(64) std::array<std::uint8_t, 64> low{};
};

// That of a codec (cpu/kernel_table.h); null where its codes are not looked up. Lives for ever.
const CodeTable* code_table(std::size_t codec);

}  // namespace pagekv::inline v0::internal
