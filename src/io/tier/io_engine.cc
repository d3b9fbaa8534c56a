#include "io/tier/io_engine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace pagekv::inline v0::internal {

namespace {

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // what one call moves for sure

}  // namespace

IoEngine::~IoEngine() = default;

ssize_t IoEngine::read(int file, std::span<std::byte> to, std::int64_t offset) {
  return ::pread(file, to.data(), std::min(to.size(), kMostAtOnce), offset);
}

ssize_t IoEngine::write(int file, std::span<const std::byte> from, std::int64_t offset) {
  return ::pwrite(file, from.data(), std::min(from.size(), kMostAtOnce), offset);
}

int IoEngine::create(int folder, const char* path) {
  return ::openat(folder, path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

int IoEngine::resize(int file, std::int64_t bytes) {
  return ::ftruncate(file, bytes);
}

int IoEngine::sync(int file) {
  return ::fsync(file);
}

int IoEngine::rename(int folder, const char* from, const char* to) {
  return ::renameat(folder, from, folder, to);
}

int IoEngine::remove(int folder, const char* path) {
  return ::unlinkat(folder, path, 0);
}

int read_all(IoEngine& engine, int file, std::span<std::byte> to, std::int64_t offset) {
  while (!to.empty()) {
    const ssize_t count = engine.read(file, to, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return kEndOfFile;
    to = to.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return 0;
}

int write_all(IoEngine& engine, int file, std::span<const std::byte> from, std::int64_t offset) {
  while (!from.empty()) {
    const ssize_t count = engine.write(file, from, offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return EIO;  // no progress, and no reason given
    from = from.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return 0;
}

}  // namespace pagekv::inline v0::internal
