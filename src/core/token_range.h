// TokenRange: tokens [begin, end) of a sequence, or of what the context says.
#pragma once

#include <cstdint>

namespace pagekv::inline v0::internal {

struct TokenRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

}  // namespace pagekv::inline v0::internal
