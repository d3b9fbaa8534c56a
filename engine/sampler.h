// Sampler: chooses the next token from a row of logits.
//
// The steps, in this order: temperature, top-k, top-p. Greedy where the temperature is 0. Ties are
// broken by the lower token id, everywhere. Results are the same on every machine: the arithmetic
// is double precision in a fixed order with an exponential of our own, and draw n of a seed is a
// fixed function of (seed, n), a SplitMix64 stream. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/tokenizer.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

struct SamplerOptions {
  double temperature = 0;  // logits are divided by it; 0: take the largest logit
  int top_k = 0;           // keep so many of the most probable; 0: all
  double top_p = 1;        // keep the fewest most probable that together reach this probability
  std::uint64_t seed = 0;
  std::uint64_t draws = 0;  // that were made before: what goes on from there draws the next ones
};

// ln of the softmax of `logits` at a token. REQUIRES: logits of which none is NaN or +inf, and that
// of the token is finite.
double log_probability(std::span<const float> logits, Token token);

class Sampler {
 public:
  // Errors: invalid_argument (temperature negative or not finite, top_k negative, top_p outside
  // (0, 1]).
  static Result<Sampler> make(const SamplerOptions& options);

  // Draws one token. A logit of -inf is never drawn. Errors: not_finite (number: the first token
  // whose logit is NaN or +inf, or -1 where all are -inf), invalid_argument (no logits).
  Result<Token> sample(std::span<const float> logits);

  // How many random draws were made, those before included. Greedy makes none.
  std::uint64_t draws() const { return draws_; }

 private:
  struct Candidate {
    double weight;  // not normalised
    Token token;
  };

  explicit Sampler(const SamplerOptions& options) : options_(options), draws_(options.draws) {}
  void keep_top_k();
  void keep_top_p();
  double next_uniform();  // in [0, 1)

  SamplerOptions options_;
  std::uint64_t draws_ = 0;
  std::vector<Candidate> candidates_;  // scratch, kept between calls
};

}  // namespace pagekv::inline v0::engine
