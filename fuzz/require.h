// require(): a property that every input must have. A failure is a finding.
#pragma once

#include <cstdio>
#include <cstdlib>

namespace pagekv::fuzz {

inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "violated: %s\n", what);
  std::abort();
}

}  // namespace pagekv::fuzz
