#include "tools/output.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/console.h"

namespace pagekv_tool {
namespace {

const char* reason_name(pagekv::engine::FinishReason reason) {
  using pagekv::engine::FinishReason;
  switch (reason) {
    case FinishReason::end: return "end";
    case FinishReason::length: return "length";
    case FinishReason::context: return "context";
    case FinishReason::error: return "error";
  }
  return "?";
}

}  // namespace

Output::Output(const pagekv::engine::Tokenizer& tokenizer,
               std::vector<pagekv::engine::Token> last_tokens, bool json)
    : json_(json) {
  for (const pagekv::engine::Token token : last_tokens) {
    answers_.emplace_back(pagekv::engine::TextStream(tokenizer, token));
  }
}

const std::string& Output::text(int prompt) const {
  return answers_.at(static_cast<std::size_t>(prompt)).text;
}

void Output::add_token(int prompt, pagekv::engine::Token token) {
  Answer& answer = answers_.at(static_cast<std::size_t>(prompt));
  answer.text += answer.stream.push(token);
  print();
}

void Output::finish(const pagekv::engine::Completion& completion) {
  Answer& answer = answers_.at(static_cast<std::size_t>(completion.request));
  answer.text += answer.stream.flush();
  answer.finished = true;
  nlohmann::json object = {{"prompt", completion.request},
                           {"text", answer.text},
                           {"tokens", completion.tokens},
                           {"finish", reason_name(completion.reason)},
                           {"prompt_tokens", completion.prompt_tokens},
                           {"shared_tokens", completion.shared_tokens}};
  if (completion.error) {
    answer.error = completion.error->message();
    object["error"] = answer.error;
    failed_ = true;
  }
  answer.json = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  print();
}

void Output::print() {
  while (current_ < answers_.size()) {
    print_answer(current_);
    if (!answers_[current_].finished) break;
    ++current_;
  }
  std::fflush(stdout);
}

void Output::print_answer(std::size_t index) {
  Answer& answer = answers_[index];
  if (json_) {
    if (answer.finished) fmt::print("{}\n", answer.json);
  } else {
    if (!answer.started && answers_.size() > 1) {
      fmt::print("{}==> prompt {} <==\n", index == 0 ? "" : "\n", index + 1);
    }
    answer.started = true;
    std::fwrite(answer.text.data() + answer.printed, 1, answer.text.size() - answer.printed,
                stdout);
    answer.printed = answer.text.size();
    const bool nothing = answer.text.empty() && !answer.error.empty();
    if (answer.finished && !nothing) fmt::print("\n");
  }
  if (answer.finished && !answer.error.empty()) {
    std::fflush(stdout);
    report_error(fmt::format("prompt {}: {}", index + 1, answer.error));
  }
}

}  // namespace pagekv_tool
