#include "cpu/code_table.h"

#include <cmath>
#include <span>

#include "codec/codebook.h"
#include "cpu/kernel_table.h"

namespace pagekv::inline v0::internal {

namespace {

CodeTable make_table(int bits) {
  constexpr double kLevels = 65535;
  const std::span<const float> centroid = centroids(bits);
  const double first = centroid.front();
  const double level = (centroid.back() - first) / kLevels;
  CodeTable table;
  table.first = centroid.front();
  table.step = static_cast<float>(256 * level);
  for (std::size_t code = 0; code < table.high.size(); ++code) {
    const auto at = std::lround((centroid[code % centroid.size()] - first) / level);
    table.high[code] = static_cast<std::uint8_t>(at / 256);
    table.low[code] = static_cast<std::uint8_t>(at % 256);
  }
  return table;
}

}  // namespace

const CodeTable* code_table(std::size_t codec) {
  static const std::array<CodeTable, kMostLookedUpBits> tables = {make_table(1), make_table(2),
                                                                  make_table(3), make_table(4)};
  if (codec < kFirstCodebook) return nullptr;
  const int bits = kCodebookWidths[codec - kFirstCodebook];
  return bits > kMostLookedUpBits ? nullptr : &tables[static_cast<std::size_t>(bits - 1)];
}

}  // namespace pagekv::inline v0::internal
