// Answers on standard output, in the order of their prompts.
//
// The first unfinished prompt streams; tokens of later ones are held until it is their turn. With
// --json nothing streams: one object per line when an answer is complete, in the same order. Of
// several samples nothing streams either: the answer is the one with the highest mean
// log-probability, once all have ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/batch.h"
#include "engine/tokenizer.h"

namespace pagekv_tool {

struct OutputOptions {
  bool json = false;
  int samples = 1;         // of every prompt
  std::uint64_t seed = 0;  // of the first; each one's is one more than that before
};

class Output {
 public:
  // `last_tokens`: of every prompt, for the spacing of the first generated word.
  Output(const pagekv::engine::Tokenizer& tokenizer, std::vector<pagekv::engine::Token> last_tokens,
         OutputOptions options);

  // Requests are numbered from 0, as the prompts are.
  void add_token(const pagekv::engine::NewToken& token);
  void finish(const pagekv::engine::Completion& completion);

  bool failed() const { return failed_; }
  const pagekv::engine::Completion& completion(int prompt) const;  // the best sample's

 private:
  struct Sample {
    explicit Sample(pagekv::engine::TextStream text_stream) : stream(std::move(text_stream)) {}
    double score() const;  // mean log-probability; -inf where there is none

    pagekv::engine::TextStream stream;
    std::string text;
    bool finished = false;
    pagekv::engine::Completion completion;  // of a finished one
  };
  struct Answer {
    bool finished() const;
    const Sample& best() const;  // the first among equals

    std::vector<Sample> samples;
    std::size_t printed = 0;  // bytes of the text
    bool started = false;
  };

  void print();
  void print_answer(std::size_t index);
  void print_text(Answer& answer, std::size_t index);
  std::string json(const Answer& answer) const;
  std::string scores(const Answer& answer) const;

  OutputOptions options_;
  bool failed_ = false;
  std::size_t current_ = 0;  // the answer that streams
  std::vector<Answer> answers_;
};

}  // namespace pagekv_tool
