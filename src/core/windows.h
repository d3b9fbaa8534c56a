// What a window asks for: the one formula of it.
#pragma once

#include <algorithm>
#include <cstdint>

namespace pagekv::inline v0::internal {

// First token that the next row of a sequence of `tokens` tokens sees, where layers have this
// window (0: none). A row at position p sees (p - window, p]; the next one is at `tokens`.
constexpr std::int64_t first_needed_token(std::int64_t window_tokens, std::int64_t tokens) {
  if (window_tokens == 0) return 0;
  return std::max<std::int64_t>(0, tokens + 1 - window_tokens);
}

}  // namespace pagekv::inline v0::internal
