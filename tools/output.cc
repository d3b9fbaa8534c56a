#include "tools/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
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
    case FinishReason::cancelled: return "cancelled";
  }
  return "?";
}

nlohmann::json describe(const std::string& text, const pagekv::engine::Completion& completion) {
  nlohmann::json object = {
      {"text", text}, {"tokens", completion.tokens}, {"finish", reason_name(completion.reason)}};
  if (completion.error) object["error"] = completion.error->message();
  return object;
}

}  // namespace

double Output::Sample::score() const {
  const std::vector<double>& each = completion.log_probabilities;
  if (each.empty() || completion.error) return -std::numeric_limits<double>::infinity();
  return std::accumulate(each.begin(), each.end(), 0.0) / static_cast<double>(each.size());
}

bool Output::Answer::finished() const {
  return std::all_of(samples.begin(), samples.end(),
                     [](const Sample& sample) { return sample.finished; });
}

const Output::Sample& Output::Answer::best() const {
  return *std::max_element(samples.begin(), samples.end(),
                           [](const Sample& a, const Sample& b) { return a.score() < b.score(); });
}

Output::Output(const pagekv::engine::Tokenizer& tokenizer,
               std::vector<pagekv::engine::Token> last_tokens, OutputOptions options)
    : options_(options) {
  for (const pagekv::engine::Token token : last_tokens) {
    const Sample empty(pagekv::engine::TextStream(tokenizer, token));
    answers_.push_back(
        {.samples = std::vector<Sample>(static_cast<std::size_t>(options.samples), empty)});
  }
}

const pagekv::engine::Completion& Output::completion(int prompt) const {
  return answers_.at(static_cast<std::size_t>(prompt)).best().completion;
}

void Output::add_token(const pagekv::engine::NewToken& token) {
  Answer& answer = answers_.at(static_cast<std::size_t>(token.request));
  Sample& sample = answer.samples.at(static_cast<std::size_t>(token.sample));
  sample.text += sample.stream.push(token.token);
  print();
}

void Output::finish(const pagekv::engine::Completion& completion) {
  Answer& answer = answers_.at(static_cast<std::size_t>(completion.request));
  Sample& sample = answer.samples.at(static_cast<std::size_t>(completion.sample));
  sample.text += sample.stream.flush();
  sample.completion = completion;
  sample.finished = true;
  if (answer.finished() && answer.best().completion.error) failed_ = true;
  print();
}

void Output::print() {
  while (current_ < answers_.size()) {
    print_answer(current_);
    if (!answers_[current_].finished()) break;
    ++current_;
  }
  std::fflush(stdout);
}

void Output::print_answer(std::size_t index) {
  Answer& answer = answers_[index];
  if (!answer.finished() && (options_.json || options_.samples > 1)) return;
  if (options_.json) {
    fmt::print("{}\n", json(answer));
  } else {
    print_text(answer, index);
  }
  if (!answer.finished()) return;
  const std::optional<pagekv::Error>& error = answer.best().completion.error;
  if (error) {
    std::fflush(stdout);
    report_error(fmt::format("prompt {}: {}", index + 1, error->message()));
  } else if (options_.samples > 1 && !options_.json) {
    std::fflush(stdout);
    const std::string which = answers_.size() > 1 ? fmt::format("prompt {}: ", index + 1) : "";
    print_note(which + scores(answer));
  }
}

void Output::print_text(Answer& answer, std::size_t index) {
  if (!answer.started && answers_.size() > 1) {
    fmt::print("{}==> prompt {} <==\n", index == 0 ? "" : "\n", index + 1);
  }
  answer.started = true;
  const Sample& best = answer.best();
  std::fwrite(best.text.data() + answer.printed, 1, best.text.size() - answer.printed, stdout);
  answer.printed = best.text.size();
  const bool nothing = best.text.empty() && best.completion.error.has_value();
  if (best.finished && !nothing) fmt::print("\n");
}

std::string Output::json(const Answer& answer) const {
  const auto object_of = [&](const Sample& sample) {
    nlohmann::json object = describe(sample.text, sample.completion);
    if (options_.samples == 1) return object;
    object["sample"] = sample.completion.sample;
    object["seed"] = options_.seed + static_cast<std::uint64_t>(sample.completion.sample);
    if (std::isfinite(sample.score())) object["mean_log_probability"] = sample.score();
    return object;
  };
  nlohmann::json object = object_of(answer.best());
  const pagekv::engine::Completion& first = answer.samples.front().completion;
  object["prompt"] = first.request;
  object["prompt_tokens"] = first.prompt_tokens;
  object["shared_tokens"] = first.shared_tokens;
  if (options_.samples > 1) {
    for (const Sample& sample : answer.samples) object["samples"].push_back(object_of(sample));
  }
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// "best of 3: seed 1 with a mean log-probability of -0.412; all: -0.911 -0.412 -0.604"
std::string Output::scores(const Answer& answer) const {
  const Sample& best = answer.best();
  std::string all;
  for (const Sample& sample : answer.samples) all += fmt::format(" {:.3f}", sample.score());
  return fmt::format(
      "best of {}: seed {} with a mean log-probability of {:.3f}; all:{}", options_.samples,
      options_.seed + static_cast<std::uint64_t>(best.completion.sample), best.score(), all);
}

}  // namespace pagekv_tool
