// The llama2.c formats: checkpoint and tokenizer, small ones made here and the stories260K files.
#include "engine/llama2c.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>

#include "engine/llama2c_tokenizer.h"
#include "engine/mapped_file.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/random_text.h"
#include "tests/engine/test_data.h"

namespace pagekv::testing {
namespace {

using engine::Llama2cTokenizer;
using engine::parse_llama2c;
using engine::Token;
using Tokens = std::vector<Token>;

// dim 4, hidden 6, 2 layers, 2 heads, 1 kv head, vocabulary 5, context 3. Element i holds i.
std::string checkpoint(std::int32_t vocabulary = 5) {
  std::string out;
  for (const std::int32_t field : {4, 6, 2, 2, 1, vocabulary, 3}) out += raw(field);
  const int layer = 4 + 16 + 8 + 8 + 16 + 4 + 24 + 24 + 24;
  const int elements = 20 + 2 * layer + 4 + 3 * 2 + (vocabulary < 0 ? 20 : 0);
  for (int i = 0; i < elements; ++i) out += raw(static_cast<float>(i));
  return out;
}

float first(const engine::Llama2cModel& model, std::string_view name) {
  const engine::TensorView* tensor = model.find_tensor(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return -1;
  std::vector<float> row(static_cast<std::size_t>(tensor->columns()));
  EXPECT_TRUE(widen(*tensor, 0, 1, row));
  return row[0];
}

TEST(Llama2c, FindsEveryTensor) {
  const std::string bytes = checkpoint();
  const auto model = parse_llama2c(as_bytes(bytes));
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->dim, 4);
  EXPECT_EQ(model->head_dim(), 2);
  EXPECT_EQ(model->kv_heads, 1);
  EXPECT_EQ(model->vocabulary_size, 5);
  EXPECT_FALSE(model->separate_classifier);
  EXPECT_EQ(model->tensors.size(), 2u + 2 * 9);
  // Each kind of weight is stored for all layers before the next kind.
  EXPECT_EQ(first(*model, "token_embd.weight"), 0);
  EXPECT_EQ(first(*model, "blk.0.attn_norm.weight"), 20);
  EXPECT_EQ(first(*model, "blk.1.attn_norm.weight"), 24);
  EXPECT_EQ(first(*model, "blk.0.attn_q.weight"), 28);
  EXPECT_EQ(first(*model, "blk.0.attn_k.weight"), 60);
  EXPECT_EQ(first(*model, "blk.1.attn_k.weight"), 68);
  EXPECT_EQ(first(*model, "blk.0.attn_v.weight"), 76);
  EXPECT_EQ(first(*model, "blk.0.attn_output.weight"), 92);
  EXPECT_EQ(first(*model, "blk.0.ffn_norm.weight"), 124);
  EXPECT_EQ(first(*model, "blk.0.ffn_gate.weight"), 132);
  EXPECT_EQ(first(*model, "blk.0.ffn_down.weight"), 180);
  EXPECT_EQ(first(*model, "blk.0.ffn_up.weight"), 228);
  EXPECT_EQ(first(*model, "output_norm.weight"), 276);
  EXPECT_EQ(model->find_tensor("output.weight"), nullptr);
  const engine::TensorView* down = model->find_tensor("blk.1.ffn_down.weight");
  EXPECT_EQ(down->shape, (std::vector<std::int64_t>{6, 4}));
}

TEST(Llama2c, NegativeVocabularyMeansItsOwnClassifier) {
  const std::string bytes = checkpoint(-5);
  const auto model = parse_llama2c(as_bytes(bytes));
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_TRUE(model->separate_classifier);
  EXPECT_EQ(model->vocabulary_size, 5);
  EXPECT_EQ(first(*model, "output.weight"), 286);  // behind the two RoPE tables
}

TEST(Llama2c, RefusesBadSizes) {
  const auto error_with = [](int field, std::int32_t value) {
    std::string bytes = checkpoint();
    bytes.replace(static_cast<std::size_t>(field) * 4, 4, raw(value));
    const auto model = parse_llama2c(as_bytes(bytes));
    return model ? "no error" : model.error().message();
  };
  EXPECT_EQ(error_with(0, 0), "no llama2.c checkpoint: the dim at byte 0 is 0");
  EXPECT_EQ(error_with(4, -1), "no llama2.c checkpoint: the number of kv heads at byte 16 is -1");
  EXPECT_EQ(
      error_with(3, 3),
      "no llama2.c checkpoint: dim 4, 3 heads, 1 kv heads do not divide into heads of an even "
      "size");
  EXPECT_NE(error_with(3, 4).find("even size"), std::string::npos);
  EXPECT_NE(error_with(2, 2147483647).find("truncated at byte"), std::string::npos);
  EXPECT_NE(error_with(1, 2147483647).find("tensor 'blk.0.ffn_gate.weight' needs"),
            std::string::npos);
  EXPECT_NE(error_with(5, -2147483647 - 1).find("truncated"), std::string::npos);
  EXPECT_EQ(error_with(6, 2),
            "8 bytes behind the weights, at byte 1164: the header is not of this file");
}

TEST(Llama2c, EveryPrefixIsRefused) {
  const std::string good = checkpoint(-5);
  for (std::size_t length = 0; length < good.size(); ++length) {
    const auto copy = std::make_unique<std::byte[]>(length);
    std::memcpy(copy.get(), good.data(), length);
    const auto model = parse_llama2c({copy.get(), length});
    ASSERT_FALSE(model) << length;
    EXPECT_EQ(model.error().code(), ErrorCode::corrupt_file);
  }
}

// Bytes and a few words; scores rise with the index.
std::string tokenizer_file(int extra_words = 4) {
  std::string out = raw(std::int32_t{8});
  const auto add = [&out](float score, const std::string& text) {
    out += raw(score) + raw(static_cast<std::int32_t>(text.size())) + text;
  };
  add(0, "<unk>");
  add(0, "\n<s>\n");
  add(0, "\n</s>\n");
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", static_cast<unsigned>(byte));
    add(0, text);
  }
  const std::vector<std::string> words = {" ", "a", "aa", " a"};
  for (int i = 0; i < extra_words; ++i) {
    add(static_cast<float>(i), words[static_cast<std::size_t>(i)]);
  }
  return out;
}

TEST(Llama2cTokenizer, JoinsTheBestScoreFirst) {
  const std::string bytes = tokenizer_file();
  const auto made = Llama2cTokenizer::parse(as_bytes(bytes), 263);
  ASSERT_TRUE(made) << made.error().message();
  const engine::Tokenizer& tokenizer = **made;
  EXPECT_EQ(*tokenizer.encode("aaa"), (Tokens{1, 262, 261}));  // " a" beats "aa"
  EXPECT_EQ(*tokenizer.encode("", {.bos = true}), Tokens{1});
  EXPECT_EQ(*tokenizer.encode("é", {.bos = false}), (Tokens{259, 3 + 0xc3, 3 + 0xa9}));
  EXPECT_EQ(tokenizer.decode(Tokens{1, 262, 261, 2}), "aaa");
  EXPECT_EQ(tokenizer.decode(Tokens{260, 262}), "a a");
  EXPECT_TRUE(tokenizer.is_end(1));
  EXPECT_TRUE(tokenizer.is_end(2));
  EXPECT_FALSE(tokenizer.is_end(260));
  EXPECT_EQ(tokenizer.encode("\xff").error().number(0), 0);
}

TEST(Llama2cTokenizer, RefusesBadFiles) {
  const std::string good = tokenizer_file();
  const std::string size = std::to_string(good.size());
  const auto error_of = [](const std::string& bytes, std::int64_t vocabulary_size) {
    const auto tokenizer = Llama2cTokenizer::parse(as_bytes(bytes), vocabulary_size);
    return tokenizer ? "no error" : tokenizer.error().message();
  };
  EXPECT_EQ(error_of(good, 258), "a vocabulary of 258 tokens; 259 or more are needed");
  EXPECT_EQ(error_of(good, 264),
            "truncated at byte " + size + ": the score of token 263 needs 4 bytes, 0 left");
  EXPECT_EQ(error_of(good, 262),
            "10 bytes behind the last of 262 tokens, at byte " + std::to_string(good.size() - 10));
  EXPECT_EQ(error_of(good, 2000000000),
            "a tokenizer of " + size + " bytes cannot hold 2000000000 tokens");
  std::string bytes = good;
  const std::size_t letter = bytes.find("<0x41>");
  bytes.replace(letter, 6, "<0x42>");
  EXPECT_EQ(error_of(bytes, 263),
            "token 68 at byte " + std::to_string(letter - 8) + " is '<0x42>', expected '<0x41>'");
  bytes = good;
  bytes.replace(4, 4, raw(NAN));
  EXPECT_NE(error_of(bytes, 263).find("not finite"), std::string::npos);
  bytes = good;
  bytes.replace(8, 4, raw(std::int32_t{-1}));
  EXPECT_NE(error_of(bytes, 263).find("length -1"), std::string::npos);
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(Llama2cTokenizer::parse(as_bytes(good).first(length), 263));
  }
}

class Stories260K : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto folder = data_folder() / "stories260K";
    if (!std::filesystem::exists(folder / "stories260K.bin")) {
      GTEST_SKIP() << "no stories260K under " << data_folder() << "; set PAGEKV_DATA";
    }
    folder_ = folder;
    auto file = engine::MappedFile::open(folder / "tok512.bin");
    ASSERT_TRUE(file) << file.error().message();
    tokenizer_bytes_.assign(reinterpret_cast<const char*>(file->bytes().data()),
                            file->bytes().size());
    auto made = Llama2cTokenizer::parse(as_bytes(tokenizer_bytes_), 512);
    ASSERT_TRUE(made) << made.error().message();
    tokenizer_ = std::move(*made);
  }

  std::string read(const char* name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::filesystem::path folder_;
  std::string tokenizer_bytes_;
  std::unique_ptr<engine::Tokenizer> tokenizer_;
};

TEST_F(Stories260K, CheckpointHasItsDocumentedShapes) {
  const auto file = engine::MappedFile::open(folder_ / "stories260K.bin");
  ASSERT_TRUE(file);
  const auto model = parse_llama2c(file->bytes());
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(model->dim, 64);
  EXPECT_EQ(model->hidden_dim, 172);
  EXPECT_EQ(model->layers, 5);
  EXPECT_EQ(model->heads, 8);
  EXPECT_EQ(model->kv_heads, 4);
  EXPECT_EQ(model->head_dim(), 8);
  EXPECT_EQ(model->vocabulary_size, 512);
  EXPECT_EQ(model->context_tokens, 512);
  EXPECT_FALSE(model->separate_classifier);
}

template <typename T>
T load_at(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Scan for the best pair, join it, again: what the format's own program does.
Tokens encode_slowly(std::string_view file, const std::string& text) {
  std::map<std::string, Token> ids;
  std::vector<std::string> texts;
  std::vector<float> scores;
  for (std::size_t at = 4; at < file.size();) {
    scores.push_back(load_at<float>(file, at));
    const auto length = load_at<std::int32_t>(file, at + 4);
    texts.emplace_back(file.substr(at + 8, static_cast<std::size_t>(length)));
    ids.try_emplace(texts.back(), static_cast<Token>(texts.size()) - 1);
    at += 8 + static_cast<std::size_t>(length);
  }
  Tokens tokens;
  for (const char c : " " + text) {  // ASCII
    const auto found = ids.find(std::string(1, c));
    tokens.push_back(found == ids.end() ? 3 + static_cast<unsigned char>(c) : found->second);
  }
  for (;;) {
    float best_score = -1e10f;
    std::size_t best = tokens.size();
    for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
      const auto found = ids.find(texts[static_cast<std::size_t>(tokens[i])] +
                                  texts[static_cast<std::size_t>(tokens[i + 1])]);
      if (found == ids.end()) continue;
      const float score = scores[static_cast<std::size_t>(found->second)];
      if (score > best_score) {
        best_score = score;
        best = i;
      }
    }
    if (best == tokens.size()) break;
    tokens[best] = ids.at(texts[static_cast<std::size_t>(tokens[best])] +
                          texts[static_cast<std::size_t>(tokens[best + 1])]);
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  tokens.insert(tokens.begin(), 1);
  return tokens;
}

TEST_F(Stories260K, EncodesTheStoriesAsTheDefinitionSays) {
  for (const char* name : {"greedy-256.txt", "greedy-512.txt", "greedy-lily-128.txt"}) {
    const std::string text = read(name);
    ASSERT_FALSE(text.empty());
    const auto tokens = tokenizer_->encode(text);
    ASSERT_TRUE(tokens);
    EXPECT_EQ(*tokens, encode_slowly(tokenizer_bytes_, text)) << name;
    EXPECT_EQ(tokenizer_->decode(*tokens), text) << name;
  }
  EXPECT_EQ(*tokenizer_->encode("Lily and Tom went to the park"),
            (Tokens{1, 317, 269, 274, 287, 263, 377, 267, 265, 282, 295, 433}));
}

TEST_F(Stories260K, DecodesWhatItEncoded) {
  const std::uint64_t seed = 260;
  std::mt19937_64 random(seed);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  for (int round = 0; round < 1000; ++round) {
    const std::string text = random_utf8(random, static_cast<int>(random() % 60));
    const auto tokens = tokenizer_->encode(text);
    ASSERT_TRUE(tokens);
    ASSERT_EQ(tokenizer_->decode(*tokens), text) << "round " << round;
  }
  const std::string flood(100'000, 'l');
  EXPECT_EQ(tokenizer_->decode(*tokenizer_->encode(flood)), flood);
}

}  // namespace
}  // namespace pagekv::testing
