// PromptLookup: guesses a request's next tokens from the request itself.
//
// Where the last few tokens have occurred before, what followed them then is the guess: text that
// quotes its prompt, code, lists and loops. It costs one look over the tokens and no second model.
// A guess can be wrong, so whoever uses it checks it.
#pragma once

#include <cstddef>
#include <span>

#include "engine/model.h"

namespace pagekv::inline v0::engine {

struct PromptLookup {
  // Of the tokens before the guess, so many must have occurred in the same order; the more, the
  // better: the longest match up to the maximum is followed, the latest among equals.
  int ngram_min = 2;
  int ngram_max = 4;

  // Writes guesses into `drafts` from its beginning and returns how many: all, or none where
  // nothing matches. A match that reaches the end of `tokens` goes on in the guess itself, so that
  // a loop is followed for as long as there is room. REQUIRES: 1 <= ngram_min.
  std::size_t operator()(std::span<const Token> tokens, std::span<Token> drafts) const;
};

}  // namespace pagekv::inline v0::engine
