#include "tools/cache_place.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>
#include <system_error>
#include <utility>

#include "tools/console.h"

namespace pagekv_tool {
namespace {

using pagekv::Error;
using pagekv::ErrorCode;
using pagekv::Result;

tl::unexpected<Error> refused(const std::string& path, int code) {
  return pagekv::fail(ErrorCode::io_error, "{s}", {code},
                      path + ": " + std::generic_category().message(code));
}

// Metadata come first in a snapshot, and "format" is among the first of them.
bool begins_as_snapshot(std::string_view bytes) {
  constexpr std::size_t kLengthBytes = 8;
  return bytes.size() > kLengthBytes &&
         bytes.substr(kLengthBytes).starts_with(R"({"__metadata__":)") &&
         bytes.find(R"("format":"pagekv snapshot")") != std::string_view::npos;
}

Result<bool> is_snapshot(const std::string& path) {
  std::array<char, 65536> bytes;
  errno = 0;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return refused(path, errno);
  const std::size_t count = std::fread(bytes.data(), 1, bytes.size(), file);
  const int code = std::ferror(file) != 0 ? errno : 0;
  std::fclose(file);
  if (code != 0) return refused(path, code);
  return begins_as_snapshot({bytes.data(), count});
}

SnapshotFile describe(const std::string& path, const struct stat& status) {
  return {
      .path = path,
      .bytes = status.st_size,
      .modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
      .info = pagekv::inspect(path)};
}

Result<Place> find_file(const std::string& path, const struct stat& status) {
  const auto snapshot = is_snapshot(path);
  if (!snapshot) return tl::unexpected<Error>(snapshot.error());
  if (!*snapshot) {
    return pagekv::fail(ErrorCode::invalid_argument,
                        "{s} is no snapshot: it does not begin as files of pagekv do", {}, path);
  }
  Place place{.kind = Place::Kind::snapshot, .path = path};
  place.snapshots.push_back(describe(path, status));
  return place;
}

void add_file(Place& place, const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
    ++place.other_files;
    return;
  }
  const auto snapshot = is_snapshot(path);
  if (!snapshot) {
    place.unreadable.push_back(snapshot.error());
  } else if (*snapshot) {
    place.snapshots.push_back(describe(path, status));
  } else {
    ++place.other_files;
  }
}

// `why_no_tier`: what is said of a folder without a snapshot.
Result<Place> find_folder(const std::string& path, const std::string& why_no_tier) {
  Place place{.kind = Place::Kind::folder, .path = path};
  std::error_code error;
  std::vector<std::string> files;
  std::filesystem::directory_iterator at(path, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    // Not yet a snapshot: docs/snapshots.md.
    const bool being_saved = at->path().filename().string().find(".saving.") != std::string::npos;
    if (!being_saved) files.push_back(at->path().string());
  }
  if (error) return refused(path, error.value());
  std::sort(files.begin(), files.end());
  for (const std::string& file : files) add_file(place, file);
  if (!place.snapshots.empty() || !place.unreadable.empty()) return place;
  return pagekv::fail(ErrorCode::invalid_argument, "{s}", {},
                      why_no_tier + "; nor does it hold a snapshot");
}

}  // namespace

Result<Place> find_place(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return refused(path, errno);
  if (S_ISREG(status.st_mode)) return find_file(path, status);
  if (!S_ISDIR(status.st_mode)) {
    return pagekv::fail(ErrorCode::invalid_argument, "{s} is neither a file nor a folder", {},
                        path);
  }
  auto tier = pagekv::open_directory_tier(path, {.read_only = true});
  if (tier) {
    Place place{.kind = Place::Kind::tier, .path = path};
    place.tier = std::move(*tier);
    return place;
  }
  if (tier.error().code() != ErrorCode::invalid_argument) return tl::unexpected(tier.error());
  return find_folder(path, tier.error().message());
}

std::vector<Place> find_places(const std::vector<std::string>& paths, bool& failed) {
  std::vector<Place> places;
  for (const std::string& path : paths) {
    auto place = find_place(path);
    if (place) {
      places.push_back(std::move(*place));
      continue;
    }
    report_error(place.error().message());
    failed = true;
  }
  return places;
}

// A tier evicts down to its cap when it is opened: this one has none.
Result<std::unique_ptr<pagekv::Tier>> open_for_writing(const Place& place) {
  return pagekv::open_directory_tier(place.path,
                                     {.cap_bytes = std::numeric_limits<std::int64_t>::max()});
}

}  // namespace pagekv_tool
