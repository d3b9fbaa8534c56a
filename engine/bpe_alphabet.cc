#include "engine/bpe_alphabet.h"

#include <array>

#include "engine/unicode.h"

namespace pagekv::inline v0::engine {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr int kCodes = 256 + 68;

struct Alphabet {
  std::array<std::uint16_t, 256> code{};    // byte -> code point
  std::array<std::int16_t, kCodes> byte{};  // code point -> byte, or -1
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte.fill(-1);
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const int code = stands_for_itself(byte) ? byte : next++;
    alphabet.code[static_cast<std::size_t>(byte)] = static_cast<std::uint16_t>(code);
    alphabet.byte[static_cast<std::size_t>(code)] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string alphabet_character(std::uint8_t byte) {
  const unsigned code = kAlphabet.code[byte];
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

std::optional<std::string> bytes_from_alphabet(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_character_bytes(text.substr(at));
    if (length != 1 && length != 2) return std::nullopt;
    const auto first = static_cast<unsigned char>(text[at]);
    const std::size_t code =
        length == 1 ? first
                    : (first & 0x1fu) << 6 | (static_cast<unsigned char>(text[at + 1]) & 0x3fu);
    if (code >= kCodes || kAlphabet.byte[code] < 0) return std::nullopt;
    out += static_cast<char>(kAlphabet.byte[code]);
    at += length;
  }
  return out;
}

}  // namespace pagekv::inline v0::engine
