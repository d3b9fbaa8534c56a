#include "engine/bpe_tokenizer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/bpe_alphabet.h"
#include "engine/byte_reader.h"
#include "engine/gguf.h"
#include "engine/unicode.h"

namespace pagekv::inline v0::engine {
namespace {

// Numbers of tokenizer.ggml.token_type.
constexpr std::int64_t kNormal = 1;
constexpr std::int64_t kUnknown = 2;
constexpr std::int64_t kControl = 3;
constexpr std::int64_t kUserDefined = 4;
constexpr std::int64_t kUnused = 5;

// Control tokens that end a text or a turn, whatever eos_token_id says: chat models name one of
// them there and were trained with others too.
constexpr std::array<std::string_view, 6> kEndTexts = {
    "<|endoftext|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>"};

std::uint64_t pair_key(Token left, Token right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

// The token id under `key`, or kNoToken where the key is absent.
Result<Token> read_token_id(const GgufFile& file, std::string_view key, int vocabulary_size) {
  const auto id = file.integer_or(key, kNoToken);
  if (!id) return tl::unexpected(id.error());
  if (file.find(key) != nullptr && (*id < 0 || *id >= vocabulary_size)) {
    return fail(ErrorCode::corrupt_file, "metadata key {s} is {0}; the vocabulary has {1} tokens",
                {*id, vocabulary_size}, quoted(key));
  }
  return static_cast<Token>(*id);
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> BpeTokenizer::make(const GgufFile& file) {
  const auto pre = file.string("tokenizer.ggml.pre");
  if (!pre) return tl::unexpected(pre.error());
  auto pretokenizer = PreTokenizer::make(*pre);
  if (!pretokenizer) return tl::unexpected(pretokenizer.error());
  std::unique_ptr<BpeTokenizer> out(new BpeTokenizer(std::move(*pretokenizer)));
  if (auto status = out->read_tokens(file); !status) return tl::unexpected(status.error());
  if (auto status = out->read_merges(file); !status) return tl::unexpected(status.error());
  if (auto status = out->read_ends(file); !status) return tl::unexpected(status.error());
  return std::unique_ptr<Tokenizer>(std::move(out));
}

Status BpeTokenizer::read_tokens(const GgufFile& file) {
  const auto tokens = file.strings("tokenizer.ggml.tokens");
  if (!tokens) return tl::unexpected(tokens.error());
  if (tokens->empty() ||
      tokens->size() > static_cast<std::size_t>(std::numeric_limits<Token>::max())) {
    return fail(ErrorCode::corrupt_file, "a vocabulary of {0} tokens",
                {static_cast<std::int64_t>(tokens->size())});
  }
  std::vector<std::int64_t> types(tokens->size(), kNormal);
  if (file.find("tokenizer.ggml.token_type") != nullptr) {
    auto read = file.integers("tokenizer.ggml.token_type");
    if (!read) return tl::unexpected(read.error());
    if (read->size() != tokens->size()) {
      return fail(
          ErrorCode::corrupt_file, "{0} token types for {1} tokens",
          {static_cast<std::int64_t>(read->size()), static_cast<std::int64_t>(tokens->size())});
    }
    types = std::move(*read);
  }
  texts_.reserve(tokens->size());
  control_.assign(tokens->size(), false);
  for (std::size_t i = 0; i < tokens->size(); ++i) {
    const std::string_view text = (*tokens)[i];
    auto bytes = types[i] == kNormal ? bytes_from_alphabet(text) : std::nullopt;
    // A token that the alphabet cannot spell is kept as it is written, and no text makes it.
    if (types[i] == kNormal && !bytes) types[i] = kUnused;
    texts_.push_back(bytes ? std::move(*bytes) : std::string(text));
    control_[i] = types[i] == kControl || types[i] == kUnknown;
  }
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (types[i] == kNormal) words_.try_emplace(texts_[i], token);
    // One that is no UTF-8 could match inside a character and leave halves for the pre-tokenizer.
    const bool special = control_[i] || types[i] == kUserDefined;
    if (special && check_utf8(texts_[i])) specials_.add(texts_[i], token, control_[i]);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const auto found = words_.find(std::string_view(&text, 1));
    byte_tokens_[static_cast<std::size_t>(byte)] = found == words_.end() ? kNoToken : found->second;
  }
  return {};
}

Status BpeTokenizer::read_merges(const GgufFile& file) {
  const auto merges = file.strings("tokenizer.ggml.merges");
  if (!merges) return tl::unexpected(merges.error());
  const auto token_of = [this](std::string_view spelt) {
    const auto bytes = bytes_from_alphabet(spelt);
    const auto found = bytes ? words_.find(*bytes) : words_.end();
    return found == words_.end() ? kNoToken : found->second;
  };
  merges_.reserve(merges->size());
  for (std::size_t rank = 0; rank < merges->size(); ++rank) {
    // "left right": a space inside a part is spelt otherwise.
    const std::string_view merge = (*merges)[rank];
    const std::size_t space = merge.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == merge.size()) {
      return fail(ErrorCode::corrupt_file, "merge {0} is {s}, not two tokens with a space between",
                  {static_cast<std::int64_t>(rank)}, quoted(merge));
    }
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = merge.substr(space + 1);
    const Token left_token = token_of(left);
    const Token right_token = token_of(right);
    const Token result = token_of(std::string(left).append(right));
    if (left_token == kNoToken || right_token == kNoToken || result == kNoToken) {
      return fail(ErrorCode::corrupt_file,
                  "merge {0}, {s}: the parts and what they make must be in the vocabulary",
                  {static_cast<std::int64_t>(rank)}, quoted(merge));
    }
    merges_.try_emplace(pair_key(left_token, right_token),
                        Merge{static_cast<double>(rank), result});
  }
  return {};
}

Status BpeTokenizer::read_ends(const GgufFile& file) {
  const auto bos = read_token_id(file, "tokenizer.ggml.bos_token_id", vocabulary_size());
  if (!bos) return tl::unexpected(bos.error());
  const auto eos = read_token_id(file, "tokenizer.ggml.eos_token_id", vocabulary_size());
  if (!eos) return tl::unexpected(eos.error());
  const auto eot = read_token_id(file, "tokenizer.ggml.eot_token_id", vocabulary_size());
  if (!eot) return tl::unexpected(eot.error());
  const auto adds_bos = file.boolean_or("tokenizer.ggml.add_bos_token", pretokenizer_.adds_bos());
  if (!adds_bos) return tl::unexpected(adds_bos.error());
  if (*adds_bos && *bos == kNoToken) {
    return fail(ErrorCode::corrupt_file,
                "texts begin with a bos token, but 'tokenizer.ggml.bos_token_id' is missing");
  }
  bos_ = *bos;
  eos_ = *eos;
  adds_bos_ = *adds_bos;
  end_.assign(texts_.size(), false);
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    const auto token = static_cast<Token>(i);
    end_[i] = token == *eos || token == *eot ||
              (control_[i] &&
               std::find(kEndTexts.begin(), kEndTexts.end(), texts_[i]) != kEndTexts.end());
  }
  return {};
}

bool BpeTokenizer::is_end(Token token) const {
  return token >= 0 && token < vocabulary_size() && end_[static_cast<std::size_t>(token)];
}

bool BpeTokenizer::is_control(Token token) const {
  return token >= 0 && token < vocabulary_size() && control_[static_cast<std::size_t>(token)];
}

std::optional<Merge> BpeTokenizer::find_merge(Token left, Token right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? std::nullopt : std::optional<Merge>(found->second);
}

Result<std::vector<Token>> BpeTokenizer::encode(std::string_view text,
                                                EncodeOptions options) const {
  if (auto status = check_utf8(text); !status) return tl::unexpected(status.error());
  std::vector<Token> out;
  if (options.bos && adds_bos_) out.push_back(bos_);
  for (std::size_t at = 0; at < text.size();) {
    const auto special = specials_.find(text, at, options.special);
    const std::size_t end = special ? special->begin : text.size();
    if (auto status = encode_plain(text.substr(at, end - at), out); !status) {
      return tl::unexpected(status.error());
    }
    if (!special) break;
    out.push_back(special->token);
    at = special->begin + special->length;
  }
  return out;
}

Status BpeTokenizer::encode_plain(std::string_view text, std::vector<Token>& out) const {
  if (text.empty()) return {};
  const auto words = pretokenizer_.split(text);
  if (!words) return tl::unexpected(words.error());
  std::vector<Token> scratch;
  for (const std::string_view word : *words) encode_word(word, scratch, out);
  return {};
}

void BpeTokenizer::encode_word(std::string_view word, std::vector<Token>& scratch,
                               std::vector<Token>& out) const {
  if (pretokenizer_.whole_words()) {
    const auto found = words_.find(word);
    if (found != words_.end()) {
      out.push_back(found->second);
      return;
    }
  }
  scratch.clear();
  for (const char c : word) {
    const Token token = byte_tokens_[static_cast<unsigned char>(c)];
    if (token != kNoToken) scratch.push_back(token);
  }
  merge_tokens(scratch, [this](Token left, Token right) { return find_merge(left, right); });
  out.insert(out.end(), scratch.begin(), scratch.end());
}

void BpeTokenizer::append_text(Token token, Token /*previous*/, std::string& out) const {
  if (token < 0 || token >= vocabulary_size() || is_control(token)) return;
  out += texts_[static_cast<std::size_t>(token)];
}

}  // namespace pagekv::inline v0::engine
