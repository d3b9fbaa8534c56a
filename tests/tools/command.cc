#include "tests/tools/command.h"

#include <sys/wait.h>

#include <cstdlib>

namespace pagekv::testing {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string Workplace::write(const std::string& name, std::string_view bytes) const {
  write_file(path(name), bytes);
  return path(name);
}

Outcome Workplace::run(const std::vector<std::string>& arguments, std::string_view input,
                       const std::vector<std::string>& environment,
                       const std::string& out_path) const {
  write("stdin", input);
  std::string line = "env -u PAGEKV_MODEL";
  for (const std::string& assignment : environment) line += " " + quoted(assignment);
  line += " " + quoted(PAGEKV_COMMAND);
  for (const std::string& argument : arguments) line += " " + quoted(argument);
  line += " <" + quoted(path("stdin")) + " >" +
          quoted(out_path.empty() ? path("stdout") : out_path) + " 2>" + quoted(path("stderr"));
  const int status = std::system(line.c_str());
  // The shell reports a command killed by a signal as 128 and the signal's number.
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return {.exit_code = code >= 128 ? -1 : code,
          .out = read_file(path("stdout")),
          .err = read_file(path("stderr"))};
}

}  // namespace pagekv::testing
