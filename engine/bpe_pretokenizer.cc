#include "engine/bpe_pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cstdint>
#include <string>

#include "engine/byte_reader.h"

namespace pagekv::inline v0::engine {
namespace {

// White space is spelt by its Unicode property: PCRE2's \s would add U+180E, which lost it.
// The last alternative of each expression, a run of white space before a word, needs no mention:
// it is the gap that is left.
constexpr const char* kGpt2Words =
    R"('(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\p{wspace}\p{L}\p{N}]+)"
    R"(|\p{wspace}+(?!\P{wspace}))";

// One digit (any number character) at a time.
constexpr const char* kDigits = R"(\p{N})";

// Contractions in either case; \p{N} in groups of three or alone.
constexpr const char* kLlama3Words =
    R"('(?i:s|t|re|ve|m|ll|d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*|\p{wspace}*[\r\n]+|\p{wspace}+(?!\P{wspace}))";
constexpr const char* kQwen2Words =
    R"('(?i:s|t|re|ve|m|ll|d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\p{wspace}\p{L}\p{N}]+[\r\n]*|\p{wspace}*[\r\n]+|\p{wspace}+(?!\P{wspace}))";

struct Kind {
  std::string_view name;
  std::array<const char*, 2> expressions;  // applied in order; null: no more
  bool whole_words;
  bool adds_bos;
};

constexpr std::array kKinds = {
    Kind{"gpt-2", {kGpt2Words, nullptr}, false, false},
    Kind{"llama-bpe", {kLlama3Words, nullptr}, true, true},
    Kind{"qwen2", {kQwen2Words, nullptr}, false, false},
    Kind{"smollm", {kDigits, kGpt2Words}, false, false},
};

struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using MatchData = std::unique_ptr<pcre2_match_data, MatchDataDeleter>;

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 128> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct PreTokenizer::Pattern {
  explicit Pattern(pcre2_code* compiled) : code(compiled) {}
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;
  ~Pattern() { pcre2_code_free(code); }

  // Appends the matches in `text` and the gaps between them.
  Status split(std::string_view text, pcre2_match_data* data,
               std::vector<std::string_view>& pieces) const;

  pcre2_code* code;
};

Status PreTokenizer::Pattern::split(std::string_view text, pcre2_match_data* data,
                                    std::vector<std::string_view>& pieces) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t done = 0;
  while (done < text.size()) {
    const int found =
        pcre2_match(code, subject, text.size(), done, PCRE2_NO_UTF_CHECK, data, nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found == PCRE2_ERROR_NOMEMORY) {
      return fail(ErrorCode::out_of_memory, "no memory to cut a text of {0} bytes into words",
                  {static_cast<std::int64_t>(text.size())});
    }
    if (found < 0) {
      return fail(ErrorCode::unsupported, "a text of {0} bytes cannot be cut into words: {s}",
                  {static_cast<std::int64_t>(text.size())}, pcre2_message(found));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data);
    if (range[0] > done) pieces.push_back(text.substr(done, range[0] - done));
    pieces.push_back(text.substr(range[0], range[1] - range[0]));
    done = range[1];
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
  return {};
}

Result<PreTokenizer> PreTokenizer::make(std::string_view name) {
  std::string list;
  for (const Kind& kind : kKinds) {
    list += (list.empty() ? "" : ", ") + std::string(kind.name);
    if (kind.name != name) continue;
    PreTokenizer out;
    out.whole_words_ = kind.whole_words;
    out.adds_bos_ = kind.adds_bos;
    for (const char* expression : kind.expressions) {
      if (expression == nullptr) break;
      int error = 0;
      PCRE2_SIZE at = 0;
      pcre2_code* code =
          pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression), PCRE2_ZERO_TERMINATED,
                        PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
      if (code == nullptr) {
        return fail(ErrorCode::unsupported, "this PCRE2 cannot compile the pre-tokenizer {s}", {},
                    quoted(name) + ": " + pcre2_message(error));
      }
      out.patterns_.push_back(std::make_shared<const Pattern>(code));
    }
    return out;
  }
  return fail(ErrorCode::unsupported, "pre-tokenizer {s}", {},
              quoted(name) + "; known are " + list);
}

Result<std::vector<std::string_view>> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces{text};
  for (const auto& pattern : patterns_) {
    const MatchData data(pcre2_match_data_create(1, nullptr));
    if (data == nullptr) {
      return fail(ErrorCode::out_of_memory, "no memory to cut a text into words");
    }
    std::vector<std::string_view> finer;
    for (const std::string_view piece : pieces) {
      if (auto status = pattern->split(piece, data.get(), finer); !status) {
        return tl::unexpected(status.error());
      }
    }
    pieces = std::move(finer);
  }
  return pieces;
}

}  // namespace pagekv::inline v0::engine
