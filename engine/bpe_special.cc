#include "engine/bpe_special.h"

#include <algorithm>
#include <functional>

namespace pagekv::inline v0::engine {

void SpecialTokens::add(std::string_view text, Token token, bool control) {
  if (text.empty() || !specials_.try_emplace(text, Special{token, control}).second) {
    return;
  }
  auto& lengths = lengths_[static_cast<unsigned char>(text[0])];
  const auto at = std::lower_bound(lengths.begin(), lengths.end(), text.size(), std::greater<>());
  if (at == lengths.end() || *at != text.size()) lengths.insert(at, text.size());
}

std::optional<SpecialTokens::Match> SpecialTokens::find(std::string_view text, std::size_t from,
                                                        bool control) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    for (const std::size_t length : lengths_[static_cast<unsigned char>(text[at])]) {
      if (length > text.size() - at) continue;
      const auto found = specials_.find(text.substr(at, length));
      if (found == specials_.end() || (found->second.control && !control)) continue;
      return Match{at, length, found->second.token};
    }
  }
  return std::nullopt;
}

}  // namespace pagekv::inline v0::engine
