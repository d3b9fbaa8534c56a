// Byte-pair merging: the greedy algorithm that all our tokenizers share.
//
// Of all neighbouring pairs that may be merged, the one with the lowest priority number is merged
// first, the leftmost among equals, until none is left. A heap over a linked list of symbols makes
// that O(n log n), so a text of 100 kB without a space is no problem.
#pragma once

#include <cstddef>
#include <optional>
#include <queue>
#include <vector>

#include "engine/tokenizer.h"

namespace pagekv::inline v0::engine {

struct Merge {
  double priority = 0;  // lower is merged earlier
  Token result = kNoToken;
};

// Merges `tokens` in place. `find(left, right)` returns a std::optional<Merge>.
// REQUIRES: a result differs from both of its parts.
template <typename Find>
void merge_tokens(std::vector<Token>& tokens, const Find& find) {
  struct Candidate {
    double priority;
    std::size_t left, right;  // indices of the two symbols
    Token left_token, right_token, result;
    bool operator<(const Candidate& other) const {  // "is taken later than"
      return priority != other.priority ? priority > other.priority : left > other.left;
    }
  };
  const std::size_t count = tokens.size();
  if (count < 2) return;
  // A symbol lives at the index of its first part; absorbed ones hold kNoToken.
  std::vector<std::size_t> next(count);
  std::vector<std::size_t> previous(count);
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](std::size_t left, std::size_t right) {
    const std::optional<Merge> merge = find(tokens[left], tokens[right]);
    if (!merge) return;
    candidates.push({merge->priority, left, right, tokens[left], tokens[right], merge->result});
  };
  for (std::size_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;  // of symbol 0: never used
    if (i + 1 < count) consider(i, i + 1);
  }
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    // Parts that took part in another merge meanwhile have other tokens now.
    if (tokens[best.left] != best.left_token || tokens[best.right] != best.right_token) continue;
    tokens[best.left] = best.result;
    tokens[best.right] = kNoToken;
    const std::size_t after = next[best.right];
    next[best.left] = after;
    if (after < count) {
      previous[after] = best.left;
      consider(best.left, after);
    }
    if (best.left > 0) consider(previous[best.left], best.left);
  }
  std::erase(tokens, kNoToken);
}

}  // namespace pagekv::inline v0::engine
