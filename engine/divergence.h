// What a change costs a language model: its logits beside those of the unchanged model.
//
// compare_rows() scores rows of logits token by token, summarize() makes figures of many scores.
// The divergence of a row is KL(base || changed) = sum p (ln p - ln q) over the whole vocabulary,
// from f32 logits that are not rounded further: exponentials and sums are in double, so that its
// error is some 1e-13 times the largest logit, and logits equal bit for bit give 0. Pure functions;
// a row's score depends on that row alone, and its last bits on the SIMD target.
#pragma once

#include <cstdint>
#include <span>

#include "engine/tokenizer.h"
#include "pagekv/error.h"
#include "pagekv/executor.h"

namespace pagekv::inline v0::engine {

// Of one row, and of the token that followed it in the text.
struct TokenScore {
  double nll = 0;        // -ln q(token)
  double nll_base = 0;   // -ln p(token)
  double kl = 0;         // in nats; not negative
  double dp = 0;         // q(token) - p(token)
  bool same_top = true;  // both have the same likeliest token; of equals the lowest is
};

// base, changed: [next.size(), vocabulary]; they may be the same. `next`: the tokens that followed.
// Errors: not_finite (numbers: row and token of the first logit that is none), invalid_argument
// (sizes that do not fit, a token outside the vocabulary).
Status compare_rows(Executor& executor, std::span<const float> base, std::span<const float> changed,
                    std::span<const Token> next, std::span<TokenScore> scores);

// A mean and its standard error, or what follows from one.
struct Estimate {
  double value = 0;
  double error = 0;
};

struct Divergence {
  std::int64_t scored = 0;
  Estimate ppl;       // exp(mean nll)
  Estimate ln_ratio;  // ln(ppl / ppl of the base); the error is of paired differences
  Estimate kl;        // mean
  double median_kl = 0;
  double p99_kl = 0;
  double p999_kl = 0;
  double max_kl = 0;
  Estimate dp;        // mean
  Estimate rms_dp;    // root of the mean square
  Estimate same_top;  // share, 0 to 1
};
// All zeros where there are no scores; errors are 0 where there is one.
Divergence summarize(std::span<const TokenScore> scores);

// Linear interpolation between order statistics: of n values, the one at place q (n - 1), counted
// from 0. REQUIRES: ascending values, at least one; 0 <= q <= 1.
double quantile(std::span<const double> sorted, double q);

}  // namespace pagekv::inline v0::engine
