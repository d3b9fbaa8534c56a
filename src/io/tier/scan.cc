#include "io/tier/scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>

#include "io/tier/descriptor.h"
#include "io/tier/names.h"
#include "io/tier/use_clock.h"

namespace pagekv::inline v0::internal {

namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using OpenFolder = std::unique_ptr<DIR, CloseFolder>;

// 0 or errno.
int open_subfolder(int folder, const std::string& name, OpenFolder& subfolder) {
  const int open = ::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (open < 0) return errno;
  subfolder.reset(::fdopendir(open));
  if (subfolder) return 0;
  const int code = errno;
  ::close(open);
  return code;
}

// Whether the writer of a file is gone, and the file with it.
bool remove_left_over(int folder, IoEngine& engine, const std::string& path) {
  const Descriptor file(
      ::openat(folder, path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() || ::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  return engine.remove(folder, path.c_str()) == 0;
}

void add_entry(int folder, IoEngine& engine, bool tidy, const std::string& subfolder,
               const std::string& name, TierListing& listing) {
  const bool temporary = is_temporary_name(name);
  const auto key = parse_record_name(name);
  if ((!temporary && !key) || name.compare(0, 2, subfolder) != 0) return;
  const std::string path = subfolder + "/" + name;
  struct stat status{};
  if (::fstatat(folder, path.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) return;  // gone meanwhile
  if (!S_ISREG(status.st_mode)) return;
  if (temporary && tidy && remove_left_over(folder, engine, path)) return;
  listing.bytes += status.st_size;
  if (!key) return;
  const std::int64_t use = use_of(status);
  listing.latest_use = std::max(listing.latest_use, use);
  listing.records.push_back({.key = *key, .bytes = status.st_size, .last_use = use});
}

int list_subfolder(int folder, IoEngine& engine, bool tidy, const std::string& name,
                   TierListing& listing) {
  OpenFolder subfolder;
  const int code = open_subfolder(folder, name, subfolder);
  if (code != 0) return code == ENOENT ? 0 : code;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(subfolder.get());  // of this stream only: thread-safe
    if (entry == nullptr) return errno;
    add_entry(folder, engine, tidy, name, entry->d_name, listing);
  }
}

}  // namespace

TierListing list_folder(int folder, IoEngine& engine, bool tidy) {
  TierListing listing;
  for (int index = 0; index < kSubfolders && listing.error == 0; ++index) {
    listing.error = list_subfolder(folder, engine, tidy, subfolder_name(index), listing);
  }
  return listing;
}

std::int64_t use_of(const struct stat& status) {
  const std::int64_t seconds = status.st_mtim.tv_sec;
  if (seconds < 0 || seconds >= kLatestUse / 1'000'000'000) return 0;
  return seconds * 1'000'000'000 + status.st_mtim.tv_nsec;
}

}  // namespace pagekv::inline v0::internal
