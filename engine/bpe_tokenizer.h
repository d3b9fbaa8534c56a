// BpeTokenizer: byte-level byte-pair encoding as GPT-2 defined it, from GGUF metadata.
//
// Reads tokenizer.ggml.{pre, tokens, merges, token_type, bos_token_id, eos_token_id, eot_token_id,
// add_bos_token}. Some vocabularies lack tokens for bytes their training text never had (SmolLM2:
// six control characters and the lead bytes of planes 4 to 11). As in the reference implementation
// such bytes are dropped from the text; every other text decodes to itself.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/bpe.h"
#include "engine/bpe_pretokenizer.h"
#include "engine/bpe_special.h"
#include "engine/tokenizer.h"

namespace pagekv::inline v0::engine {

class BpeTokenizer final : public Tokenizer {
 public:
  // Errors: those of make_tokenizer().
  static Result<std::unique_ptr<Tokenizer>> make(const GgufFile& file);

  int vocabulary_size() const override { return static_cast<int>(texts_.size()); }
  Token bos() const override { return bos_; }
  Token eos() const override { return eos_; }
  bool adds_bos() const override { return adds_bos_; }
  bool is_end(Token token) const override;
  bool is_control(Token token) const override;
  Result<std::vector<Token>> encode(std::string_view text, EncodeOptions options) const override;
  void append_text(Token token, Token previous, std::string& out) const override;

 private:
  using Lookup = std::unordered_map<std::string_view, Token>;

  explicit BpeTokenizer(PreTokenizer pretokenizer) : pretokenizer_(std::move(pretokenizer)) {}

  Status read_tokens(const GgufFile& file);
  Status read_merges(const GgufFile& file);
  Status read_ends(const GgufFile& file);
  std::optional<Merge> find_merge(Token left, Token right) const;
  Status encode_plain(std::string_view text, std::vector<Token>& out) const;
  void encode_word(std::string_view word, std::vector<Token>& scratch,
                   std::vector<Token>& out) const;

  PreTokenizer pretokenizer_;
  std::vector<std::string> texts_;        // bytes of each token
  std::vector<bool> control_;             // of each token
  std::vector<bool> end_;                 // of each token
  Lookup words_;                          // ordinary tokens by their bytes, borrowed from texts_
  std::array<Token, 256> byte_tokens_{};  // kNoToken where the vocabulary lacks the byte
  std::unordered_map<std::uint64_t, Merge> merges_;  // by left token << 32 | right token
  SpecialTokens specials_;
  Token bos_ = kNoToken;
  Token eos_ = kNoToken;
  bool adds_bos_ = false;
};

}  // namespace pagekv::inline v0::engine
