#include "engine/chat.h"

#include <utility>

namespace pagekv::inline v0::engine {
namespace {

constexpr std::string_view kBegin = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

// The text of the first system turn that the template spells out in full: what stands literally
// between '<|im_start|>system\n' and '<|im_end|>', its line ends written out or as \n.
std::string find_default_system(std::string_view source) {
  static constexpr std::string_view kOpening = "<|im_start|>system";
  for (std::size_t at = source.find(kOpening); at != std::string_view::npos;
       at = source.find(kOpening, at + 1)) {
    std::string_view rest = source.substr(at + kOpening.size());
    if (rest.starts_with("\\n")) {
      rest.remove_prefix(2);
    } else if (rest.starts_with('\n')) {
      rest.remove_prefix(1);
    } else {
      continue;
    }
    const std::string_view text = rest.substr(0, rest.find(kEnd));
    // A quote, brace or backslash means that the turn is computed, not spelt out.
    if (text.size() < rest.size() && text.find_first_of("'\"{}\\") == std::string_view::npos) {
      return std::string(text);
    }
  }
  return {};
}

using Segments = std::vector<ChatSegment>;

void append_answer_end(Segments& out) {
  out.push_back({std::string(kEnd), true});
  out.push_back({"\n", false});
}

void append_answer_begin(Segments& out) {
  out.push_back({std::string(kBegin), true});
  out.push_back({"assistant\n", false});
}

void append_turn(const std::string& role, const std::string& content, Segments& out) {
  out.push_back({std::string(kBegin), true});
  out.push_back({role + "\n" + content, false});
  append_answer_end(out);
}

Status append_tokens(const Tokenizer& tokenizer, const Segments& segments,
                     std::vector<Token>& out) {
  for (const ChatSegment& segment : segments) {
    const auto tokens = tokenizer.encode(segment.text, {.bos = false, .special = segment.marker});
    if (!tokens) return tl::unexpected(tokens.error());
    if (segment.marker && (tokens->size() != 1 || !tokenizer.is_control(tokens->front()))) {
      return fail(ErrorCode::unsupported, "the chat marker {s} is no token of the vocabulary", {},
                  segment.text);
    }
    out.insert(out.end(), tokens->begin(), tokens->end());
  }
  return {};
}

Result<std::vector<Token>> tokens_of(const Tokenizer& tokenizer, const Segments& segments) {
  std::vector<Token> out;
  if (auto ok = append_tokens(tokenizer, segments, out); !ok) return tl::unexpected(ok.error());
  return out;
}

}  // namespace

Result<ChatTemplate> ChatTemplate::detect(std::string_view source) {
  if (source.find(kBegin) == std::string_view::npos) {
    return fail(ErrorCode::unsupported,
                "the model's chat template is of no known kind; known: ChatML");
  }
  return ChatTemplate(find_default_system(source));
}

std::vector<ChatSegment> ChatTemplate::render(std::span<const ChatMessage> messages,
                                              bool answer) const {
  std::vector<ChatSegment> out;
  const bool own_system = !messages.empty() && messages[0].role == "system";
  if (!messages.empty() && !own_system && !default_system_.empty()) {
    append_turn("system", default_system_, out);
  }
  for (const ChatMessage& message : messages) append_turn(message.role, message.content, out);
  if (answer) append_answer_begin(out);
  return out;
}

std::string ChatTemplate::render_text(std::span<const ChatMessage> messages, bool answer) const {
  std::string out;
  for (const ChatSegment& segment : render(messages, answer)) out += segment.text;
  return out;
}

Result<std::vector<Token>> ChatTemplate::encode(const Tokenizer& tokenizer,
                                                std::span<const ChatMessage> messages,
                                                bool answer) const {
  if (messages.empty()) {
    return fail(ErrorCode::invalid_argument, "a chat needs at least one message");
  }
  std::vector<Token> out;
  if (tokenizer.adds_bos()) out.push_back(tokenizer.bos());
  if (auto ok = append_tokens(tokenizer, render(messages, answer), out); !ok) {
    return tl::unexpected(ok.error());
  }
  return out;
}

Result<std::vector<Token>> ChatTemplate::encode_turn(const Tokenizer& tokenizer,
                                                     const ChatMessage& message) const {
  Segments segments;
  append_turn(message.role, message.content, segments);
  return tokens_of(tokenizer, segments);
}

Result<std::vector<Token>> ChatTemplate::encode_answer_begin(const Tokenizer& tokenizer) const {
  Segments segments;
  append_answer_begin(segments);
  return tokens_of(tokenizer, segments);
}

Result<std::vector<Token>> ChatTemplate::encode_answer_end(const Tokenizer& tokenizer) const {
  Segments segments;
  append_answer_end(segments);
  return tokens_of(tokenizer, segments);
}

}  // namespace pagekv::inline v0::engine
