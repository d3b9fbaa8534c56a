// For benchmark programs: the value of a Result, or the end of the program with its message.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "pagekv/error.h"

namespace pagekv::bench {

inline void need(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.error().message().c_str());
  std::exit(1);
}

template <typename T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  need(Status(tl::unexpected<Error>(result.error())));
  std::abort();
}

}  // namespace pagekv::bench
