#include "tools/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace pagekv_tool {
namespace {

bool is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

bool has_colour() {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal() && (no_color == nullptr || *no_color == '\0');
}

}  // namespace

int report_error(std::string_view text, int code) {
  fmt::print(stderr, "pagekv: {}\n", text);
  return code;
}

void print_note(std::string_view text) {
  if (has_colour()) {
    fmt::print(stderr, "\x1b[2m{}\x1b[0m\n", text);
  } else {
    fmt::print(stderr, "{}\n", text);
  }
}

void Progress::update(std::int64_t done, std::int64_t total) {
  if (!is_terminal() || total <= 0) return;
  const int percent = static_cast<int>(100 * done / total);
  if (percent == shown_percent_) return;
  shown_percent_ = percent;
  fmt::print(stderr, "\r{} {:3} %", label_, percent);
  std::fflush(stderr);
}

void Progress::clear() {
  if (shown_percent_ < 0) return;
  shown_percent_ = -1;
  fmt::print(stderr, "\r{:{}}\r", "", label_.size() + 6);
  std::fflush(stderr);
}

std::string human_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

}  // namespace pagekv_tool
