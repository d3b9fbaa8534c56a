#include "io/tier/record_file.h"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>

#include "io/tier/names.h"
#include "io/tier/record.h"

namespace pagekv::inline v0::internal {

namespace {

void set_error(ReadRecord& record, int code) {
  record.outcome = code == kEndOfFile ? TierOutcome::corrupt : TierOutcome::io_error;
  record.system_error = code == kEndOfFile ? 0 : code;
}

// A link or a folder of that name is not a record; a pipe must not hold us up.
void open_record(int folder, const Digest& key, ReadRecord& record) {
  const std::string path = record_path(key);
  const int file =
      ::openat(folder, path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (file < 0) {
    if (errno != ENOENT && errno != ELOOP && errno != ENXIO) set_error(record, errno);
    return;
  }
  record.file = Descriptor(file);
  if (::fstat(record.file.get(), &record.status) != 0) return set_error(record, errno);
  if (S_ISREG(record.status.st_mode)) record.outcome = TierOutcome::ok;
}

void read_value(IoEngine& engine, const Digest& key, const RecordHead& head, ReadRecord& record) {
  const auto bytes = static_cast<std::size_t>(head.value_bytes);
  record.value = allocate_aligned(bytes);
  if (!record.value) return set_error(record, ENOMEM);
  record.value_bytes = head.value_bytes;
  const std::span value(record.value.get(), bytes);
  const int code = read_all(engine, record.file.get(), value, head.value_offset);
  if (code != 0) return set_error(record, code);
  if (!value_matches(head, key, value)) record.outcome = TierOutcome::corrupt;
}

}  // namespace

ReadRecord read_record(int folder, IoEngine& engine, const Digest& key, bool value) {
  ReadRecord record;
  open_record(folder, key, record);
  if (record.outcome != TierOutcome::ok) return record;
  std::array<std::byte, kMaxRecordHeadBytes> buffer;
  const std::int64_t file_bytes = record.status.st_size;
  const std::span bytes = std::span(buffer).first(static_cast<std::size_t>(
      std::min<std::int64_t>(file_bytes, static_cast<std::int64_t>(buffer.size()))));
  if (const int code = read_all(engine, record.file.get(), bytes, 0); code != 0) {
    set_error(record, code);
    return record;
  }
  const auto head = parse_record_head(bytes, key, file_bytes);
  if (!head) {
    record.outcome = TierOutcome::corrupt;
    return record;
  }
  const auto tag = bytes.subspan(kRecordFieldBytes, head->tag_bytes);
  record.tag.assign(tag.begin(), tag.end());
  if (value) read_value(engine, key, *head, record);
  return record;
}

NameUse look_at(int folder, const Digest& key, struct stat& status, int& system_error) {
  system_error = 0;
  if (::fstatat(folder, record_path(key).c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    return S_ISREG(status.st_mode) ? NameUse::record : NameUse::other;
  }
  if (errno == ENOENT) return NameUse::free;
  system_error = errno;
  return NameUse::other;
}

void write_use(int folder, const std::string& path, std::int64_t last_use) {
  const timespec times[2] = {
      {.tv_sec = 0, .tv_nsec = UTIME_OMIT},
      {.tv_sec = last_use / 1'000'000'000, .tv_nsec = static_cast<long>(last_use % 1'000'000'000)}};
  [[maybe_unused]] const int ignored =
      ::utimensat(folder, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
}

}  // namespace pagekv::inline v0::internal
