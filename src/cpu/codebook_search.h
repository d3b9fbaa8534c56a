// Constant tables by which kernels find codes of a codebook: made from its boundaries at compile
// time.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "codec/codebook_tables.h"

namespace pagekv::inline v0::internal {

template <int kBits>
constexpr const auto& codebook_centroids() {
  if constexpr (kBits == 1) return kCodebook1;
  if constexpr (kBits == 2) return kCodebook2;
  if constexpr (kBits == 3) return kCodebook3;
  if constexpr (kBits == 4) return kCodebook4;
  if constexpr (kBits == 5) return kCodebook5;
  if constexpr (kBits == 8) return kCodebook8;
}
template <int kBits>
constexpr const auto& codebook_bounds() {
  if constexpr (kBits == 1) return kBounds1;
  if constexpr (kBits == 2) return kBounds2;
  if constexpr (kBits == 3) return kBounds3;
  if constexpr (kBits == 4) return kBounds4;
  if constexpr (kBits == 5) return kBounds5;
  if constexpr (kBits == 8) return kBounds8;
}
template <int kBits>
inline constexpr const auto& kCentroids = codebook_centroids<kBits>();
template <int kBits>
inline constexpr const auto& kBounds = codebook_bounds<kBits>();

// Binary search for the first kSteps bits of a code, in lanes of a table for each step: what an
// element is compared with whose bits so far, and zeros, are the lane's index. The first step has
// the same boundary in all lanes.
template <int kBits, int kSteps>
constexpr auto make_search_lanes() {
  constexpr std::size_t kCount = std::size_t{1} << kSteps;
  std::array<std::array<float, kCount>, kSteps> lanes{};
  for (int step = 0; step < kSteps; ++step) {
    const int rest = kSteps - step;
    for (std::size_t lane = 0; lane < kCount; ++lane) {
      const std::size_t middle = (lane >> rest << rest) + (std::size_t{1} << (rest - 1));
      lanes[static_cast<std::size_t>(step)][lane] =
          kBounds<kBits>[(middle << (kBits - kSteps)) - 1];
    }
  }
  return lanes;
}
template <int kBits, int kSteps>
inline constexpr auto kSearchLanes = make_search_lanes<kBits, kSteps>();

// The step after: by the code's first kSteps bits.
template <int kBits, int kSteps>
constexpr auto make_next_lanes() {
  std::array<float, std::size_t{1} << kSteps> lanes{};
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    lanes[lane] = kBounds<kBits>[((2 * lane + 1) << (kBits - kSteps - 1)) - 1];
  }
  return lanes;
}
// In a class, which is hidden: a variable of a type of namespace std is exported.
template <int kBits, int kSteps>
struct NextLanes {
  static constexpr auto kValue = make_next_lanes<kBits, kSteps>();
};

// The line cut into cells so narrow that none has two boundaries: an element's code is the number
// of boundaries in cells below its own, and one more where it is above the next boundary. This
// holds whatever a cell's exact edges are, since cell() never falls from one element to a larger.
inline constexpr float kCellEdge = 5.0f;
inline constexpr float kCellsPerUnit = 64.0f;
inline constexpr std::size_t kCells = static_cast<std::size_t>(2 * kCellEdge * kCellsPerUnit) + 1;

constexpr std::size_t cell(float element) {
  const float within = std::min(std::max(element, -kCellEdge), kCellEdge);
  return static_cast<std::size_t>((within + kCellEdge) * kCellsPerUnit);
}

template <int kBits>
constexpr std::array<std::int32_t, kCells> count_below_cells() {
  std::array<std::int32_t, kCells> below{};
  std::size_t next = 0;
  for (std::size_t i = 0; i < kCells; ++i) {
    while (next < kBounds<kBits>.size() && cell(kBounds<kBits>[next]) < i) ++next;
    below[i] = static_cast<std::int32_t>(next);
  }
  return below;
}
template <int kBits>
constexpr std::array<float, std::size_t{1} << kBits> next_bounds() {
  std::array<float, std::size_t{1} << kBits> next{};
  std::copy(kBounds<kBits>.begin(), kBounds<kBits>.end(), next.begin());
  next.back() = std::numeric_limits<float>::infinity();
  return next;
}
template <int kBits>
constexpr bool cells_have_one_bound() {
  for (std::size_t i = 1; i < kBounds<kBits>.size(); ++i) {
    if (cell(kBounds<kBits>[i - 1]) == cell(kBounds<kBits>[i])) return false;
  }
  return true;
}

template <int kBits>
struct CodeCells {
  static_assert(cells_have_one_bound<kBits>());
  static constexpr auto kBelow = count_below_cells<kBits>();  // by cell
  static constexpr auto kNextBound = next_bounds<kBits>();    // by code
};

}  // namespace pagekv::inline v0::internal
