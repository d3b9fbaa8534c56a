#include "engine/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/random.h"

namespace pagekv::inline v0::engine {
namespace {

// e^x for x <= 0, to about 2^-51 relative. libm's differ in the last bit between systems, which
// would now and then choose another token; this one uses only operations that IEEE 754 fixes.
double portable_exp(double x) {
  if (x < -700) return 0;  // below any probability that matters, and above the subnormals
  constexpr double kLog2e = 1.4426950408889634;
  constexpr double kLn2High = 6.93147180369123816490e-01;  // 33 bits: products with k are exact
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  const double k = std::floor(x * kLog2e + 0.5);
  const double r = (x - k * kLn2High) - k * kLn2Low;  // |r| <= ln(2) / 2
  double sum = 1;
  for (int n = 13; n >= 1; --n) sum = 1 + sum * r / n;  // Taylor; the next term is below 2^-57
  return std::bit_cast<double>(std::bit_cast<std::int64_t>(sum) +
                               (static_cast<std::int64_t>(k) << 52));
}

// The token of the largest logit, the lowest among equals. REQUIRES: not empty.
Result<Token> largest(std::span<const float> logits) {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == INFINITY) {
      return fail(ErrorCode::not_finite, "the logit of token {0} is NaN or infinite",
                  {static_cast<std::int64_t>(i)});
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (logits[best] == -INFINITY) {
    return fail(ErrorCode::not_finite, "all logits are -inf", {-1});
  }
  return static_cast<Token>(best);
}

// Most probable first, the lower id among equals.
bool more_probable(double weight_a, Token a, double weight_b, Token b) {
  return weight_a != weight_b ? weight_a > weight_b : a < b;
}

}  // namespace

double log_probability(std::span<const float> logits, Token token) {
  const double peak = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += portable_exp(logit - peak);
  return logits[static_cast<std::size_t>(token)] - peak - std::log(sum);
}

Result<Sampler> Sampler::make(const SamplerOptions& options) {
  if (!(options.temperature >= 0) || !std::isfinite(options.temperature)) {
    return fail(ErrorCode::invalid_argument, "the temperature must be 0 or more, and finite");
  }
  if (options.top_k < 0) {
    return fail(ErrorCode::invalid_argument, "top_k is {0}; 0 (all) or more is legal",
                {options.top_k});
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return fail(ErrorCode::invalid_argument, "top_p must be above 0 and at most 1");
  }
  return Sampler(options);
}

Result<Token> Sampler::sample(std::span<const float> logits) {
  if (logits.empty()) return fail(ErrorCode::invalid_argument, "no logits to choose from");
  const auto best = largest(logits);
  if (!best || options_.temperature == 0) return best;

  const double peak = logits[static_cast<std::size_t>(*best)];
  candidates_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double weight = portable_exp((logits[i] - peak) / options_.temperature);
    if (weight > 0) candidates_.push_back({weight, static_cast<Token>(i)});
  }
  keep_top_k();
  keep_top_p();
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  double target = next_uniform() * total;
  for (const Candidate& candidate : candidates_) {
    target -= candidate.weight;
    if (target < 0) return candidate.token;
  }
  return candidates_.back().token;  // rounding left a little of the target over
}

void Sampler::keep_top_k() {
  const auto keep = static_cast<std::size_t>(options_.top_k);
  if (keep == 0 || keep >= candidates_.size()) return;
  const auto before = [](const Candidate& a, const Candidate& b) {
    return more_probable(a.weight, a.token, b.weight, b.token);
  };
  std::nth_element(candidates_.begin(), candidates_.begin() + options_.top_k, candidates_.end(),
                   before);
  candidates_.resize(keep);
  // The order of ids, so that sums do not depend on how nth_element left them.
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
}

void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  double total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  // A heap, because few of the 10^5 candidates are usually needed.
  const auto after = [](const Candidate& a, const Candidate& b) {
    return more_probable(b.weight, b.token, a.weight, a.token);
  };
  std::make_heap(candidates_.begin(), candidates_.end(), after);
  auto heap_end = candidates_.end();
  double kept = 0;
  while (heap_end != candidates_.begin() && kept < options_.top_p * total) {
    kept += candidates_.front().weight;
    std::pop_heap(candidates_.begin(), heap_end, after);
    --heap_end;  // the popped ones gather at the end, most probable last
  }
  candidates_.erase(candidates_.begin(), heap_end);
  std::reverse(candidates_.begin(), candidates_.end());
}

double Sampler::next_uniform() {
  return random_uniform(options_.seed, ++draws_);
}

}  // namespace pagekv::inline v0::engine
