// Conversation: the tokens of a chat, turn by turn.
//
// Answers are kept as the tokens that were generated, never read again from their text: so the
// tokens of a turn begin with those of the turn before, exactly, and a prefix index finds all of
// them. Going back (another question, another answer) cuts the tokens; what is left is found as
// well.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat.h"
#include "engine/tokenizer.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

class Conversation {
 public:
  // Borrows the tokenizer. `system`: what is put before the first question; empty: the template's
  // own. Errors: those of ChatTemplate::encode().
  static Result<Conversation> make(const Tokenizer& tokenizer, ChatTemplate chat,
                                   std::string_view system = {});

  // The tokens to continue with an answer to `question`: all turns, and the opening of the answer.
  // Errors: those of ChatTemplate::encode(), and then nothing has changed.
  Result<std::vector<Token>> ask(std::string_view question);
  // What was answered. REQUIRES: ask() came before.
  void answer(std::vector<Token> tokens);

  // Forgets the last question and its answer. False: there is none.
  bool forget_question();
  void clear() { turns_.clear(); }

  // A turn as it stands in tokens().
  struct Span {
    std::string question;
    std::size_t prompt_tokens = 0;  // before the answer
    std::size_t answer_tokens = 0;
  };
  // All tokens, with the last answer; empty before the first question.
  std::vector<Token> tokens() const;
  std::vector<Span> turns() const;
  // Goes on from what tokens() and turns() gave. False, and nothing has changed: they do not fit.
  bool restore(std::span<const Token> tokens, std::span<const Span> turns);

  std::size_t questions() const { return turns_.size(); }
  const std::string& last_question() const { return turns_.back().question; }  // REQUIRES: one

 private:
  struct Turn {
    std::string question;
    std::vector<Token> prompt;  // all tokens before the answer
    std::vector<Token> answer;
  };

  Conversation(const Tokenizer& tokenizer, ChatTemplate chat, std::vector<Token> opening)
      : tokenizer_(&tokenizer), chat_(std::move(chat)), opening_(std::move(opening)) {}

  const Tokenizer* tokenizer_;
  ChatTemplate chat_;
  std::vector<Token> opening_;  // before the first question
  std::vector<Turn> turns_;
};

}  // namespace pagekv::inline v0::engine
