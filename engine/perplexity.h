// Perplexity of one text with several caches, each beside the first of them.
//
// The protocol is that of llama.cpp's perplexity tool, so that figures can be laid side by side:
// the text is cut into chunks of `context_tokens` tokens and what is left over is dropped; every
// chunk is a sequence of its own; of its positions j those with context / 2 <= j < context - 1 (or
// from another first one on) are scored by how well they predict token j + 1, so that every scored
// token has at least half a context before it. All caches advance pass by pass over the same chunk,
// so the logits of one pass are all that is held. One thread at a time; the work is done by the
// executors of the stores.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/divergence.h"
#include "engine/model.h"
#include "pagekv/store.h"

namespace pagekv::inline v0::engine {

struct NamedStore {
  std::string name;  // for errors
  Store store;       // of the model's layers, with room for one context
};

struct PerplexityOptions {
  std::int64_t context_tokens = 512;  // at least 3
  std::int64_t chunks = 0;            // 0: all that the text has
  // First position of a chunk that is scored; empty: context_tokens / 2, as llama.cpp's tool does.
  std::optional<std::int64_t> first_scored = {};
  Token bos = kNoToken;  // takes the place of every chunk's first token; kNoToken: none does
  std::int64_t rows_per_pass = 512;
  Arithmetic arithmetic = Arithmetic::exact;
  // Called after every pass with rows done and in all, over all stores.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

struct PerplexityScores {
  std::vector<std::vector<TokenScore>> scores;  // [store][scored token]; the first store's are of
                                                // its logits beside themselves
  std::int64_t rows = 0;                        // computed, over all stores
  double forward_seconds = 0;
  double compare_seconds = 0;
};

// How many chunks of so many tokens a text of `tokens` tokens has.
std::int64_t count_chunks(std::int64_t tokens, std::int64_t context_tokens);

// `tokens`: of the text, with the model's beginning-of-text token where it has one. Errors:
// invalid_argument (a text shorter than asked for, options out of range), those of
// Model::make_runner(), Store::reserve(), Runner::forward() and compare_rows(), and not_finite
// where a store cannot hold a value; the text names the store.
Result<PerplexityScores> score_text(const Model& model, std::span<const NamedStore> stores,
                                    std::span<const Token> tokens,
                                    const PerplexityOptions& options);

// Stored bits per element of keys and values, scales and biases counted, over all layers that
// store any.
double bits_per_element(const CacheLayout& layout);

}  // namespace pagekv::inline v0::engine
