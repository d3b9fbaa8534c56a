#include "tools/cache_text.h"

#include <fmt/format.h>

#include <ctime>

#include "tools/console.h"

namespace pagekv_tool {
namespace {

constexpr std::int64_t kNsPerSecond = 1'000'000'000;
constexpr std::size_t kShortDigits = 16;

std::string format_utc(std::int64_t ns, const char* format) {
  const std::time_t seconds = ns / kNsPerSecond;
  std::tm parts{};
  char text[64];
  if (::gmtime_r(&seconds, &parts) == nullptr) return "?";
  return {text, std::strftime(text, sizeof text, format, &parts)};
}

}  // namespace

std::string hex(const pagekv::Digest& digest) {
  std::string digits;
  for (const std::byte byte : digest) digits += fmt::format("{:02x}", std::to_integer<int>(byte));
  return digits;
}

std::string short_hex(const pagekv::Digest& digest) {
  return hex(digest).substr(0, kShortDigits);
}

std::string exact_bytes(std::int64_t bytes) {
  if (bytes < 1024) return counted(bytes, "byte");
  return fmt::format("{} ({} bytes)", human_bytes(static_cast<double>(bytes)), bytes);
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string utc(std::int64_t ns) {
  return format_utc(ns, "%Y-%m-%d %H:%M:%S");
}

std::string iso_utc(std::int64_t ns) {
  return fmt::format("{}.{:09}Z", format_utc(ns, "%Y-%m-%dT%H:%M:%S"), ns % kNsPerSecond);
}

std::string shortened(std::string_view text, std::size_t most) {
  std::string line;
  for (const char c : text) {
    if (line.size() == most) return line + "...";
    line += static_cast<unsigned char>(c) < ' ' || c == '\x7f' ? '?' : c;
  }
  return line;
}

}  // namespace pagekv_tool
