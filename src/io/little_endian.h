// Numbers as files have them: little-endian, whatever the processor is.
#pragma once

#include <cstddef>
#include <span>

namespace pagekv::inline v0::internal {

template <typename Unsigned>
void store_number(std::span<std::byte> bytes, std::size_t at, Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    bytes[at + byte] = static_cast<std::byte>(value >> 8 * byte & 0xff);
  }
}

template <typename Unsigned>
Unsigned load_number(std::span<const std::byte> bytes, std::size_t at) {
  Unsigned value = 0;
  for (std::size_t byte = 0; byte < sizeof value; ++byte) {
    value |= std::to_integer<Unsigned>(bytes[at + byte]) << 8 * byte;
  }
  return value;
}

}  // namespace pagekv::inline v0::internal
