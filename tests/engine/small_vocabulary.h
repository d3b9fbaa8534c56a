// A small byte-level vocabulary as GGUF metadata: for tests and fuzz seeds.
//
//   0 to 255   the bytes, in byte order
//   256 ...    what kMerges make, in their order
//   then       "<|im_start|>", "<|im_end|>", "<|endoftext|>" (control) and "<tool>" (user-defined)
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/bpe_alphabet.h"
#include "tests/engine/gguf_writer.h"

namespace pagekv::testing {

// In bytes; the writer below spells them in the vocabulary's alphabet.
inline const std::vector<std::pair<std::string, std::string>> kMerges = {
    {"h", "e"},    {"l", "l"}, {"he", "ll"}, {"hell", "o"},    {" ", "w"}, {"o", "r"}, {" w", "or"},
    {" wor", "l"}, {"a", "a"}, {"aa", "aa"}, {"\xc3", "\xa9"}, {" ", " "}, {"1", "2"},
};
inline constexpr std::int32_t kFirstMerge = 256;
inline constexpr std::int32_t kImStart = kFirstMerge + 13;
inline constexpr std::int32_t kImEnd = kImStart + 1;
inline constexpr std::int32_t kEndOfText = kImStart + 2;
inline constexpr std::int32_t kTool = kImStart + 3;
inline constexpr std::int32_t kSmallVocabulary = kTool + 1;

inline std::string spell(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) out += engine::alphabet_character(static_cast<std::uint8_t>(c));
  return out;
}

// The arrays of the vocabulary, to be changed by tests before they are written.
struct SmallVocabulary {
  std::string model = "gpt2";
  std::string pre = "smollm";
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<std::string> merges;

  SmallVocabulary() {
    for (int byte = 0; byte < 256; ++byte) add(spell(std::string(1, static_cast<char>(byte))), 1);
    for (const auto& [left, right] : kMerges) {
      add(spell(left + right), 1);
      merges.push_back(spell(left) + " " + spell(right));
    }
    add("<|im_start|>", 3);
    add("<|im_end|>", 3);
    add("<|endoftext|>", 3);
    add("<tool>", 4);
  }

  void add(std::string token, std::int32_t type) {
    tokens.push_back(std::move(token));
    types.push_back(type);
  }

  void write(GgufWriter& writer, std::int32_t bos = kImStart, std::int32_t eos = kImEnd) const {
    writer.string("tokenizer.ggml.model", model);
    writer.string("tokenizer.ggml.pre", pre);
    writer.strings("tokenizer.ggml.tokens", tokens);
    writer.numbers("tokenizer.ggml.token_type", engine::GgufType::i32, types);
    writer.strings("tokenizer.ggml.merges", merges);
    writer.number("tokenizer.ggml.bos_token_id", engine::GgufType::u32,
                  static_cast<std::uint32_t>(bos));
    writer.number("tokenizer.ggml.eos_token_id", engine::GgufType::u32,
                  static_cast<std::uint32_t>(eos));
  }

  std::string gguf() const {
    GgufWriter writer;
    write(writer);
    return writer.finish();
  }
};

}  // namespace pagekv::testing
