#include "io/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace pagekv::inline v0::internal {

namespace {

constexpr const char* kSaving = ".saving.";  // between a file's name and what makes it another

constexpr std::size_t kMostAtOnce = std::size_t{1} << 30;  // what one call moves for sure

tl::unexpected<Error> failed(const char* what, const std::string& path) {
  const int code = errno;
  return fail(
      ErrorCode::io_error, "{s}", {code},
      std::string("cannot ") + what + " " + path + ": " + std::generic_category().message(code));
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

Status sync_folder(const std::string& path) {
  const std::string folder = folder_of(path);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return failed("open", folder);
  const bool done = ::fsync(descriptor) == 0 || errno == EINVAL;  // some systems cannot
  Status status;
  if (!done) status = failed("sync", folder);
  ::close(descriptor);
  return status;
}

}  // namespace

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_),
      path_(std::move(other.path_)) {}

Result<InputFile> InputFile::open(const std::string& path) {
  InputFile file;
  file.path_ = path;
  file.descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status{};
  if (file.descriptor_ < 0) return failed("open", path);
  if (::fstat(file.descriptor_, &status) != 0) return failed("look at", path);
  if (!S_ISREG(status.st_mode)) {
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    return failed("read", path);
  }
  file.bytes_ = status.st_size;
  return file;
}

Status InputFile::read(std::int64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    const ssize_t count = ::pread(descriptor_, to.data(), std::min(to.size(), kMostAtOnce), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("read", path_);
    if (count == 0) {
      return fail(ErrorCode::corrupt_file, "{s} ends at byte {0}", {offset}, path_);
    }
    to = to.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return {};
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})) {}

// A file that is being written is locked, so one that is not was left by a process that ended.
void OutputFile::remove_left_overs(const std::string& path) {
  const std::string begin = std::filesystem::path(path).filename().string() + kSaving;
  std::error_code error;  // a folder that cannot be read is somebody else's to complain about
  std::filesystem::directory_iterator at(folder_of(path), error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    if (!at->path().filename().string().starts_with(begin)) continue;
    const int file = ::open(at->path().c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) continue;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(at->path().c_str());
    ::close(file);
  }
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  remove_left_overs(path);
  OutputFile file;
  file.path_ = path;
  static std::atomic<unsigned> counter{0};
  for (;;) {  // until the name is new
    std::string name =
        path + kSaving + std::to_string(::getpid()) + "." + std::to_string(counter++);
    file.descriptor_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file.descriptor_ < 0 && errno == EEXIST) continue;
    if (file.descriptor_ < 0) return failed("create", path);
    file.temporary_ = std::move(name);
    // Another process may have taken it for a left-over before it was locked.
    struct stat status{};
    const bool locked = ::flock(file.descriptor_, LOCK_EX | LOCK_NB) == 0;
    if (::fstat(file.descriptor_, &status) == 0 && status.st_nlink > 0 && locked) return file;
    ::close(std::exchange(file.descriptor_, -1));
    ::unlink(std::exchange(file.temporary_, {}).c_str());
  }
}

Status OutputFile::write(std::int64_t offset, std::span<const std::byte> from) {
  while (!from.empty()) {
    const ssize_t count =
        ::pwrite(descriptor_, from.data(), std::min(from.size(), kMostAtOnce), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("write", path_);
    from = from.subspan(static_cast<std::size_t>(count));
    offset += count;
  }
  return {};
}

Status OutputFile::finish(bool sync) {
  if (sync && ::fsync(descriptor_) != 0) return failed("sync", path_);
  // Locked until it has its name.
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("name", path_);
  temporary_.clear();
  const int descriptor = std::exchange(descriptor_, -1);
  if (::close(descriptor) != 0) return failed("close", path_);
  return sync ? sync_folder(path_) : Status();
}

}  // namespace pagekv::inline v0::internal
