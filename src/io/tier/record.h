// The bytes of a record's file: a head, then the value. docs/tier.md has the table.
//
// The value begins at a multiple of 64 bytes, and not of a block: the kernel copies it out of its
// cache, and who reads past that reads files whole, from byte 0. Up to 4 KiB a record would be
// lost. Every byte of a file is under one of two checksums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "pagekv/digest.h"

namespace pagekv::inline v0::internal {

inline constexpr std::size_t kRecordFieldBytes = 72;  // of the head, before the tag
inline constexpr std::size_t kRecordAlignment = 64;   // of the value
inline constexpr std::size_t kMaxRecordHeadBytes = 4224;

struct RecordHead {
  std::size_t tag_bytes = 0;
  std::int64_t value_offset = 0;  // bytes from the beginning of the file; the head's length
  std::int64_t value_bytes = 0;
  std::uint64_t value_sum = 0;
};

// Bytes of the file. REQUIRES: tag_bytes <= kMaxTierTagBytes.
std::int64_t record_bytes(std::size_t tag_bytes, std::size_t value_bytes);
// The head, tag and padding included. REQUIRES: as above.
std::vector<std::byte> make_record_head(const Digest& key, std::span<const std::byte> tag,
                                        std::span<const std::byte> value);
// What the file of `file_bytes` bytes holds that begins with `bytes` (kMaxRecordHeadBytes of them,
// or all). Nothing where that is not the whole head of this key and this length of file.
std::optional<RecordHead> parse_record_head(std::span<const std::byte> bytes, const Digest& key,
                                            std::int64_t file_bytes);
bool value_matches(const RecordHead& head, const Digest& key, std::span<const std::byte> value);

}  // namespace pagekv::inline v0::internal
