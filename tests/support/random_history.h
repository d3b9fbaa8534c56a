// How long a random history is, and how it is repeated: PAGEKV_TEST_SCALE multiplies operations,
// PAGEKV_TEST_SEED is the seed that a failure named.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace pagekv::testing {

inline int test_scale() {
  const char* scale = std::getenv("PAGEKV_TEST_SCALE");
  return scale != nullptr ? std::max(1, std::atoi(scale)) : 1;
}

// Also prints it.
inline unsigned test_seed() {
  const char* fixed = std::getenv("PAGEKV_TEST_SEED");
  const unsigned seed = fixed != nullptr ? static_cast<unsigned>(std::strtoul(fixed, nullptr, 10))
                                         : std::random_device{}();
  std::printf("seed %u (set PAGEKV_TEST_SEED to repeat)\n", seed);
  return seed;
}

}  // namespace pagekv::testing
