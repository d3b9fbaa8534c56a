#include "io/tier/marker.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string_view>
#include <system_error>

#include "io/tier/scan.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::string_view kFormatText = "pagekv tier, format ";
constexpr std::string_view kFormat = "pagekv tier, format 1\n";
constexpr const char* kMarker = "format";
constexpr const char* kNewMarker = "format.new";

tl::unexpected<Error> failed(const char* what, const std::string& path, int code) {
  return fail(
      ErrorCode::io_error, "{s}", {code},
      std::string("cannot ") + what + " " + path + ": " + std::generic_category().message(code));
}

enum class Marker { missing, known };

Result<Marker> read_marker(int folder, const std::string& path) {
  const Descriptor file(::openat(folder, kMarker, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid() && errno == ENOENT) return Marker::missing;
  if (!file.valid()) return failed("open the file \"format\" of", path, errno);
  std::array<char, 64> bytes;
  const ssize_t count = ::pread(file.get(), bytes.data(), bytes.size(), 0);
  if (count < 0) return failed("read the file \"format\" of", path, errno);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(count));
  if (text == kFormat) return Marker::known;
  if (!text.starts_with(kFormatText)) {
    return fail(ErrorCode::invalid_argument, "{s} is not a tier: its file \"format\" is another's",
                {}, path);
  }
  std::int64_t version = 0;
  std::from_chars(text.data() + kFormatText.size(), text.data() + text.size(), version);
  return fail(ErrorCode::unsupported, "{s} is a tier of format {0}; this version knows 1",
              {version}, path);
}

bool is_ours(std::string_view name) {  // what the making of a tier may have left
  return name == "." || name == ".." || name == "lock" || name == "usage" || name == kNewMarker;
}

Status check_empty(int folder, const std::string& path) {
  Descriptor copy(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> open(copy.valid() ? ::fdopendir(copy.get()) : nullptr,
                                                 ::closedir);
  if (!open) return failed("list", path, errno);
  copy.release();
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr && errno != 0) return failed("list", path, errno);
    if (entry == nullptr) return {};
    if (is_ours(entry->d_name)) continue;
    return fail(ErrorCode::invalid_argument,
                "{s}: it has no file \"format\", so it is not a tier, and is not made one", {},
                path + " holds \"" + entry->d_name + "\"");
  }
}

int write_marker(int folder) {
  const Descriptor file(
      ::openat(folder, kNewMarker, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (!file.valid()) return errno;
  const ssize_t count = ::pwrite(file.get(), kFormat.data(), kFormat.size(), 0);
  if (count < 0) return errno;
  if (count != static_cast<ssize_t>(kFormat.size())) return ENOSPC;
  // On the disk before its name is: a marker that a power cut tore would disown the records.
  if (::fsync(file.get()) != 0) return errno;
  return ::renameat(folder, kNewMarker, folder, kMarker) == 0 ? 0 : errno;
}

}  // namespace

Result<Descriptor> open_tier_folder(const std::string& path, bool read_only) {
  if (!read_only && ::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST && errno != EROFS) {
    return failed("make", path, errno);
  }
  Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return failed("open", path, errno);
  const auto marker = read_marker(folder.get(), path);
  if (!marker) return tl::unexpected(marker.error());
  if (*marker == Marker::known) return folder;
  if (auto empty = check_empty(folder.get(), path); !empty) return tl::unexpected(empty.error());
  return folder;
}

Status check_marked(int folder, const std::string& path) {
  const auto marker = read_marker(folder, path);
  if (!marker) return tl::unexpected(marker.error());
  if (*marker == Marker::known) return {};
  return fail(ErrorCode::invalid_argument, "{s} is not a tier: it is empty", {}, path);
}

Status mark_tier_folder(int folder, const std::string& path) {
  const auto marker = read_marker(folder, path);
  if (!marker) return tl::unexpected(marker.error());
  if (*marker == Marker::known) return {};
  const int code = write_marker(folder);
  return code == 0 ? Status() : Status(failed("mark", path, code));
}

}  // namespace pagekv::inline v0::internal
