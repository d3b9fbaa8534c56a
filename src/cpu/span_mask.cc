#include "cpu/span_mask.h"

#include <algorithm>
#include <bit>

#include "core/plan_mask.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t kWordTokens = 64;

TokenRange range_of(const SpanBits& bits) {
  TokenRange range;
  for (std::size_t word = 0; word < bits.size(); ++word) {
    if (bits[word] == 0) continue;
    const std::int64_t start = static_cast<std::int64_t>(word) * kWordTokens;
    if (range.end == 0) range.begin = start + std::countr_zero(bits[word]);
    range.end = start + kWordTokens - std::countl_zero(bits[word]);
  }
  return range;
}

std::int64_t tokens_of(const SpanBits& bits) {
  std::int64_t tokens = 0;
  for (const std::uint64_t word : bits) tokens += std::popcount(word);
  return tokens;
}

}  // namespace

bool SpanMask::enter(std::int64_t start) {
  bool any = false;
  for (std::int64_t row = 0; row < rows_; ++row) {
    const auto at = static_cast<std::size_t>(row);
    for (std::size_t word = 0; word < bits_[at].size(); ++word) {
      bits_[at][word] = visible_word(plan_, sequence_, first_row_ + row,
                                     start + static_cast<std::int64_t>(word) * kWordTokens);
    }
    ranges_[at] = range_of(bits_[at]);
    broken_[at] = tokens_of(bits_[at]) < ranges_[at].end - ranges_[at].begin;
    any = any || ranges_[at].end > 0;
  }
  return any;
}

TokenRange SpanMask::range(std::int64_t first, std::int64_t last) const {
  TokenRange joint{kSpanTokens, 0};
  for (std::int64_t row = first; row <= last; ++row) {
    const TokenRange& one = ranges_[static_cast<std::size_t>(row)];
    if (one.begin >= one.end) continue;
    joint = {std::min(joint.begin, one.begin), std::max(joint.end, one.end)};
  }
  return joint;
}

}  // namespace pagekv::inline v0::internal
