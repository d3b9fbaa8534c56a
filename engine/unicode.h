// UTF-8: checking, counting and repairing.
//
// Well-formed is what the Unicode Standard says (table 3-7): no overlong forms, no surrogates,
// nothing past U+10FFFF. Pure functions; safe on any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

// Bytes of the well-formed character that `text` begins with, or 0 where there is none.
std::size_t utf8_character_bytes(std::string_view text);

// Whether `text` is a proper beginning of some well-formed character: more bytes could complete it.
bool utf8_incomplete(std::string_view text);

// Errors: invalid_argument naming the first offending byte and its offset (numbers: both, offset
// first).
Status check_utf8(std::string_view text);

// The longest prefix of `text` that does not end inside a character, with every byte that belongs
// to no character replaced by U+FFFD. What remains (at most three bytes) is left in `text`.
std::string take_complete_utf8(std::string& text);

// The whole of `text` with every byte that belongs to no character replaced by U+FFFD.
std::string repair_utf8(std::string_view text);

}  // namespace pagekv::inline v0::engine
