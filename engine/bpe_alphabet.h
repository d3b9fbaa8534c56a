// The alphabet in which byte-level vocabularies write their tokens.
//
// GPT-2 and its successors spell each byte as one printable character: the printable ones of
// Latin-1 as themselves, the 68 others as U+0100, U+0101, ... in byte order (so a space is U+0120).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pagekv::inline v0::engine {

// The character that stands for `byte`, in UTF-8.
std::string alphabet_character(std::uint8_t byte);

// The bytes that `text` spells; empty where it has a character outside the alphabet.
std::optional<std::string> bytes_from_alphabet(std::string_view text);

}  // namespace pagekv::inline v0::engine
