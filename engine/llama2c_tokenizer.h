// Llama2cTokenizer: the tokenizer file that goes with a llama2.c checkpoint.
//
//   i32: length of the longest token; then per token: f32 score, i32 length, bytes
//
// SentencePiece in the small: a text gets a space in front, is cut into characters (bytes where the
// vocabulary lacks one), and of all neighbours that make a token those with the best score are
// joined first. Tokens 0, 1, 2 are unknown, bos and eos; 3 to 258 are the bytes. Every text begins
// with bos; the space in front is taken off again behind it. EncodeOptions::special has no effect:
// no text stands for a control token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/bpe.h"
#include "engine/tokenizer.h"

namespace pagekv::inline v0::engine {

class Llama2cTokenizer final : public Tokenizer {
 public:
  // `vocabulary_size` comes from the checkpoint. Copies what it needs. Errors: corrupt_file.
  static Result<std::unique_ptr<Tokenizer>> parse(std::span<const std::byte> bytes,
                                                  std::int64_t vocabulary_size);

  int vocabulary_size() const override { return static_cast<int>(texts_.size()); }
  Token bos() const override;
  Token eos() const override;
  bool adds_bos() const override { return true; }
  bool is_end(Token token) const override;  // bos too: stories are strung together with it
  bool is_control(Token token) const override;
  Result<std::vector<Token>> encode(std::string_view text, EncodeOptions options) const override;
  void append_text(Token token, Token previous, std::string& out) const override;

 private:
  Llama2cTokenizer() = default;
  Status read_token(class ByteReader& reader, std::int64_t index);
  std::optional<Merge> find_merge(Token left, Token right) const;

  std::vector<std::string> texts_;
  std::vector<float> scores_;
  std::unordered_map<std::string, Token> ids_;  // of two tokens with one text the first
};

}  // namespace pagekv::inline v0::engine
