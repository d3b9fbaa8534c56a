// Tokenizers from hostile metadata, on hostile text.
//
// The first byte chooses how the rest is read:
//   0      u16 length of the text, the text, then a whole GGUF file
//   n > 0  lines of further merges, a zero byte, lines of further tokens (each begins with the
//   digit of
//          its type), a zero byte, the text; the vocabulary is the tests' small one with these
//          added, n chooses its pre-tokenizer
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat.h"
#include "engine/gguf.h"
#include "engine/tokenizer.h"
#include "engine/unicode.h"
#include "fuzz/require.h"
#include "tests/engine/small_vocabulary.h"

namespace {

using pagekv::engine::GgufFile;
using pagekv::engine::TextStream;
using pagekv::engine::Token;
using pagekv::engine::Tokenizer;
using pagekv::fuzz::require;
using pagekv::testing::as_bytes;
using pagekv::testing::SmallVocabulary;

// `every_byte`: all bytes have tokens, so that any text decodes to itself.
void encode_and_decode(const Tokenizer& tokenizer, std::string_view text, bool every_byte) {
  const bool valid = pagekv::engine::check_utf8(text).has_value();
  for (const bool special : {false, true}) {
    const auto tokens = tokenizer.encode(text, {.bos = false, .special = special});
    require(tokens.has_value() == valid, "valid text can be encoded, other text cannot");
    if (!tokens) continue;
    for (const Token token : *tokens) {
      require(token >= 0 && token < tokenizer.vocabulary_size(), "tokens are in the vocabulary");
    }
    if (every_byte && !special)
      require(tokenizer.decode(*tokens) == text, "text decodes to itself");
  }
  // Any ids can be decoded, those outside the vocabulary too.
  TextStream stream(tokenizer);
  std::string streamed;
  std::vector<Token> ids;
  for (const char c : text) {
    ids.push_back(static_cast<Token>(c) * 7 + 100);
    streamed += stream.push(ids.back());
  }
  streamed += stream.flush();
  require(streamed == pagekv::engine::repair_utf8(tokenizer.decode(ids)),
          "a stream gives the repaired text");
}

// What a user writes never becomes a control token, whatever the vocabulary.
void chat(const Tokenizer& tokenizer, std::string_view text) {
  const auto chat_template = pagekv::engine::ChatTemplate::detect("<|im_start|>");
  const std::vector<pagekv::engine::ChatMessage> messages = {{"user", std::string(text)}};
  const auto tokens = chat_template->encode(tokenizer, messages);
  if (!tokens) return;
  const std::ptrdiff_t bos = tokenizer.adds_bos() ? 1 : 0;
  const auto controls = std::count_if(tokens->begin() + bos, tokens->end(),
                                      [&](Token token) { return tokenizer.is_control(token); });
  require(controls == 3, "a chat has the template's control tokens only");
}

void whole_file(std::string_view input) {
  if (input.size() < 2) return;
  const std::size_t length = static_cast<unsigned char>(input[0]) |
                             static_cast<std::size_t>(static_cast<unsigned char>(input[1])) << 8;
  input.remove_prefix(2);
  const std::string_view text = input.substr(0, length);
  // A copy of its own, so that reading past its end is seen.
  const std::string gguf(input.substr(text.size()));
  const auto file = GgufFile::parse(as_bytes(gguf));
  if (!file) return;
  const auto tokenizer = make_tokenizer(*file);
  if (!tokenizer) {
    require(!tokenizer.error().message().empty(), "an error has a text");
    return;
  }
  encode_and_decode(**tokenizer, text, false);
  chat(**tokenizer, text);
}

// Cuts a part that ends with `end` off `rest`.
std::string_view cut(std::string_view& rest, char end) {
  const std::string_view part = rest.substr(0, rest.find(end));
  rest.remove_prefix(std::min(part.size() + 1, rest.size()));
  return part;
}

void small_vocabulary(std::string_view input) {
  static constexpr std::array kPre = {"gpt-2", "llama-bpe", "qwen2", "smollm"};
  SmallVocabulary vocabulary;
  vocabulary.pre = kPre[static_cast<unsigned char>(input[0]) % kPre.size()];
  input.remove_prefix(1);
  std::string_view merges = cut(input, '\0');
  std::string_view tokens = cut(input, '\0');
  while (!tokens.empty()) {
    const std::string_view line = cut(tokens, '\n');
    if (!line.empty()) vocabulary.add(std::string(line.substr(1)), line[0] - '0');
  }
  while (!merges.empty()) vocabulary.merges.emplace_back(cut(merges, '\n'));
  const std::string gguf = vocabulary.gguf();
  const auto file = GgufFile::parse(as_bytes(gguf));
  require(file.has_value(), "what the writer writes can be read");
  const auto tokenizer = make_tokenizer(*file);
  if (!tokenizer) return;
  encode_and_decode(**tokenizer, input, true);
  chat(**tokenizer, input);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) return 0;
  if (input[0] == '\0') {
    whole_file(input.substr(1));
  } else {
    small_vocabulary(input);
  }
  return 0;
}
