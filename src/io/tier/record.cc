#include "io/tier/record.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "io/checksum.h"
#include "io/little_endian.h"
#include "pagekv/tier.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::array<char, 8> kMagic = {'p', 'a', 'g', 'e', 'k', 'v', 'R', '\n'};
constexpr std::uint32_t kVersion = 1;
// Offsets of the fields.
constexpr std::size_t kVersionAt = 8;
constexpr std::size_t kTagBytesAt = 12;
constexpr std::size_t kValueBytesAt = 16;
constexpr std::size_t kKeyAt = 24;
constexpr std::size_t kValueSumAt = 56;
constexpr std::size_t kHeadSumAt = 64;

constexpr std::size_t head_bytes(std::size_t tag_bytes) {
  return (kRecordFieldBytes + tag_bytes + kRecordAlignment - 1) / kRecordAlignment *
         kRecordAlignment;
}
static_assert(head_bytes(kMaxTierTagBytes) == kMaxRecordHeadBytes);

// Of the whole head with its own field as zeros.
std::uint64_t head_sum(std::span<const std::byte> head) {
  std::array<std::byte, kMaxRecordHeadBytes> copy;
  std::copy(head.begin(), head.end(), copy.begin());
  store_number(std::span<std::byte>(copy), kHeadSumAt, std::uint64_t{0});
  return checksum(std::span(copy).first(head.size()), 0);
}

// Key and length are part of it, so that a value under another head is found out as well.
std::uint64_t value_sum(const Digest& key, std::span<const std::byte> value) {
  const std::uint64_t seed = checksum(key, static_cast<std::int64_t>(value.size()));
  return checksum(value, static_cast<std::int64_t>(seed));
}

}  // namespace

std::int64_t record_bytes(std::size_t tag_bytes, std::size_t value_bytes) {
  return static_cast<std::int64_t>(head_bytes(tag_bytes) + value_bytes);
}

std::vector<std::byte> make_record_head(const Digest& key, std::span<const std::byte> tag,
                                        std::span<const std::byte> value) {
  std::vector<std::byte> head(head_bytes(tag.size()));
  std::memcpy(head.data(), kMagic.data(), kMagic.size());
  store_number(std::span(head), kVersionAt, kVersion);
  store_number(std::span(head), kTagBytesAt, static_cast<std::uint32_t>(tag.size()));
  store_number(std::span(head), kValueBytesAt, static_cast<std::uint64_t>(value.size()));
  std::copy(key.begin(), key.end(), head.begin() + kKeyAt);
  store_number(std::span(head), kValueSumAt, value_sum(key, value));
  std::copy(tag.begin(), tag.end(), head.begin() + kRecordFieldBytes);
  store_number(std::span(head), kHeadSumAt, head_sum(head));
  return head;
}

std::optional<RecordHead> parse_record_head(std::span<const std::byte> bytes, const Digest& key,
                                            std::int64_t file_bytes) {
  if (bytes.size() < kRecordFieldBytes ||
      std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0 ||
      load_number<std::uint32_t>(bytes, kVersionAt) != kVersion ||
      !std::equal(key.begin(), key.end(), bytes.begin() + kKeyAt)) {
    return std::nullopt;
  }
  const auto tag_bytes = load_number<std::uint32_t>(bytes, kTagBytesAt);
  if (tag_bytes > kMaxTierTagBytes || head_bytes(tag_bytes) > bytes.size()) return std::nullopt;
  const auto head = bytes.first(head_bytes(tag_bytes));
  if (load_number<std::uint64_t>(bytes, kHeadSumAt) != head_sum(head)) return std::nullopt;
  const auto value_bytes = load_number<std::uint64_t>(bytes, kValueBytesAt);
  const auto value_offset = static_cast<std::int64_t>(head.size());
  if (value_bytes != static_cast<std::uint64_t>(file_bytes - value_offset)) return std::nullopt;
  return RecordHead{.tag_bytes = tag_bytes,
                    .value_offset = value_offset,
                    .value_bytes = static_cast<std::int64_t>(value_bytes),
                    .value_sum = load_number<std::uint64_t>(bytes, kValueSumAt)};
}

bool value_matches(const RecordHead& head, const Digest& key, std::span<const std::byte> value) {
  return value_sum(key, value) == head.value_sum;
}

}  // namespace pagekv::inline v0::internal
