#include "engine/conversation.h"

#include <utility>

namespace pagekv::inline v0::engine {

Result<Conversation> Conversation::make(const Tokenizer& tokenizer, ChatTemplate chat,
                                        std::string_view system) {
  std::vector<Token> opening;
  if (tokenizer.adds_bos()) opening.push_back(tokenizer.bos());
  const std::string text(system.empty() ? chat.default_system() : system);
  if (!text.empty()) {
    const auto turn = chat.encode_turn(tokenizer, {.role = "system", .content = text});
    if (!turn) return tl::unexpected<Error>(turn.error());
    opening.insert(opening.end(), turn->begin(), turn->end());
  }
  return Conversation(tokenizer, std::move(chat), std::move(opening));
}

Result<std::vector<Token>> Conversation::ask(std::string_view question) {
  std::vector<Token> tokens = opening_;
  const auto add = [&tokens](const Result<std::vector<Token>>& more) {
    if (more) tokens.insert(tokens.end(), more->begin(), more->end());
    return more.has_value();
  };
  if (!turns_.empty()) {
    tokens = turns_.back().prompt;
    tokens.insert(tokens.end(), turns_.back().answer.begin(), turns_.back().answer.end());
    if (const auto end = chat_.encode_answer_end(*tokenizer_); !add(end)) return end;
  }
  const auto turn = chat_.encode_turn(*tokenizer_, {"user", std::string(question)});
  if (!add(turn)) return turn;
  if (const auto begin = chat_.encode_answer_begin(*tokenizer_); !add(begin)) return begin;
  turns_.push_back({.question = std::string(question), .prompt = tokens, .answer = {}});
  return tokens;
}

void Conversation::answer(std::vector<Token> tokens) {
  turns_.back().answer = std::move(tokens);
}

std::vector<Token> Conversation::tokens() const {
  if (turns_.empty()) return {};
  std::vector<Token> tokens = turns_.back().prompt;
  tokens.insert(tokens.end(), turns_.back().answer.begin(), turns_.back().answer.end());
  return tokens;
}

std::vector<Conversation::Span> Conversation::turns() const {
  std::vector<Span> spans;
  for (const Turn& turn : turns_) {
    spans.push_back({turn.question, turn.prompt.size(), turn.answer.size()});
  }
  return spans;
}

bool Conversation::restore(std::span<const Token> tokens, std::span<const Span> turns) {
  std::vector<Turn> restored;
  std::size_t end = 0;
  for (const Span& span : turns) {
    if (span.prompt_tokens < end || span.prompt_tokens > tokens.size() ||
        span.answer_tokens > tokens.size() - span.prompt_tokens) {
      return false;
    }
    const auto prompt = tokens.first(span.prompt_tokens);
    const auto answer = tokens.subspan(span.prompt_tokens, span.answer_tokens);
    end = span.prompt_tokens + span.answer_tokens;
    restored.push_back(
        {span.question, {prompt.begin(), prompt.end()}, {answer.begin(), answer.end()}});
  }
  if (end != tokens.size()) return false;
  turns_ = std::move(restored);
  return true;
}

bool Conversation::forget_question() {
  if (turns_.empty()) return false;
  turns_.pop_back();
  return true;
}

}  // namespace pagekv::inline v0::engine
