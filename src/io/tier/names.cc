#include "io/tier/names.h"

#include <algorithm>

#include "core/prefix/digest.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";
constexpr std::string_view kTemporary = ".new.";
constexpr std::size_t kNameDigits = 2 * std::tuple_size_v<Digest>;

}  // namespace

std::string subfolder_name(int index) {
  const auto byte = static_cast<std::byte>(index);
  return hex({&byte, 1});
}

std::string record_path(const Digest& key) {
  return subfolder_name(std::to_integer<int>(key[0])) + "/" + hex(key);
}

std::string temporary_path(const Digest& key, std::uint64_t number) {
  return record_path(key) + std::string(kTemporary) + std::to_string(number);
}

std::optional<Digest> parse_record_name(std::string_view name) {
  if (name.size() != kNameDigits) return std::nullopt;
  Digest key;
  for (std::size_t at = 0; at < key.size(); ++at) {
    const std::size_t high = kDigits.find(name[2 * at]);
    const std::size_t low = kDigits.find(name[2 * at + 1]);
    if (high == kDigits.npos || low == kDigits.npos) return std::nullopt;
    key[at] = static_cast<std::byte>(high << 4 | low);
  }
  return key;
}

bool is_temporary_name(std::string_view name) {
  if (name.size() <= kNameDigits + kTemporary.size()) return false;
  const std::string_view number = name.substr(kNameDigits + kTemporary.size());
  return parse_record_name(name.substr(0, kNameDigits)) &&
         name.substr(kNameDigits, kTemporary.size()) == kTemporary &&
         std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace pagekv::inline v0::internal
