#include "tools/run.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tools/console.h"
#include "tools/model_options.h"
#include "tools/session.h"
#include "tools/text_file.h"

namespace pagekv_tool {
namespace {

pagekv::Result<std::vector<std::string>> collect_prompts(const RunOptions& options) {
  std::vector<std::string> prompts = options.prompts;
  for (const std::string& path : options.prompt_files) {
    pagekv::Result<std::string> text = read_text(path);
    if (!text) return tl::unexpected<pagekv::Error>(text.error());
    if (!options.lines) {
      prompts.push_back(std::move(*text));
      continue;
    }
    std::istringstream lines(*text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.empty()) prompts.push_back(line);
    }
  }
  return prompts;
}

int run_prompts(Session& session, const std::vector<std::string>& texts) {
  std::vector<std::vector<Token>> prompts;
  for (const std::string& text : texts) {
    pagekv::Result<std::vector<Token>> tokens = session.encode(text);
    if (!tokens) {
      return report_error(
          fmt::format("prompt {}: {}", prompts.size() + 1, tokens.error().message()));
    }
    prompts.push_back(std::move(*tokens));
  }
  const pagekv::Result<Session::Answers> answers = session.answer(prompts);
  if (!answers) return report_error(answers.error().message());
  session.print_figures();
  return answers->failed ? kExitFailure : kExitOk;
}

// The sampler's state, as a snapshot keeps it; 0 where a note says something else.
std::string note_of(std::uint64_t draws) {
  return nlohmann::json{{"draws", draws}}.dump();
}

std::uint64_t draws_in(const std::string& note) {
  const auto object = nlohmann::json::parse(note, nullptr, false);
  if (!object.is_object() || !object.contains("draws")) return 0;
  return object["draws"].is_number_unsigned() ? object["draws"].get<std::uint64_t>() : 0;
}

// One answer that goes on from a snapshot, and the snapshot of all that is known then.
int run_session(Session& session, const RunOptions& options,
                const std::vector<std::string>& texts) {
  Session::Snapshot snapshot;
  std::error_code ignored;
  if (std::filesystem::exists(options.session, ignored)) {
    auto loaded = session.load_snapshot(options.session);
    if (!loaded) return report_error(loaded.error().message());
    snapshot = std::move(*loaded);
  }
  std::vector<Token>& tokens = snapshot.tokens;
  for (const std::string& text : texts) {
    const auto more = session.encode_more(text, tokens.empty());
    if (!more) return report_error(more.error().message());
    tokens.insert(tokens.end(), more->begin(), more->end());
  }
  if (tokens.empty()) return report_error("there is no " + options.session + "; give -p");
  const auto answers = session.answer({tokens}, 0, draws_in(snapshot.note));
  if (!answers) return report_error(answers.error().message());
  session.print_figures();
  if (answers->failed) return kExitFailure;
  const pagekv::engine::Completion& best = answers->best.front();
  tokens.insert(tokens.end(), best.tokens.begin(), best.tokens.end());
  snapshot.note = note_of(best.draws);
  const pagekv::Status saved = session.save_snapshot(options.session, snapshot);
  return saved ? kExitOk : report_error(saved.error().message());
}

int check_session(const RunOptions& options, std::size_t prompts) {
  if (prompts > 1) return report_error("--session takes one prompt", kExitUsage);
  if (options.chat) return report_error("--session with --chat: `pagekv chat` talks", kExitUsage);
  if (options.best_of > 1) return report_error("--session with --best-of", kExitUsage);
  return kExitOk;
}

}  // namespace

int run(const RunOptions& options) {
  const pagekv::Result<std::vector<std::string>> prompts = collect_prompts(options);
  if (!prompts) return report_error(prompts.error().message());
  const bool has_session = !options.session.empty();
  if (has_session) {
    if (const int code = check_session(options, prompts->size()); code != kExitOk) return code;
  } else if (options.prompts.empty() && options.prompt_files.empty()) {
    return report_error("nothing to continue: give -p or -f; `pagekv chat` talks", kExitUsage);
  }
  if (prompts->empty() && !has_session) {
    return report_error("nothing to continue: every line of the files is empty");
  }
  if (options.best_of > 1 && options.sampling.temperature == 0) {
    return report_error("--best-of with --temp 0: all samples would be the same", kExitUsage);
  }
  if (const int code = check_formats(options.model, {options.format}); code != kExitOk) {
    return code;
  }
  const pagekv::Result<std::unique_ptr<Session>> session = Session::open(options);
  if (!session) return report_error(session.error().message());
  return has_session ? run_session(**session, options, *prompts) : run_prompts(**session, *prompts);
}

}  // namespace pagekv_tool
