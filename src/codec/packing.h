// How codes of 1 to 8 bits lie in bytes: one flat little-endian bit stream per vector.
//
// Element i occupies bits [i * bits, i * bits + bits) of the row, least significant first, so that
// 8 elements are exactly `bits` bytes. A row is padded with zeros to whole 32-bit words; a
// multiple of 32 elements needs no padding. The same stream as MLX's packed words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pagekv::inline v0::internal {

inline constexpr std::int64_t kWordBytes = 4;

// Bytes of one row of `count` codes (a multiple of 8).
constexpr std::int64_t packed_bytes(int bits, std::int64_t count) {
  return (count / 8 * bits + kWordBytes - 1) / kWordBytes * kWordBytes;
}

// 8 codes into `bits` bytes.
inline void pack8(int bits, const std::uint8_t* codes, std::byte* to) {
  std::uint64_t stream = 0;
  for (int i = 0; i < 8; ++i) stream |= std::uint64_t{codes[i]} << (i * bits);
  for (int byte = 0; byte < bits; ++byte) {
    to[byte] = static_cast<std::byte>(stream >> (8 * byte) & 0xffu);
  }
}

inline void unpack8(int bits, const std::byte* from, std::uint8_t* codes) {
  std::uint64_t stream = 0;
  for (int byte = 0; byte < bits; ++byte) {
    stream |= std::to_integer<std::uint64_t>(from[byte]) << (8 * byte);
  }
  const std::uint64_t mask = (std::uint64_t{1} << bits) - 1;
  for (int i = 0; i < 8; ++i) codes[i] = static_cast<std::uint8_t>(stream >> (i * bits) & mask);
}

// A whole row of `count` codes, padding included.
inline void pack_row(int bits, const std::uint8_t* codes, std::int64_t count, std::byte* to) {
  for (std::int64_t i = 0; i < count / 8; ++i) pack8(bits, codes + 8 * i, to + i * bits);
  const std::int64_t used = count / 8 * bits;
  std::memset(to + used, 0, static_cast<std::size_t>(packed_bytes(bits, count) - used));
}

inline void unpack_row(int bits, const std::byte* from, std::int64_t count, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < count / 8; ++i) unpack8(bits, from + i * bits, codes + 8 * i);
}

}  // namespace pagekv::inline v0::internal
