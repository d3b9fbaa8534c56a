// The tokenizer and chat template of the demo model. Expected ids come from Hugging Face tokenizers
// and llama.cpp, which agree on them; tests/peers compares many more.
#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "engine/chat.h"
#include "engine/gguf.h"
#include "engine/mapped_file.h"
#include "engine/tokenizer.h"
#include "tests/engine/random_text.h"
#include "tests/engine/test_data.h"

namespace pagekv::testing {
namespace {

using engine::Token;
using Tokens = std::vector<Token>;

class SmolLM2 : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = demo_model();
    if (!std::filesystem::exists(path)) {
      GTEST_SKIP() << "no model at " << path << "; set PAGEKV_MODEL";
    }
    auto file = engine::MappedFile::open(path);
    ASSERT_TRUE(file) << file.error().message();
    file_.emplace(std::move(*file));
    auto gguf = engine::GgufFile::parse(file_->bytes());
    ASSERT_TRUE(gguf) << gguf.error().message();
    gguf_.emplace(std::move(*gguf));
    auto tokenizer = make_tokenizer(*gguf_);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    tokenizer_ = std::move(*tokenizer);
  }

  Tokens encode(std::string_view text) const {
    const auto tokens = tokenizer_->encode(text);
    EXPECT_TRUE(tokens) << tokens.error().message();
    return tokens ? *tokens : Tokens{};
  }

  std::optional<engine::MappedFile> file_;
  std::optional<engine::GgufFile> gguf_;
  std::unique_ptr<engine::Tokenizer> tokenizer_;
};

TEST_F(SmolLM2, KnownIds) {
  EXPECT_EQ(encode("The capital of France is"), (Tokens{504, 3575, 282, 4649, 314}));
  EXPECT_EQ(encode("def f(x):\n    return x ** 2\n"),
            (Tokens{1604, 275, 24, 104, 727, 472, 1003, 1792, 1903, 216, 34, 198}));
  EXPECT_EQ(encode("Straße, naïve café"), (Tokens{48513, 34878, 85, 28, 15486, 46494, 37366}));
  EXPECT_EQ(encode("你好，世界！"),
            (Tokens{18645, 250, 48392, 138, 12831, 7906, 240, 178, 239, 230, 8083, 219}));
  EXPECT_EQ(encode("👨‍👩‍👧 😀"), (Tokens{10813, 235, 118, 321, 231, 10813, 235, 119,
                                                       321, 231, 10813, 235, 117, 40303, 218}));
  EXPECT_EQ(encode("In 2024, 3.14159 ½"),
            (Tokens{788, 216, 34, 32, 34, 36, 28, 216, 35, 30, 33, 36, 33, 37, 41, 216, 16738}));
  EXPECT_EQ(encode("a  b\n\n  c\t"), (Tokens{81, 216, 278, 8866, 265, 197}));
}

TEST_F(SmolLM2, EndsAndBos) {
  EXPECT_EQ(tokenizer_->vocabulary_size(), 49152);
  EXPECT_FALSE(tokenizer_->adds_bos());
  EXPECT_EQ(tokenizer_->bos(), 1);
  EXPECT_EQ(tokenizer_->eos(), 2);
  EXPECT_TRUE(tokenizer_->is_end(0));  // <|endoftext|>
  EXPECT_TRUE(tokenizer_->is_end(2));  // <|im_end|>
  EXPECT_FALSE(tokenizer_->is_end(1));
}

// 21 bytes have no token: six control characters, and bytes of planes 4 to 11 or of no valid UTF-8.
TEST_F(SmolLM2, DecodesWhatItEncoded) {
  constexpr std::string_view kMissing = "\x04\x06\x13\x14\x16\x1d\xf1\xf2";
  const std::uint64_t seed = 135;
  std::mt19937_64 random(seed);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (int round = 0; round < 2000; ++round) {
    const std::string text = random_utf8(random, static_cast<int>(random() % 80));
    std::string expected = text;
    std::erase_if(expected, [&](char c) { return kMissing.find(c) != std::string_view::npos; });
    ASSERT_EQ(tokenizer_->decode(encode(text)), expected) << "round " << round;
  }
}

TEST_F(SmolLM2, ChatTemplateIsItsOwn) {
  const auto source = gguf_->string("tokenizer.chat_template");
  ASSERT_TRUE(source);
  const auto chat = engine::ChatTemplate::detect(*source);
  ASSERT_TRUE(chat) << chat.error().message();
  EXPECT_EQ(chat->default_system(),
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  const std::vector<engine::ChatMessage> hi = {{"user", "Hi"}};
  EXPECT_EQ(chat->render_text(hi),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
            "Face<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  const Tokens expected = {1,    9690,  198,   2683, 359, 253, 5356,  5646, 11173, 3365, 3511,
                           308,  34519, 28,    7018, 411, 407, 19712, 8182, 2,     198,  1,
                           4093, 198,   26843, 2,    198, 1,   520,   9531, 198};
  EXPECT_EQ(*chat->encode(*tokenizer_, hi), expected);
  const std::vector<engine::ChatMessage> turns = {
      {"system", "Be brief."}, {"user", "Hi"}, {"assistant", "Yo"}, {"user", "Bye"}};
  const Tokens expected_turns = {1,     9690, 198, 6077, 5453, 30,   2,   198, 1,   4093, 198,
                                 26843, 2,    198, 1,    520,  9531, 198, 73,  95,  2,    198,
                                 1,     4093, 198, 3087, 85,   2,    198, 1,   520, 9531, 198};
  EXPECT_EQ(*chat->encode(*tokenizer_, turns), expected_turns);
}

}  // namespace
}  // namespace pagekv::testing
