// Chat templates: from messages to the tokens a chat model was trained on.
//
// GGUF files carry the template as a Jinja program. We do not run it; we recognise the family it
// belongs to by its markers and render that family ourselves. Known: ChatML, with the default
// system prompt that the template may spell out (SmolLM2, Qwen2):
//
//   "<|im_start|>" ROLE "\n" CONTENT "<|im_end|>" "\n"   for each message, then, where the model is
//   to answer, "<|im_start|>" "assistant\n"
//
// Value types; safe on any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A piece of a rendered chat. Markers are control tokens of the template; all else is text in which
// nothing is read as a control token, whatever a user may have written.
struct ChatSegment {
  std::string text;
  bool marker = false;
};

class ChatTemplate {
 public:
  // From `tokenizer.chat_template`. Errors: unsupported (no known family; the text lists them).
  static Result<ChatTemplate> detect(std::string_view source);

  // What is put before the messages when the first is not from the system; empty: nothing.
  const std::string& default_system() const { return default_system_; }

  // `answer`: end with the opening of the assistant's turn.
  std::vector<ChatSegment> render(std::span<const ChatMessage> messages, bool answer = true) const;

  // The pieces of a chat that grows, each as tokens: a whole turn, the opening of an answer, and
  // what closes it. One after the other they are what encode() gives. Errors: as encode().
  Result<std::vector<Token>> encode_turn(const Tokenizer& tokenizer,
                                         const ChatMessage& message) const;
  Result<std::vector<Token>> encode_answer_begin(const Tokenizer& tokenizer) const;
  Result<std::vector<Token>> encode_answer_end(const Tokenizer& tokenizer) const;

  // render(), as one string.
  std::string render_text(std::span<const ChatMessage> messages, bool answer = true) const;

  // render(), as tokens. Errors: those of Tokenizer::encode(); invalid_argument (no messages);
  // unsupported (a marker that is no token of this vocabulary).
  Result<std::vector<Token>> encode(const Tokenizer& tokenizer,
                                    std::span<const ChatMessage> messages,
                                    bool answer = true) const;

 private:
  explicit ChatTemplate(std::string default_system) : default_system_(std::move(default_system)) {}

  std::string default_system_;
};

}  // namespace pagekv::inline v0::engine
