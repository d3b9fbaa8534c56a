// The algebra of attention over parts of a row: a state and a left fold.
//
// Logits are in base 2 here, log2(e) times as large: 2^x is cheaper than e^x. A state stands for a
// set of tokens: the largest logit `max`, the sum of 2^(logit - max) `sum`, and the sum of
// 2^(logit - max) * value `out` (value_dim floats, not normalised). The empty set
// has max -inf, sum 0 and out 0. Every reader on every device folds the same states in the same
// order. Source of the identity: Milakov & Gimelshein 2018, "Online normalizer calculation for
// softmax".
#pragma once

#include <cmath>
#include <limits>

namespace pagekv::inline v0::internal {

inline constexpr float kLog2E = 1.44269504f;
inline constexpr float kLn2 = 0.693147181f;

struct SoftmaxState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
};

// What both sides' `sum` and `out` must be multiplied by before they are added.
struct FoldFactors {
  float left = 1.0f;
  float right = 1.0f;
};

// fold(left, right): returns the factors and leaves the joint max in `left.max`. Folding an empty
// right side changes nothing, folding into an empty left side takes the right side as it is.
template <typename Exp2>
inline FoldFactors fold_max(SoftmaxState& left, float right_max, Exp2 exp2) {
  if (right_max == -std::numeric_limits<float>::infinity()) return {1.0f, 0.0f};
  if (left.max == -std::numeric_limits<float>::infinity()) {
    left.max = right_max;
    return {0.0f, 1.0f};
  }
  if (right_max > left.max) {
    const float left_factor = exp2(left.max - right_max);
    left.max = right_max;
    return {left_factor, 1.0f};
  }
  return {1.0f, exp2(right_max - left.max)};
}

}  // namespace pagekv::inline v0::internal
