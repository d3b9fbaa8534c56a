#include "codec/codebook.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "codec/codebook_tables.h"
#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

namespace {

// What a fit needs of one choice of codes c for a group u.
struct Sums {
  float dot = 0.0f;      // of c and u
  float squares = 0.0f;  // of c
};

struct Group {
  const float* u;
  std::int64_t count;
  int bits;
};

float sum_of_squares(const Group& group) {
  std::array<float, kSumLanes> lanes{};
  for (std::int64_t i = 0; i < group.count; ++i) {
    lanes[static_cast<std::size_t>(i % kSumLanes)] += group.u[i] * group.u[i];
  }
  return sum_lanes(lanes);
}

Sums choose_codes(const Group& group, float inverse_scale, std::uint8_t* codes) {
  const std::span<const float> table = centroids(group.bits);
  const std::span<const float> bounds = boundaries(group.bits);
  std::array<float, kSumLanes> dot{};
  std::array<float, kSumLanes> squares{};
  for (std::int64_t i = 0; i < group.count; ++i) {
    const float scaled = group.u[i] * inverse_scale;
    const auto code = std::lower_bound(bounds.begin(), bounds.end(), scaled) - bounds.begin();
    codes[i] = static_cast<std::uint8_t>(code);
    const float c = table[static_cast<std::size_t>(code)];
    const auto lane = static_cast<std::size_t>(i % kSumLanes);
    dot[lane] += c * group.u[i];
    squares[lane] += c * c;
  }
  return {sum_lanes(dot), sum_lanes(squares)};
}

// Of all candidates the one whose least-squares scale explains most of the group.
float search_scale(const Group& group, float inverse_rms, std::uint8_t* codes) {
  std::array<std::uint8_t, kMaxHeadDim> tried;
  float best_gain = -1.0f;
  float best_scale = 0.0f;
  for (const float inverse : kSearchInverses) {
    const Sums sums = choose_codes(group, inverse_rms * inverse, tried.data());
    const float gain = sums.dot * sums.dot / sums.squares;
    if (!(gain > best_gain)) continue;
    best_gain = gain;
    best_scale = sums.dot / sums.squares;
    std::copy_n(tried.begin(), group.count, codes);
  }
  return best_scale;
}

float fit_scale(const Group& group, ScaleFit fit, std::uint8_t* codes) {
  const float squares = sum_of_squares(group);
  const float rms = std::sqrt(squares / static_cast<float>(group.count));
  const float inverse_rms = 1.0f / rms;
  if (fit == ScaleFit::search) return search_scale(group, inverse_rms, codes);
  const Sums sums = choose_codes(group, inverse_rms, codes);
  return fit == ScaleFit::norm ? std::sqrt(squares / sums.squares) : rms;
}

float power_of_two(int exponent) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
}

}  // namespace

std::span<const float> centroids(int bits) {
  switch (bits) {
    case 1: return kCodebook1;
    case 2: return kCodebook2;
    case 3: return kCodebook3;
    case 4: return kCodebook4;
    case 5: return kCodebook5;
    default: return kCodebook8;
  }
}

std::span<const float> boundaries(int bits) {
  switch (bits) {
    case 1: return kBounds1;
    case 2: return kBounds2;
    case 3: return kBounds3;
    case 4: return kBounds4;
    case 5: return kBounds5;
    default: return kBounds8;
  }
}

float encode_codebook(const float* values, std::int64_t count, int bits, ScaleFit fit,
                      std::uint8_t* codes) {
  float largest = 0.0f;
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(values[i]));
  if (largest == 0.0f) {
    const std::array<float, kMaxHeadDim> zeros{};
    choose_codes({zeros.data(), count, bits}, 1.0f, codes);
    return 0.0f;
  }
  // Exponents at both ends are left to the group, so that the factor and its inverse are normal.
  const int exponent = std::clamp(std::ilogb(largest), -126, 126);
  const float shrink = power_of_two(-exponent);
  std::array<float, kMaxHeadDim> u;
  for (std::int64_t i = 0; i < count; ++i) u[static_cast<std::size_t>(i)] = values[i] * shrink;
  const float scale = fit_scale({u.data(), count, bits}, fit, codes) * power_of_two(exponent);
  return std::min(scale, std::numeric_limits<float>::max());
}

}  // namespace pagekv::inline v0::internal
