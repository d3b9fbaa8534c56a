// Random numbers that are the same on every machine, unlike those of std distributions.
#pragma once

#include <cstdint>

namespace pagekv::inline v0::engine {

// Output n of SplitMix64 (Steele, Lea, Flood 2014), counted from 1: a mix of seed + n * gamma. The
// state is a counter, so any output can be had without those before it.
constexpr std::uint64_t splitmix64(std::uint64_t seed, std::uint64_t n) {
  std::uint64_t z = seed + n * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// The same as a multiple of 2^-53 in [0, 1).
constexpr double random_uniform(std::uint64_t seed, std::uint64_t n) {
  return static_cast<double>(splitmix64(seed, n) >> 11) * 0x1p-53;
}

}  // namespace pagekv::inline v0::engine
