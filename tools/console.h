// What the command says on stderr: errors, progress, and the timing block. Results go to stdout.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pagekv_tool {

// Exit codes of the command, documented in --help.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;

// Prints "pagekv: TEXT" and returns `code`.
int report_error(std::string_view text, int code = kExitFailure);

// Dim text on a terminal that may have colours (NO_COLOR unset or empty), plain text elsewhere.
void print_note(std::string_view text);

// A line of progress that rewrites itself: "loading 42 %". Only on a terminal; nothing elsewhere.
class Progress {
 public:
  explicit Progress(std::string label) : label_(std::move(label)) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(std::int64_t done, std::int64_t total);
  void clear();

 private:
  std::string label_;
  int shown_percent_ = -1;
};

// "23.0 KiB", "1.5 GiB".
std::string human_bytes(double bytes);

}  // namespace pagekv_tool
