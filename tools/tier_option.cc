#include "tools/tier_option.h"

#include <cctype>
#include <limits>
#include <string_view>
#include <utility>

namespace pagekv_tool {
namespace {

constexpr std::string_view kKind = "dir:";

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw CLI::ValidationError("--tier", "\"" + text + "\" " + why +
                                           "; write dir:PATH or dir:PATH:SIZE, as in "
                                           "dir:/var/cache/pagekv:64G");
}

// What stands behind the last colon, where it begins with a digit.
std::string_view size_of(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == text.size()) return {};
  const std::string_view rest = text.substr(colon + 1);
  const bool digit = std::isdigit(static_cast<unsigned char>(rest.front())) != 0;
  return digit && rest.find('/') == std::string_view::npos ? rest : std::string_view();
}

std::int64_t read_bytes(const std::string& text, std::string size) {
  std::uint64_t bytes = 0;
  try {
    const std::string error = CLI::AsSizeValue(false)(size);
    if (!error.empty() || !CLI::detail::lexical_cast(size, bytes)) bytes = 0;
  } catch (const CLI::ValidationError&) {  // an unknown unit
    bytes = 0;
  }
  if (bytes == 0 || bytes > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    refuse(text, "has no size at its end");
  }
  return static_cast<std::int64_t>(bytes);
}

// "dir:PATH[:SIZE]".
TierOption parse_tier(const std::string& text) {
  TierOption option;
  if (!text.starts_with(kKind)) refuse(text, "is no kind of tier");
  option.path = text.substr(kKind.size());
  if (const std::string_view size = size_of(option.path); !size.empty()) {
    option.cap_bytes = read_bytes(text, std::string(size));
    option.path.resize(option.path.size() - size.size() - 1);
  }
  if (option.path.empty()) refuse(text, "names no folder");
  return option;
}

}  // namespace

void add_tier_option(CLI::App& app, TierOption& option, const std::string& help) {
  app.add_option_function<std::string>(
         "--tier", [&option](const std::string& text) { option = parse_tier(text); }, help)
      ->type_name("dir:PATH[:SIZE]");
}

pagekv::Result<std::shared_ptr<pagekv::Tier>> open_tier(const TierOption& option) {
  if (option.path.empty()) return std::shared_ptr<pagekv::Tier>();
  auto tier = pagekv::open_directory_tier(option.path, {.cap_bytes = option.cap_bytes});
  if (!tier) return tl::unexpected<pagekv::Error>(tier.error());
  return std::shared_ptr<pagekv::Tier>(std::move(*tier));
}

}  // namespace pagekv_tool
