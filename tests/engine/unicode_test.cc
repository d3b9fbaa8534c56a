// UTF-8: every two-byte beginning against the standard's definition, and repair.
#include "engine/unicode.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <unordered_set>

#include "tests/engine/random_text.h"

namespace pagekv::testing {
namespace {

using engine::check_utf8;
using engine::repair_utf8;
using engine::take_complete_utf8;
using engine::utf8_character_bytes;
using engine::utf8_incomplete;

// The definition: a character is what encoding some code point gives; all else is not.
TEST(Utf8, KnowsExactlyTheEncodedCodePoints) {
  std::unordered_set<std::string> beginnings;  // proper ones, of one to three bytes
  for (std::uint32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    std::string text;
    append_utf8(code, text);
    ASSERT_EQ(utf8_character_bytes(text), text.size()) << code;
    ASSERT_EQ(utf8_character_bytes(text + "x"), text.size()) << code;
    for (std::size_t length = 1; length < text.size(); ++length) {
      beginnings.insert(text.substr(0, length));
    }
  }
  // All one- and two-byte strings, and all three-byte ones that begin like a four-byte character.
  for (int first = 0; first < 256; ++first) {
    for (int second = -1; second < 256; ++second) {
      std::string text(1, static_cast<char>(first));
      if (second >= 0) text += static_cast<char>(second);
      ASSERT_EQ(utf8_incomplete(text), beginnings.contains(text)) << first << ' ' << second;
      if (first < 0xf0 || second < 0) continue;
      for (int third = 0; third < 256; ++third) {
        const std::string longer = text + static_cast<char>(third);
        ASSERT_EQ(utf8_incomplete(longer), beginnings.contains(longer));
      }
    }
  }
}

TEST(Utf8, RefusesSurrogatesOverlongFormsAndStrays) {
  for (const char* text :
       {"\x80", "\xbf", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
        "\xc3"
        "a",
        "\xe2\x82"
        "a"}) {
    EXPECT_EQ(utf8_character_bytes(text), 0u) << text;
    EXPECT_FALSE(check_utf8(text)) << text;
  }
  EXPECT_EQ(utf8_character_bytes(""), 0u);
  EXPECT_TRUE(check_utf8(""));
  EXPECT_TRUE(check_utf8(std::string_view("a\0b", 3)));
}

TEST(Utf8, RepairReplacesSingleBytes) {
  EXPECT_EQ(repair_utf8("a\xff"
                        "b\xe2\x82"),
            "a\ufffdb\ufffd\ufffd");
  EXPECT_EQ(repair_utf8("é"), "é");
}

TEST(Utf8, TakesWhatIsComplete) {
  const std::string text = "x😀€é";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    std::string held = text.substr(0, cut);
    std::string out = take_complete_utf8(held);
    EXPECT_LE(held.size(), 3u);
    EXPECT_TRUE(check_utf8(out));
    EXPECT_EQ(out + held, text.substr(0, cut));
    held += text.substr(cut);
    EXPECT_EQ(out + take_complete_utf8(held), text);
    EXPECT_EQ(held, "");
  }
}

}  // namespace
}  // namespace pagekv::testing
