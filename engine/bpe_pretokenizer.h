// PreTokenizer: cuts a text into words before byte-pair merging, which never crosses a cut.
//
// Each kind is a list of regular expressions, applied in turn: an expression cuts each piece that
// the ones before left into its matches and the gaps between them. Immutable; safe on any thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

class PreTokenizer {
 public:
  // By the name in `tokenizer.ggml.pre`. Errors: unsupported (the text lists the known names).
  static Result<PreTokenizer> make(std::string_view name);

  // The pieces of `text` in order; together they are the text. REQUIRES: valid UTF-8.
  // Errors: unsupported (the matcher ran into its limits), out_of_memory.
  Result<std::vector<std::string_view>> split(std::string_view text) const;

  // Whether a piece that is itself in the vocabulary becomes that token, whatever the merges say.
  bool whole_words() const { return whole_words_; }
  // Whether texts begin with bos where the file does not say.
  bool adds_bos() const { return adds_bos_; }

 private:
  struct Pattern;  // a compiled expression
  PreTokenizer() = default;

  std::vector<std::shared_ptr<const Pattern>> patterns_;
  bool whole_words_ = false;
  bool adds_bos_ = false;
};

}  // namespace pagekv::inline v0::engine
