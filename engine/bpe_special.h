// SpecialTokens: finds tokens that are written literally in a text ("<|im_end|>") before it is cut
// into words. The leftmost match counts, the longest among those that begin there.
//
// Borrows the texts. Immutable after the last add(); then safe on any thread.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/tokenizer.h"

namespace pagekv::inline v0::engine {

class SpecialTokens {
 public:
  struct Match {
    std::size_t begin;
    std::size_t length;
    Token token;
  };

  // `control`: found only when control tokens are asked for. Empty texts are ignored; of two equal
  // texts the first counts.
  void add(std::string_view text, Token token, bool control);

  std::optional<Match> find(std::string_view text, std::size_t from, bool control) const;

 private:
  struct Special {
    Token token;
    bool control;
  };
  std::unordered_map<std::string_view, Special> specials_;
  // Lengths of the texts that begin with a byte, longest first.
  std::array<std::vector<std::size_t>, 256> lengths_;
};

}  // namespace pagekv::inline v0::engine
