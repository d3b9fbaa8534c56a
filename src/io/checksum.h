// XXH3 of 64 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace pagekv::inline v0::internal {

// `length`: of the content without its padding; part of the sum.
std::uint64_t checksum(std::span<const std::byte> bytes, std::int64_t length);
// 16 digits, lower case.
std::string hex(std::uint64_t number);

}  // namespace pagekv::inline v0::internal
