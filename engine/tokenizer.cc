#include "engine/tokenizer.h"

#include <utility>

#include "engine/bpe_tokenizer.h"
#include "engine/byte_reader.h"
#include "engine/gguf.h"
#include "engine/unicode.h"

namespace pagekv::inline v0::engine {

std::string Tokenizer::decode(std::span<const Token> tokens) const {
  std::string out;
  Token previous = kNoToken;
  for (const Token token : tokens) {
    append_text(token, previous, out);
    previous = token;
  }
  return out;
}

std::string TextStream::push(Token token) {
  tokenizer_->append_text(token, previous_, held_);
  previous_ = token;
  return take_complete_utf8(held_);
}

std::string TextStream::flush() {
  return repair_utf8(std::exchange(held_, {}));
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const GgufFile& file) {
  const auto model = file.string("tokenizer.ggml.model");
  if (!model) return tl::unexpected(model.error());
  if (*model == "gpt2") return BpeTokenizer::make(file);
  return fail(ErrorCode::unsupported,
              "tokenizer {s}; known is 'gpt2' (byte-level byte-pair encoding)", {}, quoted(*model));
}

}  // namespace pagekv::inline v0::engine
