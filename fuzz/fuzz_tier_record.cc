// Any bytes as the file of a tier's record: as they are, and with its head's checksum put right,
// which chance would not.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fuzz/require.h"
#include "io/checksum.h"
#include "io/tier/record.h"

namespace {

using pagekv::Digest;
using pagekv::fuzz::require;
using pagekv::internal::checksum;
using pagekv::internal::kMaxRecordHeadBytes;
using pagekv::internal::kRecordFieldBytes;
using pagekv::internal::make_record_head;
using pagekv::internal::parse_record_head;
using pagekv::internal::value_matches;

constexpr std::size_t kKeyAt = 24;
constexpr std::size_t kHeadSumAt = 64;

void check(std::span<const std::byte> file, const Digest& key) {
  const auto head = parse_record_head(file.first(std::min(file.size(), kMaxRecordHeadBytes)), key,
                                      static_cast<std::int64_t>(file.size()));
  if (!head) return;
  require(head->value_offset >= 0 && head->value_bytes >= 0, "lengths are lengths");
  const auto offset = static_cast<std::size_t>(head->value_offset);
  require(kRecordFieldBytes + head->tag_bytes <= offset, "the tag is in the head");
  require(offset + static_cast<std::size_t>(head->value_bytes) == file.size(),
          "head and value are the file");
  const auto value = file.subspan(offset);
  if (!value_matches(*head, key, value)) return;
  const auto again = make_record_head(key, file.subspan(kRecordFieldBytes, head->tag_bytes), value);
  require(again.size() == offset, "equal records have equal lengths");
}

void put_sum_right(std::span<std::byte> head) {
  std::fill_n(head.begin() + kHeadSumAt, 8, std::byte{0});
  const std::uint64_t sum = checksum(head, 0);
  for (std::size_t byte = 0; byte < 8; ++byte) {
    head[kHeadSumAt + byte] = static_cast<std::byte>(sum >> 8 * byte & 0xff);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::byte> file(size);  // of exactly this size, for the sanitizer
  std::transform(data, data + size, file.begin(),
                 [](std::uint8_t byte) { return std::byte{byte}; });
  Digest key{};
  if (size >= kKeyAt + key.size()) std::copy_n(file.begin() + kKeyAt, key.size(), key.begin());
  check(file, key);
  if (size < kRecordFieldBytes) return 0;
  for (std::size_t head = 128; head <= std::min(size, kMaxRecordHeadBytes); head += 64) {
    std::vector<std::byte> repaired = file;
    put_sum_right(std::span(repaired).first(head));
    check(repaired, key);
  }
  return 0;
}
