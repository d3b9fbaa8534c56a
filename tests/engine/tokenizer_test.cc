// Byte-level BPE on a small vocabulary: merges, words, special tokens, round trips, bad metadata.
#include "engine/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>

#include "engine/bpe.h"
#include "engine/bpe_pretokenizer.h"
#include "engine/gguf.h"
#include "tests/engine/random_text.h"
#include "tests/engine/small_vocabulary.h"

namespace pagekv::testing {
namespace {

using engine::GgufFile;
using engine::GgufType;
using engine::PreTokenizer;
using engine::Token;
using engine::Tokenizer;
using Tokens = std::vector<Token>;

Result<std::unique_ptr<Tokenizer>> make(const std::string& gguf_bytes) {
  const auto file = GgufFile::parse(as_bytes(gguf_bytes));
  if (!file) return tl::unexpected(file.error());
  return make_tokenizer(*file);
}

std::unique_ptr<Tokenizer> make_good(const SmallVocabulary& vocabulary = {}) {
  auto tokenizer = make(vocabulary.gguf());
  EXPECT_TRUE(tokenizer) << tokenizer.error().message();
  return tokenizer ? std::move(*tokenizer) : nullptr;
}

Tokens encode(const Tokenizer& tokenizer, std::string_view text, bool special = false) {
  const auto tokens = tokenizer.encode(text, {.bos = true, .special = special});
  EXPECT_TRUE(tokens) << tokens.error().message();
  return tokens ? *tokens : Tokens{};
}

std::vector<std::string> words(const char* pre, std::string_view text) {
  const auto pretokenizer = PreTokenizer::make(pre);
  EXPECT_TRUE(pretokenizer);
  const auto pieces = pretokenizer->split(text);
  EXPECT_TRUE(pieces);
  return {pieces->begin(), pieces->end()};
}

using Words = std::vector<std::string>;

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(words("gpt-2", "It's 2024, we'll  go\n\n now "),
            (Words{"It", "'s", " 2024", ",", " we", "'ll", " ", " go", "\n\n", " now", " "}));
  EXPECT_EQ(words("gpt-2", "IT'S a\tb"), (Words{"IT", "'", "S", " a", "\t", "b"}));
  EXPECT_EQ(words("gpt-2", "año 中文! \xe2\x80\x83x"),
            (Words{"año", " 中文", "!", " ", "\xe2\x80\x83", "x"}));
}

TEST(PreTokenizer, SmollmCutsDigitsFirst) {
  EXPECT_EQ(words("smollm", "a 123  4"), (Words{"a", " ", "1", "2", "3", "  ", "4"}));
  EXPECT_EQ(words("smollm", "½x²"), (Words{"½", "x", "²"}));
}

TEST(PreTokenizer, LlamaAndQwen) {
  EXPECT_EQ(words("llama-bpe", "IT'S 12345!\r\n\n  x"),
            (Words{"IT", "'S", " ", "123", "45", "!\r\n\n", " ", " x"}));
  EXPECT_EQ(words("qwen2", "12 $x"), (Words{"1", "2", " $", "x"}));
}

TEST(PreTokenizer, MongolianVowelSeparatorIsNoSpace) {
  EXPECT_EQ(words("gpt-2", "a \xe1\xa0\x8e"), (Words{"a", " \xe1\xa0\x8e"}));
}

TEST(PreTokenizer, NamesTheKnownOnes) {
  const auto unknown = PreTokenizer::make("falcon");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(unknown.error().message(),
            "pre-tokenizer 'falcon'; known are gpt-2, llama-bpe, qwen2, smollm");
}

TEST(Tokenizer, MergesByRankLeftmostFirst) {
  const auto tokenizer = make_good();
  EXPECT_EQ(encode(*tokenizer, "hello world"), (Tokens{kFirstMerge + 3, kFirstMerge + 7, 'd'}));
  EXPECT_EQ(encode(*tokenizer, "aaa"), (Tokens{kFirstMerge + 8, 'a'}));
  EXPECT_EQ(encode(*tokenizer, "aaaaaaa"), (Tokens{kFirstMerge + 9, kFirstMerge + 8, 'a'}));
  EXPECT_EQ(encode(*tokenizer, "12"), (Tokens{'1', '2'}));  // digits are words of their own
  EXPECT_EQ(encode(*tokenizer, "é"), (Tokens{kFirstMerge + 10}));
  EXPECT_EQ(encode(*tokenizer, ""), Tokens{});
  EXPECT_EQ(tokenizer->vocabulary_size(), kSmallVocabulary);
}

// The definition of the algorithm, in O(n^2).
Tokens merge_slowly(Tokens tokens, const std::map<std::pair<Token, Token>, engine::Merge>& merges) {
  for (;;) {
    std::size_t best = tokens.size();
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = merges.find({tokens[i], tokens[i + 1]});
      if (found == merges.end()) continue;
      if (best == tokens.size() ||
          found->second.priority < merges.at({tokens[best], tokens[best + 1]}).priority) {
        best = i;
      }
    }
    if (best == tokens.size()) return tokens;
    tokens[best] = merges.at({tokens[best], tokens[best + 1]}).result;
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(MergeTokens, EqualsTheDefinition) {
  const std::uint64_t seed = 77;
  std::mt19937_64 random(seed);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (int round = 0; round < 2000; ++round) {
    std::map<std::pair<Token, Token>, engine::Merge> merges;
    Token next = 3;
    for (int i = 0; i < 12; ++i) {
      const auto part = [&] { return static_cast<Token>(random() % static_cast<unsigned>(next)); };
      const std::pair<Token, Token> pair{part(), part()};
      // Priorities repeat, as scores of equal value do.
      if (merges.try_emplace(pair, engine::Merge{static_cast<double>(random() % 8), next}).second) {
        ++next;
      }
    }
    Tokens tokens(random() % 40);
    for (Token& token : tokens) token = static_cast<Token>(random() % 3);
    Tokens fast = tokens;
    engine::merge_tokens(fast, [&](Token left, Token right) -> std::optional<engine::Merge> {
      const auto found = merges.find({left, right});
      return found == merges.end() ? std::nullopt : std::optional(found->second);
    });
    ASSERT_EQ(fast, merge_slowly(tokens, merges)) << "round " << round;
  }
}

TEST(Tokenizer, SpecialTokensOnlyWhenAskedFor) {
  const auto tokenizer = make_good();
  const std::string text = "<|im_start|>a<|im_end|><tool><|im_end|";
  const Tokens asked = encode(*tokenizer, text, true);
  EXPECT_EQ(asked[0], kImStart);
  EXPECT_EQ(asked[1], 'a');
  EXPECT_EQ(asked[2], kImEnd);
  EXPECT_EQ(asked[3], kTool);
  EXPECT_EQ(asked.size(), 4u + 9u);
  const Tokens plain = encode(*tokenizer, text);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), kImStart), 0);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), kImEnd), 0);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), kTool), 1);  // user-defined: always
  EXPECT_EQ(tokenizer->decode(plain), text);
  EXPECT_EQ(tokenizer->decode(asked), "a<tool><|im_end|");  // control tokens stand for no text
}

TEST(Tokenizer, LongestSpecialTokenWins) {
  SmallVocabulary vocabulary;
  vocabulary.add("<tool>s", 4);
  vocabulary.add("<t", 4);
  const auto tokenizer = make_good(vocabulary);
  EXPECT_EQ(encode(*tokenizer, "<tool>s"), (Tokens{kTool + 1}));
  EXPECT_EQ(encode(*tokenizer, "<tool><tx"), (Tokens{kTool, kTool + 2, 'x'}));
}

TEST(Tokenizer, SpecialTokensNeverCutACharacter) {
  SmallVocabulary vocabulary;
  vocabulary.add("\xa9", 4);  // the second byte of "é"
  const auto tokenizer = make_good(vocabulary);
  EXPECT_EQ(encode(*tokenizer, "é"), (Tokens{kFirstMerge + 10}));
}

TEST(Tokenizer, EndsAndControls) {
  const auto tokenizer = make_good();
  EXPECT_EQ(tokenizer->bos(), kImStart);
  EXPECT_EQ(tokenizer->eos(), kImEnd);
  EXPECT_TRUE(tokenizer->is_end(kImEnd));
  EXPECT_TRUE(tokenizer->is_end(kEndOfText));  // by its name
  EXPECT_FALSE(tokenizer->is_end(kImStart));
  EXPECT_FALSE(tokenizer->is_end('a'));
  EXPECT_TRUE(tokenizer->is_control(kImStart));
  EXPECT_FALSE(tokenizer->is_control(kTool));
  for (const Token outside : {Token{-1}, Token{kSmallVocabulary}, Token{1 << 30}}) {
    EXPECT_FALSE(tokenizer->is_end(outside));
    EXPECT_FALSE(tokenizer->is_control(outside));
    EXPECT_EQ(tokenizer->decode(Tokens{outside}), "");
  }
}

TEST(Tokenizer, BosWhereTheFileWantsIt) {
  GgufWriter writer;
  SmallVocabulary().write(writer);
  writer.boolean("tokenizer.ggml.add_bos_token", true);
  const auto tokenizer = make(writer.finish());
  ASSERT_TRUE(tokenizer);
  EXPECT_TRUE((*tokenizer)->adds_bos());
  EXPECT_EQ(*(*tokenizer)->encode("a"), (Tokens{kImStart, 'a'}));
  EXPECT_EQ(*(*tokenizer)->encode("a", {.bos = false}), (Tokens{'a'}));
  SmallVocabulary llama;
  llama.pre = "llama-bpe";
  EXPECT_TRUE(make_good(llama)->adds_bos());
  EXPECT_FALSE(make_good()->adds_bos());
}

TEST(Tokenizer, WholeWordsWhereThePreTokenizerSaysSo) {
  SmallVocabulary vocabulary;
  vocabulary.add("xyz", 1);  // no merge makes it
  EXPECT_EQ(encode(*make_good(vocabulary), "xyz"), (Tokens{'x', 'y', 'z'}));
  vocabulary.pre = "llama-bpe";
  EXPECT_EQ(encode(*make_good(vocabulary), "xyz"), (Tokens{kImStart, kSmallVocabulary}));
}

TEST(Tokenizer, InvalidUtf8NamesTheByte) {
  const auto tokenizer = make_good();
  struct Case {
    const char* text;
    std::int64_t offset;
  };
  for (const Case& c :
       {Case{"abc\xff", 3}, Case{"\xc3", 0}, Case{"a\xc0\xaf", 1}, Case{"\xed\xa0\x80", 0},
        Case{"é\xf4\x90\x80\x80", 2}, Case{"\xe2\x82", 0}, Case{"x\x80", 1}}) {
    const auto tokens = tokenizer->encode(c.text);
    ASSERT_FALSE(tokens) << c.text;
    EXPECT_EQ(tokens.error().code(), ErrorCode::invalid_argument);
    EXPECT_EQ(tokens.error().number(0), c.offset);
  }
  EXPECT_EQ(tokenizer->encode("abc\xff").error().message(),
            "the text is not UTF-8: byte 255 at offset 3");
}

TEST(Tokenizer, DecodesWhatItEncoded) {
  const std::uint64_t seed = 4711;
  std::mt19937_64 random(seed);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    SmallVocabulary vocabulary;
    vocabulary.pre = pre;
    const auto tokenizer = make_good(vocabulary);
    for (int round = 0; round < 500; ++round) {
      const std::string text = random_utf8(random, static_cast<int>(random() % 60));
      ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text) << pre << " round " << round;
    }
  }
}

// The quadratic algorithm would need minutes for these.
TEST(Tokenizer, LongTextsWithoutSpaces) {
  const auto tokenizer = make_good();
  constexpr std::size_t kLong = 100'000;
  std::string mixed;
  std::mt19937_64 random(9);
  while (mixed.size() < kLong) mixed += static_cast<char>('a' + random() % 26);
  for (const std::string& text :
       {std::string(kLong, 'a'), std::string(kLong, ' '), std::string(kLong, '\n'),
        std::string(kLong, '!'), std::string(kLong, '7'), mixed}) {
    ASSERT_EQ(tokenizer->decode(encode(*tokenizer, text)), text);
  }
  EXPECT_EQ(encode(*tokenizer, std::string(kLong, 'a')).size(), kLong / 4);
}

TEST(Tokenizer, BytesTheVocabularyLacksAreDropped) {
  SmallVocabulary vocabulary;
  vocabulary.types['\x04'] = 5;  // unused
  const auto tokenizer = make_good(vocabulary);
  EXPECT_EQ(encode(*tokenizer,
                   "a\x04"
                   "b"),
            (Tokens{'a', 'b'}));
  EXPECT_EQ(encode(*tokenizer, "\x04"), Tokens{});
}

TEST(TextStream, HoldsBackUnfinishedCharacters) {
  const auto tokenizer = make_good();
  engine::TextStream stream(*tokenizer);
  std::string out;
  const std::string text = "a😀é";
  std::vector<std::string> pushed;
  for (const char c : text) pushed.push_back(stream.push(static_cast<unsigned char>(c)));
  EXPECT_EQ(pushed, (std::vector<std::string>{"a", "", "", "", "😀", "", "é"}));
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.push(kFirstMerge + 10), "é");
  EXPECT_EQ(stream.push(kImEnd), "");
}

TEST(TextStream, RepairsWhatIsNoUtf8) {
  const auto tokenizer = make_good();
  engine::TextStream stream(*tokenizer);
  EXPECT_EQ(stream.push(0xff), "\ufffd");
  EXPECT_EQ(stream.push(0xe2), "");
  EXPECT_EQ(stream.push('x'), "\ufffdx");
  EXPECT_EQ(stream.push(0xf0), "");
  EXPECT_EQ(stream.push(0x9f), "");
  EXPECT_EQ(stream.flush(), "\ufffd\ufffd");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Tokenizer, RefusesBadMetadata) {
  const auto error_with = [](auto change) {
    SmallVocabulary vocabulary;
    change(vocabulary);
    const auto tokenizer = make(vocabulary.gguf());
    return tokenizer ? "no error" : tokenizer.error().message();
  };
  EXPECT_EQ(error_with([](SmallVocabulary& v) { v.model = "llama"; }),
            "tokenizer 'llama'; known is 'gpt2' (byte-level byte-pair encoding)");
  EXPECT_EQ(error_with([](SmallVocabulary& v) { v.pre = "x"; }),
            "pre-tokenizer 'x'; known are gpt-2, llama-bpe, qwen2, smollm");
  EXPECT_EQ(error_with([](SmallVocabulary& v) { v.types.pop_back(); }),
            "272 token types for 273 tokens");
  EXPECT_EQ(error_with([](SmallVocabulary& v) { v.merges[2] = "hell"; }),
            "merge 2 is 'hell', not two tokens with a space between");
  EXPECT_EQ(error_with([](SmallVocabulary& v) { v.merges[2] = "h q"; }),
            "merge 2, 'h q': the parts and what they make must be in the vocabulary");
  EXPECT_EQ(error_with([](SmallVocabulary& v) {
              v.tokens.resize(100);
              v.types.resize(100);
              v.merges.clear();
            }),
            "metadata key 'tokenizer.ggml.bos_token_id' is 269; the vocabulary has 100 tokens");
  EXPECT_EQ(error_with([](SmallVocabulary& v) {
              v.tokens.clear();
              v.types.clear();
            }),
            "a vocabulary of 0 tokens");
  GgufWriter none;
  EXPECT_EQ(make(none.finish()).error().message(),
            "metadata key 'tokenizer.ggml.model' is missing");
  GgufWriter no_bos;
  no_bos.string("tokenizer.ggml.model", "gpt2");
  no_bos.string("tokenizer.ggml.pre", "gpt-2");
  no_bos.strings("tokenizer.ggml.tokens", {"a"});
  no_bos.strings("tokenizer.ggml.merges", {});
  no_bos.boolean("tokenizer.ggml.add_bos_token", true);
  EXPECT_EQ(make(no_bos.finish()).error().message(),
            "texts begin with a bos token, but 'tokenizer.ggml.bos_token_id' is missing");
}

}  // namespace
}  // namespace pagekv::testing
