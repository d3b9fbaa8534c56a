// Random valid UTF-8 of all planes, for round trips.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace pagekv::testing {

inline void append_utf8(std::uint32_t code, std::string& out) {
  const auto tail = [&out](std::uint32_t bits) { out += static_cast<char>(0x80 | (bits & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | (code >> 6));
    tail(code);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | (code >> 12));
    tail(code >> 6);
    tail(code);
  } else {
    out += static_cast<char>(0xf0 | (code >> 18));
    tail(code >> 12);
    tail(code >> 6);
    tail(code);
  }
}

// Half of it ASCII, so that words, digits and white space occur.
inline std::string random_utf8(std::mt19937_64& random, int characters) {
  std::string out;
  for (int i = 0; i < characters; ++i) {
    const std::uint64_t kind = random() % 8;
    if (kind < 4) {
      append_utf8(static_cast<std::uint32_t>(random() % 0x80), out);
    } else if (kind < 6) {
      append_utf8(static_cast<std::uint32_t>(random() % 0x800), out);
    } else {
      std::uint32_t code = 0;
      do {
        code = static_cast<std::uint32_t>(random() % (kind == 6 ? 0x10000 : 0x110000));
      } while (code >= 0xd800 && code < 0xe000);  // surrogates
      append_utf8(code, out);
    }
  }
  return out;
}

}  // namespace pagekv::testing
