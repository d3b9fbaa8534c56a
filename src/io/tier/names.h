// Where a record is in a tier's folder: "ab/abcd...", the 64 hexadecimal digits of its key in a
// sub-folder named by the first two. Names are made of digits only, so no key leads elsewhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "pagekv/digest.h"

namespace pagekv::inline v0::internal {

inline constexpr int kSubfolders = 256;

std::string subfolder_name(int index);  // "00" to "ff"
std::string record_path(const Digest& key);
// Of a file that becomes a record by being renamed: a record's, with a suffix and a number.
std::string temporary_path(const Digest& key, std::uint64_t number);

// Of file names without their folder. Nothing where the name is not exactly such a one.
std::optional<Digest> parse_record_name(std::string_view name);
bool is_temporary_name(std::string_view name);

}  // namespace pagekv::inline v0::internal
