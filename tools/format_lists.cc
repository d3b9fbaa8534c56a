#include "tools/format_lists.h"

#include "pagekv/codec.h"

namespace pagekv_tool {
namespace {

bool is_side(std::string_view text, std::string_view side) {
  return text.starts_with(side) && text.find(',') == std::string_view::npos;
}

}  // namespace

const CLI::Validator& formats_validator() {
  static const CLI::Validator validator(
      [](std::string& list) -> std::string {
        for (const std::string& text : split_formats(list)) {
          const auto format = pagekv::Format::parse(text);
          if (!format) return format.error().message();
        }
        return {};
      },
      "");
  return validator;
}

std::vector<std::string> split_formats(std::string_view list) {
  std::vector<std::string> formats;
  for (;;) {
    const std::size_t comma = list.find(',');
    const std::string_view part = list.substr(0, comma);
    const bool other_side =
        !formats.empty() && ((is_side(part, "v=") && is_side(formats.back(), "k=")) ||
                             (is_side(part, "k=") && is_side(formats.back(), "v=")));
    if (other_side) {
      formats.back().append(",").append(part);
    } else {
      formats.emplace_back(part);
    }
    if (comma == std::string_view::npos) return formats;
    list.remove_prefix(comma + 1);
  }
}

std::vector<std::string> split_formats(const std::vector<std::string>& lists) {
  std::vector<std::string> formats;
  for (const std::string& list : lists) {
    for (std::string& format : split_formats(list)) formats.push_back(std::move(format));
  }
  return formats;
}

}  // namespace pagekv_tool
