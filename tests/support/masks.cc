#include "support/masks.h"

#include <algorithm>

namespace pagekv::testing {

std::vector<BidirectionalSpan> pick_spans(Random& random, std::int64_t length) {
  const std::int64_t most = pick(random, 0, 1) == 0 ? 12 : 200;
  std::vector<BidirectionalSpan> spans;
  for (std::int64_t at = pick(random, 0, most); at < length; at += pick(random, 0, most)) {
    const std::int64_t end = std::min(length, at + pick(random, 1, most));
    spans.push_back({at, end, static_cast<int>(pick(random, BidirectionalSpan::kAlone, 1))});
    at = end;
  }
  return spans;
}

std::vector<std::uint8_t> pick_matrix(Random& random, std::int64_t rows, std::int64_t length) {
  std::vector<std::uint8_t> matrix;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t kind = pick(random, 0, 5);
    const std::int64_t begin = pick(random, 0, length);
    const std::int64_t end = pick(random, begin, length);
    for (std::int64_t token = 0; token < length; ++token) {
      bool visible = kind == 1;  // all, and of kind 0 nothing
      if (kind == 2) visible = pick(random, 0, 1) == 0;
      if (kind == 3) visible = pick(random, 0, 99) == 0;
      if (kind == 4) visible = token >= begin && token < end;
      if (kind == 5) visible = token < begin || token >= end;
      matrix.push_back(visible ? static_cast<std::uint8_t>(pick(random, 1, 255)) : 0);
    }
  }
  return matrix;
}

std::vector<std::uint8_t> matrix_of(const ReferenceCase& reference) {
  std::vector<std::uint8_t> matrix;
  for (std::int64_t row = 0; row < reference.rows; ++row) {
    for (std::int64_t token = 0; token < reference.length; ++token) {
      matrix.push_back(is_visible(reference, row, token) ? 1 : 0);
    }
  }
  return matrix;
}

}  // namespace pagekv::testing
