// Tokenizer: from text to token ids and back.
//
// The interface every tokenizer implements; one file each (bpe_tokenizer.h, llama2c_tokenizer.h).
// make_tokenizer() picks the one a GGUF file asks for. Immutable once made; safe on any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

class GgufFile;

using Token = std::int32_t;
inline constexpr Token kNoToken = -1;

struct EncodeOptions {
  // Put the beginning-of-text token first, where the model was trained with one (adds_bos()).
  bool bos = true;
  // Read the texts of control tokens ("<|im_end|>") as those tokens. Off for text from users, who
  // could otherwise forge a turn of the conversation.
  bool special = false;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual int vocabulary_size() const = 0;
  virtual Token bos() const = 0;      // beginning of text; kNoToken where the model has none
  virtual Token eos() const = 0;      // end of text; kNoToken where the model has none
  virtual bool adds_bos() const = 0;  // whether a text begins with bos()
  // Whether generation ends with this token: end of text or end of a turn.
  virtual bool is_end(Token token) const = 0;
  // Whether the token stands for no text (control tokens such as bos).
  virtual bool is_control(Token token) const = 0;

  // Errors: invalid_argument (text that is not UTF-8; numbers: offset and value of the byte).
  virtual Result<std::vector<Token>> encode(std::string_view text,
                                            EncodeOptions options = {}) const = 0;

  // Appends the bytes that `token` stands for when it follows `previous` (kNoToken: at the
  // beginning); nothing for control tokens and ids outside the vocabulary.
  virtual void append_text(Token token, Token previous, std::string& out) const = 0;

  // The bytes of a run of tokens. May be no valid UTF-8 where the run begins or ends inside a
  // character; TextStream is for those who need text.
  std::string decode(std::span<const Token> tokens) const;
};

// Turns tokens into text while they are generated. push() returns what is complete: bytes of an
// unfinished character are held back, and what belongs to no character becomes U+FFFD, so all that
// it returns is valid UTF-8. Borrows the tokenizer. One thread at a time.
class TextStream {
 public:
  // `previous`: the token before the first one pushed.
  explicit TextStream(const Tokenizer& tokenizer, Token previous = kNoToken)
      : tokenizer_(&tokenizer), previous_(previous) {}

  std::string push(Token token);
  std::string flush();  // what was held back, at the end of the text

 private:
  const Tokenizer* tokenizer_;
  Token previous_;
  std::string held_;
};

// The tokenizer described by a GGUF file's metadata. Copies what it needs. Errors: unsupported (a
// kind or pre-tokenizer not known; the text lists the known ones), corrupt_file.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(const GgufFile& file);

}  // namespace pagekv::inline v0::engine
