#include "engine/prompt_lookup.h"

#include <algorithm>

namespace pagekv::inline v0::engine {
namespace {

// How many tokens, `most` at most, the first `end` tokens and all of them have in common at their
// ends.
std::size_t common_ending(std::span<const Token> tokens, std::size_t end, std::size_t most) {
  std::size_t common = 0;
  while (common < std::min(end, most) &&
         tokens[end - 1 - common] == tokens[tokens.size() - 1 - common]) {
    ++common;
  }
  return common;
}

}  // namespace

std::size_t PromptLookup::operator()(std::span<const Token> tokens, std::span<Token> drafts) const {
  const auto most = static_cast<std::size_t>(ngram_max);
  std::size_t longest = 0;
  std::size_t source = 0;  // where the tokens after the match begin
  for (std::size_t end = tokens.size(); end-- > 1 && longest < most;) {
    const std::size_t common = common_ending(tokens, end, most);
    if (common <= longest) continue;
    longest = common;
    source = end;
  }
  if (longest < static_cast<std::size_t>(ngram_min)) return 0;
  for (std::size_t i = 0; i < drafts.size(); ++i, ++source) {
    drafts[i] = source < tokens.size() ? tokens[source] : drafts[source - tokens.size()];
  }
  return drafts.size();
}

}  // namespace pagekv::inline v0::engine
