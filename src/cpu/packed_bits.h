// Bit fields of 64-bit words, which packing and unpacking of codes move about.
#pragma once

#include <cstdint>

namespace pagekv::inline v0::internal {

// The low kField of every kEvery bits.
template <int kField, int kEvery>
constexpr std::uint64_t every() {
  std::uint64_t mask = 0;
  for (int at = 0; at < 64; at += kEvery) mask |= ((std::uint64_t{1} << kField) - 1) << at;
  return mask;
}

}  // namespace pagekv::inline v0::internal
