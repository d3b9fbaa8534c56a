#include "engine/llama2c_tokenizer.h"

#include <cmath>
#include <cstdio>
#include <limits>

#include "engine/byte_reader.h"
#include "engine/unicode.h"

namespace pagekv::inline v0::engine {
namespace {

constexpr Token kBos = 1;
constexpr Token kEos = 2;
constexpr Token kFirstByte = 3;
constexpr std::int64_t kLeastVocabulary = kFirstByte + 256;
constexpr std::int64_t kLeastTokenBytes = 8;  // of a token in the file

bool is_byte(Token token) {
  return token >= kFirstByte && token < kLeastVocabulary;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Llama2cTokenizer::parse(std::span<const std::byte> bytes,
                                                           std::int64_t vocabulary_size) {
  if (vocabulary_size < kLeastVocabulary || vocabulary_size > std::numeric_limits<Token>::max()) {
    return fail(ErrorCode::corrupt_file, "a vocabulary of {0} tokens; {1} or more are needed",
                {vocabulary_size, kLeastVocabulary});
  }
  ByteReader reader(bytes);
  reader.set_subject("the tokenizer's header", -1);
  const auto longest = reader.read<std::int32_t>("longest token");
  if (!longest) return tl::unexpected(longest.error());
  if (vocabulary_size > reader.remaining() / kLeastTokenBytes) {
    return fail(ErrorCode::corrupt_file, "a tokenizer of {0} bytes cannot hold {1} tokens",
                {static_cast<std::int64_t>(bytes.size()), vocabulary_size});
  }
  std::unique_ptr<Llama2cTokenizer> out(new Llama2cTokenizer);
  for (std::int64_t i = 0; i < vocabulary_size; ++i) {
    if (auto status = out->read_token(reader, i); !status) return tl::unexpected(status.error());
  }
  if (reader.remaining() != 0) {
    return fail(ErrorCode::corrupt_file, "{0} bytes behind the last of {1} tokens, at byte {2}",
                {reader.remaining(), vocabulary_size, reader.offset()});
  }
  return std::unique_ptr<Tokenizer>(std::move(out));
}

Status Llama2cTokenizer::read_token(ByteReader& reader, std::int64_t index) {
  reader.set_subject("token", index);
  const std::int64_t at = reader.offset();
  const auto score = reader.read<float>("score");
  if (!score) return tl::unexpected(score.error());
  const auto length = reader.read<std::int32_t>("length");
  if (!length) return tl::unexpected(length.error());
  if (!std::isfinite(*score) || *length < 0) {
    return fail(ErrorCode::corrupt_file,
                "token {0} at byte {1}: a score that is not finite, or the length {2}",
                {index, at, *length});
  }
  const auto bytes = reader.take(static_cast<std::uint64_t>(*length), "text");
  if (!bytes) return tl::unexpected(bytes.error());
  std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  const auto token = static_cast<Token>(index);
  if (is_byte(token)) {
    const int byte = token - kFirstByte;
    char expected[8];
    std::snprintf(expected, sizeof expected, "<0x%02X>", static_cast<unsigned>(byte));
    if (text != expected) {
      return fail(ErrorCode::corrupt_file, "token {0} at byte {1} is {s}", {index, at},
                  quoted(text) + ", expected '" + expected + "'");
    }
    texts_.emplace_back(1, static_cast<char>(byte));
  } else {
    texts_.push_back(text);
  }
  scores_.push_back(*score);
  ids_.try_emplace(std::move(text), token);
  return {};
}

Token Llama2cTokenizer::bos() const {
  return kBos;
}
Token Llama2cTokenizer::eos() const {
  return kEos;
}
bool Llama2cTokenizer::is_end(Token token) const {
  return token == kBos || token == kEos;
}
bool Llama2cTokenizer::is_control(Token token) const {
  return token == kBos || token == kEos;
}

std::optional<Merge> Llama2cTokenizer::find_merge(Token left, Token right) const {
  const auto found =
      ids_.find(texts_[static_cast<std::size_t>(left)] + texts_[static_cast<std::size_t>(right)]);
  if (found == ids_.end()) return std::nullopt;
  return Merge{-static_cast<double>(scores_[static_cast<std::size_t>(found->second)]),
               found->second};
}

Result<std::vector<Token>> Llama2cTokenizer::encode(std::string_view text,
                                                    EncodeOptions options) const {
  if (auto status = check_utf8(text); !status) return tl::unexpected(status.error());
  std::vector<Token> symbols;
  const std::string spaced = text.empty() ? std::string() : " " + std::string(text);
  for (std::size_t at = 0; at < spaced.size();) {
    const std::string character =
        spaced.substr(at, utf8_character_bytes(std::string_view(spaced).substr(at)));
    const auto found = ids_.find(character);
    if (found != ids_.end()) {
      symbols.push_back(found->second);
    } else {
      for (const char c : character) symbols.push_back(kFirstByte + static_cast<unsigned char>(c));
    }
    at += character.size();
  }
  merge_tokens(symbols, [this](Token left, Token right) { return find_merge(left, right); });
  if (options.bos) symbols.insert(symbols.begin(), kBos);
  return symbols;
}

void Llama2cTokenizer::append_text(Token token, Token previous, std::string& out) const {
  if (token < 0 || token >= vocabulary_size() || is_control(token)) return;
  const std::string_view text = texts_[static_cast<std::size_t>(token)];
  const bool first = previous == kBos || previous == kNoToken;
  out += first && text.starts_with(' ') ? text.substr(1) : text;
}

}  // namespace pagekv::inline v0::engine
