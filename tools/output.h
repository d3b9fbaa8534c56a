// Answers on standard output, in the order of their prompts.
//
// The first unfinished prompt streams; tokens of later ones are held until it is their turn. With
// --json nothing streams: one object per line when an answer is complete, in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "engine/tokenizer.h"

namespace pagekv_tool {

class Output {
 public:
  // `last_tokens`: of every prompt, for the spacing of the first generated word.
  Output(const pagekv::engine::Tokenizer& tokenizer, std::vector<pagekv::engine::Token> last_tokens,
         bool json);

  void add_token(int prompt, pagekv::engine::Token token);
  void finish(const pagekv::engine::Completion& completion);

  bool failed() const { return failed_; }
  const std::string& text(int prompt) const;

 private:
  struct Answer {
    explicit Answer(pagekv::engine::TextStream text_stream) : stream(std::move(text_stream)) {}
    pagekv::engine::TextStream stream;
    std::string text;
    std::size_t printed = 0;  // bytes of `text`
    bool started = false;
    bool finished = false;
    std::string json;  // of a finished answer
    std::string error;
  };

  void print();
  void print_answer(std::size_t index);

  bool json_;
  bool failed_ = false;
  std::size_t current_ = 0;  // the answer that streams
  std::vector<Answer> answers_;
};

}  // namespace pagekv_tool
