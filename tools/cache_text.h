// How `pagekv cache` writes digests, sizes, times, and names from outside.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "pagekv/digest.h"

namespace pagekv_tool {

std::string hex(const pagekv::Digest& digest);
std::string short_hex(const pagekv::Digest& digest);  // enough to tell them apart, and for --key

std::string exact_bytes(std::int64_t bytes);                     // "1.5 KiB (1536 bytes)"
std::string counted(std::int64_t count, std::string_view noun);  // "1 record", "2 records"
std::string utc(std::int64_t ns);      // since 1970: "2026-11-30 13:02:45"
std::string iso_utc(std::int64_t ns);  // "2026-11-30T13:02:45.000000001Z"

// At most `most` bytes of one line, without control characters.
std::string shortened(std::string_view text, std::size_t most);

}  // namespace pagekv_tool
