#include "io/tier/usage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "io/checksum.h"

namespace pagekv::inline v0::internal {

namespace {

// Written and read as it is in memory: the file is used by processes of one machine only, and one
// that does not match its checksum is counted anew.
struct Stored {
  std::int64_t changing = 0;
  TierUsage usage;
  std::uint64_t sum = 0;
};
static_assert(sizeof(Stored) == 40);

std::uint64_t sum_of(const Stored& stored) {
  return checksum(std::as_bytes(std::span(&stored, 1)).first(sizeof stored - sizeof stored.sum), 1);
}

// Numbers that can be added to without a thought.
bool is_sane(const TierUsage& usage) {
  constexpr std::int64_t most = std::int64_t{3} << 61;
  return std::min({usage.bytes, usage.added, usage.clock}) >= 0 &&
         std::max({usage.bytes, usage.added, usage.clock}) <= most;
}

int open_shared(int folder, const char* name) {
  return ::openat(folder, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
}

}  // namespace

int UsageFile::open(int folder) {
  lock_ = Descriptor(open_shared(folder, "lock"));
  if (!lock_.valid()) return errno;
  usage_ = Descriptor(open_shared(folder, "usage"));
  return usage_.valid() ? 0 : errno;
}

int UsageFile::lock() const {
  while (::flock(lock_.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

void UsageFile::unlock() const {
  ::flock(lock_.get(), LOCK_UN);
}

bool UsageFile::read(TierUsage& usage) const {
  Stored stored;
  if (::pread(usage_.get(), &stored, sizeof stored, 0) != sizeof stored) return false;
  if (stored.sum != sum_of(stored) || !is_sane(stored.usage)) return false;
  usage = stored.usage;
  return stored.changing == 0;
}

int UsageFile::write(const TierUsage& usage, bool changing) const {
  Stored stored{.changing = changing ? 1 : 0, .usage = usage};
  stored.sum = sum_of(stored);
  const ssize_t count = ::pwrite(usage_.get(), &stored, sizeof stored, 0);
  if (count < 0) return errno;
  return count == sizeof stored ? 0 : EIO;
}

}  // namespace pagekv::inline v0::internal
