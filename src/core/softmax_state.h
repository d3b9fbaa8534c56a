// The algebra of attention over parts of a row: a state and a left fold.
//
// A state stands for a set of tokens: the largest logit `max`, the sum of exp(logit - max) `sum`,
// and the sum of exp(logit - max) * value `out` (value_dim floats, not normalised). The empty set
// has max -inf, sum 0 and out 0. Every reader on every device folds the same states in the same
// order. Source of the identity: Milakov & Gimelshein 2018, "Online normalizer calculation for
// softmax".
#pragma once

#include <cmath>
#include <limits>

namespace pagekv::inline v0::internal {

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
template <typename Exp>
inline FoldFactors fold_max(SoftmaxState& left, float right_max, Exp exp) {
  if (right_max == -std::numeric_limits<float>::infinity()) return {1.0f, 0.0f};
  if (left.max == -std::numeric_limits<float>::infinity()) {
    left.max = right_max;
    return {0.0f, 1.0f};
  }
  if (right_max > left.max) {
    const float left_factor = exp(left.max - right_max);
    left.max = right_max;
    return {left_factor, 1.0f};
  }
  return {1.0f, exp(right_max - left.max)};
}

}  // namespace pagekv::inline v0::internal
