#include "engine/unicode.h"

#include <cstdint>

namespace pagekv::inline v0::engine {
namespace {

struct Lead {
  std::size_t length;       // bytes of the character; 0: not a lead byte
  std::uint8_t low = 0x80;  // range of the second byte
  std::uint8_t high = 0xbf;
};

Lead classify(std::uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte < 0xc2) return {0};
  if (byte < 0xe0) return {2};
  if (byte == 0xe0) return {3, 0xa0, 0xbf};  // shorter ones are overlong
  if (byte == 0xed) return {3, 0x80, 0x9f};  // the rest are surrogates
  if (byte < 0xf0) return {3};
  if (byte == 0xf0) return {4, 0x90, 0xbf};
  if (byte < 0xf4) return {4};
  if (byte == 0xf4) return {4, 0x80, 0x8f};  // U+10FFFF is the last
  return {0};
}

// Bytes of `text` that agree with the character its first byte announces, at most its length.
std::size_t matching_bytes(std::string_view text, const Lead& lead) {
  std::size_t matched = 1;
  while (matched < lead.length && matched < text.size()) {
    const auto byte = static_cast<std::uint8_t>(text[matched]);
    const std::uint8_t low = matched == 1 ? lead.low : 0x80;
    const std::uint8_t high = matched == 1 ? lead.high : 0xbf;
    if (byte < low || byte > high) break;
    ++matched;
  }
  return matched;
}

}  // namespace

std::size_t utf8_character_bytes(std::string_view text) {
  if (text.empty()) return 0;
  const Lead lead = classify(static_cast<std::uint8_t>(text[0]));
  if (lead.length == 0) return 0;
  return matching_bytes(text, lead) == lead.length ? lead.length : 0;
}

bool utf8_incomplete(std::string_view text) {
  if (text.empty()) return false;
  const Lead lead = classify(static_cast<std::uint8_t>(text[0]));
  return text.size() < lead.length && matching_bytes(text, lead) == text.size();
}

Status check_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_character_bytes(text.substr(at));
    if (length == 0) {
      return fail(ErrorCode::invalid_argument, "the text is not UTF-8: byte {1} at offset {0}",
                  {static_cast<std::int64_t>(at), static_cast<std::uint8_t>(text[at])});
    }
    at += length;
  }
  return {};
}

std::string take_complete_utf8(std::string& text) {
  const std::string_view whole = text;
  // An unfinished character can only begin in the last three bytes.
  std::size_t end = whole.size();
  for (std::size_t back = 1; back <= 3 && back <= whole.size(); ++back) {
    if (utf8_incomplete(whole.substr(whole.size() - back))) end = whole.size() - back;
  }
  std::string out = repair_utf8(whole.substr(0, end));
  text.erase(0, end);
  return out;
}

std::string repair_utf8(std::string_view text) {
  static constexpr std::string_view kReplacement = "\xef\xbf\xbd";
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_character_bytes(text.substr(at));
    if (length == 0) {
      out += kReplacement;
      ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

}  // namespace pagekv::inline v0::engine
