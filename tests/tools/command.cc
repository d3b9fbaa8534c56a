#include "tests/tools/command.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

namespace pagekv::testing {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

Workplace::Workplace() {
  std::string pattern = (std::filesystem::temp_directory_path() / "pagekv_test_XXXXXX").string();
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
}

Workplace::~Workplace() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

std::string Workplace::write(const std::string& name, std::string_view bytes) const {
  std::ofstream file(folder_ / name, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(file.good());
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
          .out = read(path("stdout")),
          .err = read(path("stderr"))};
}

}  // namespace pagekv::testing
