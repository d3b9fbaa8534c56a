#include "tools/run.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
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

}  // namespace

int run(const RunOptions& options) {
  const pagekv::Result<std::vector<std::string>> prompts = collect_prompts(options);
  if (!prompts) return report_error(prompts.error().message());
  if (options.prompts.empty() && options.prompt_files.empty()) {
    return report_error("nothing to continue: give -p or -f; `pagekv chat` talks", kExitUsage);
  }
  if (prompts->empty()) {
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
  return run_prompts(**session, *prompts);
}

}  // namespace pagekv_tool
