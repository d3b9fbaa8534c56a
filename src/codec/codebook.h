// Codebook quantization of one group: codes into a table of the unit normal, and one scale. The
// reference for every device.
//
// A group is first brought to magnitudes around 1 by a power of two, so that the codes of x and of
// 2^n x are equal. Sums over the group are taken in kSumLanes partial sums (element i into sum
// i % kSumLanes, ascending), then by sum_lanes(): the same bits on every device. Source of the
// tables and of the scale: TurboQuant (arXiv 2504.19874); of the fits, docs/codecs.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "pagekv/codec.h"

namespace pagekv::inline v0::internal {

inline constexpr std::int64_t kSumLanes = 8;

constexpr float sum_lanes(const std::array<float, kSumLanes>& s) {
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// Multiples of the root mean square that ScaleFit::search tries, as their inverses.
inline constexpr std::array<float, 8> kSearchInverses = {
    1 / 0.72f, 1 / 0.80f, 1 / 0.88f, 1 / 0.96f, 1 / 1.04f, 1 / 1.12f, 1 / 1.20f, 1 / 1.28f};

// 2^bits centroids, ascending, and the 2^bits - 1 boundaries between them. A code is the number of
// boundaries strictly below the element. REQUIRES: bits of 1, 2, 3, 4, 5, 8.
std::span<const float> centroids(int bits);
std::span<const float> boundaries(int bits);

// Codes of `count` finite elements; returns the scale before it is rounded to the stored type. A
// group of zeros has scale 0.
float encode_codebook(const float* values, std::int64_t count, int bits, ScaleFit fit,
                      std::uint8_t* codes);

}  // namespace pagekv::inline v0::internal
