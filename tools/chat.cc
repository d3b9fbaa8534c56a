#include "tools/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "tools/console.h"
#include "tools/model_options.h"
#include "tools/session.h"

namespace pagekv_tool {
namespace {

using pagekv::engine::Conversation;

constexpr const char* kHelp =
    "A line is a question. Commands:\n"
    "  /edit TEXT    ask TEXT instead of the last question\n"
    "  /regenerate   another answer to the last question\n"
    "  /undo         forget the last question and its answer\n"
    "  /clear        forget everything\n"
    "  /save FILE    write the talk and its pages\n"
    "  /load FILE    go on from what /save wrote\n"
    "  /help         this\n"
    "  /quit         end; so does Ctrl-D";

class Talk {
 public:
  Talk(Session& session, pagekv::engine::Conversation conversation)
      : session_(session), conversation_(std::move(conversation)) {}

  // False: the talk is over.
  bool take(const std::string& line) {
    const std::string command = line.substr(0, line.find(' '));
    const std::size_t begin = line.find_first_not_of(' ', command.size());
    const std::string rest = begin == std::string::npos ? "" : line.substr(begin);
    if (!line.starts_with('/')) return ask(line);
    if (command == "/edit") return edit(rest);
    if (command == "/save") return save(rest);
    if (command == "/load") return load(rest);
    if (!rest.empty()) return refuse(command + " takes nothing more; try /help");
    if (command == "/regenerate") return regenerate();
    if (command == "/undo") return conversation_.forget_question() || refuse("nothing was asked");
    if (command == "/clear") return conversation_.clear(), true;
    if (command == "/help") return print_note(kHelp), true;
    if (command == "/quit") return false;
    return refuse("there is no " + command + "; try /help");
  }

  int exit_code() const { return exit_code_; }

 private:
  // What cannot be done changes nothing, and the talk goes on.
  static bool refuse(const std::string& why) {
    report_error(why);
    return true;
  }

  bool ask(const std::string& question) {
    seed_shift_ = 0;
    return answer(question);
  }

  bool edit(const std::string& question) {
    if (question.empty()) return refuse("/edit needs the new question");
    if (!conversation_.forget_question()) return refuse("nothing was asked");
    return ask(question);
  }

  bool save(const std::string& path) {
    if (path.empty()) return refuse("/save needs the name of a file");
    if (conversation_.questions() == 0) return refuse("nothing was asked");
    auto turns = nlohmann::json::array();
    for (const auto& turn : conversation_.turns()) {
      turns.push_back({turn.question, turn.prompt_tokens, turn.answer_tokens});
    }
    const std::string note = nlohmann::json{{"chat", std::move(turns)}}.dump(
        -1, ' ', false, nlohmann::json::error_handler_t::replace);
    const auto saved = session_.save_snapshot(path, {conversation_.tokens(), note});
    return saved || refuse(saved.error().message());
  }

  bool load(const std::string& path) {
    if (path.empty()) return refuse("/load needs the name of a file");
    const auto snapshot = session_.load_snapshot(path);
    if (!snapshot) return refuse(snapshot.error().message());
    const auto turns = read_turns(snapshot->note);
    if (!turns || !conversation_.restore(snapshot->tokens, *turns)) {
      return refuse(path + " holds no talk");
    }
    print_note(fmt::format("{} questions, {} tokens; the last one was: {}", turns->size(),
                           snapshot->tokens.size(), conversation_.last_question()));
    return true;
  }

  static std::optional<std::vector<Conversation::Span>> read_turns(const std::string& note) {
    const auto object = nlohmann::json::parse(note, nullptr, false);
    if (!object.is_object() || !object.contains("chat")) return {};
    std::vector<Conversation::Span> turns;
    for (const auto& turn : object["chat"]) {
      const bool good = turn.is_array() && turn.size() == 3 && turn[0].is_string() &&
                        turn[1].is_number_unsigned() && turn[2].is_number_unsigned();
      if (!good) return {};
      turns.push_back({turn[0], turn[1], turn[2]});
    }
    if (turns.empty()) return {};
    return turns;
  }

  bool regenerate() {
    if (conversation_.questions() == 0) return refuse("nothing was asked");
    const std::string question = conversation_.last_question();
    conversation_.forget_question();
    ++seed_shift_;
    return answer(question);
  }

  bool answer(const std::string& question) {
    const auto prompt = conversation_.ask(question);
    if (!prompt) return refuse(prompt.error().message());
    const auto answers = session_.answer({*prompt}, seed_shift_);
    if (!answers) {
      conversation_.forget_question();
      return refuse(answers.error().message());
    }
    const pagekv::engine::Completion& best = answers->best.front();
    if (answers->failed) {
      conversation_.forget_question();
      exit_code_ = kExitFailure;
      return true;
    }
    conversation_.answer(best.tokens);
    print_note(fmt::format("{} of {} prompt tokens were in pages already", best.shared_tokens,
                           best.prompt_tokens));
    return true;
  }

  Session& session_;
  pagekv::engine::Conversation conversation_;
  std::uint64_t seed_shift_ = 0;  // of the latest answer to the last question
  int exit_code_ = kExitOk;
};

}  // namespace

CLI::App* add_chat(CLI::App& app, ChatOptions& options) {
  CLI::App* chat = app.add_subcommand("chat", "Talk with a model, on standard input");
  add_model_options(*chat, options.run.model);
  chat->add_option("-s,--system", options.system, "The system prompt (default: the model's own)")
      ->type_name("TEXT");
  add_generation_options(*chat, options.run);
  add_cache_options(*chat, options.run.model);
  chat->footer(std::string(kHelp) +
               "\n"
               "The history stays in pages: a turn computes its own tokens only, and what comes "
               "back after /edit or /regenerate was never lost. FORMAT: " +
               std::string(kFormatHelp));
  return chat;
}

int chat(const ChatOptions& options) {
  if (const int code = check_formats(options.run.model, {options.run.format}); code != kExitOk) {
    return code;
  }
  const auto session = Session::open(options.run);
  if (!session) return report_error(session.error().message());
  auto conversation = (*session)->converse(options.system);
  if (!conversation) return report_error(conversation.error().message());
  Talk talk(**session, std::move(*conversation));
  const bool by_hand = isatty(STDIN_FILENO) == 1;
  if (by_hand) print_note("one line is one question; /help says what else there is");
  const auto next_line = [by_hand](std::string& line) {
    if (by_hand) fmt::print(stderr, "> ");
    return static_cast<bool>(std::getline(std::cin, line));
  };
  for (std::string line; next_line(line);) {
    if (!line.empty() && !talk.take(line)) break;
  }
  (*session)->print_figures();
  return talk.exit_code();
}

}  // namespace pagekv_tool
