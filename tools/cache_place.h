// What a path given to `pagekv cache` is, told by what is in it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pagekv/error.h"
#include "pagekv/snapshot.h"
#include "pagekv/tier.h"

namespace pagekv_tool {

struct SnapshotFile {
  std::string path;
  std::int64_t bytes = 0;
  std::int64_t modified_ns = 0;  // since 1970
  // What its header says. An error: it is damaged, or of another version.
  pagekv::Result<pagekv::SnapshotInfo> info;
};

struct Place {
  enum class Kind { snapshot, tier, folder };
  Kind kind = Kind::snapshot;
  std::string path;
  std::vector<SnapshotFile> snapshots = {};    // the one, or those of the folder, by name
  std::vector<pagekv::Error> unreadable = {};  // files of the folder
  std::int64_t other_files = 0;                // of the folder, that are no snapshots
  std::unique_ptr<pagekv::Tier> tier = {};     // read-only
};

// Errors: io_error, invalid_argument (a file or a folder of something else), unsupported, and those
// of open_directory_tier(). A file that begins as a snapshot does is one, damaged or not.
pagekv::Result<Place> find_place(const std::string& path);

// Of all paths, in their order. Reports each that is none, and sets `failed`.
std::vector<Place> find_places(const std::vector<std::string>& paths, bool& failed);

// The same folder, to be written. REQUIRES: it is a tier.
pagekv::Result<std::unique_ptr<pagekv::Tier>> open_for_writing(const Place& place);

}  // namespace pagekv_tool
