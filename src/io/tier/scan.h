// The listing of a tier's folder: no file is opened but those that writers may have left behind.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <vector>

#include "io/tier/books.h"
#include "io/tier/io_engine.h"

namespace pagekv::inline v0::internal {

struct TierListing {
  std::vector<KnownRecord> records;  // by their files' times
  std::int64_t bytes = 0;            // of them and of what is being written now
  std::int64_t latest_use = 0;
  int error = 0;  // errno; the rest means nothing then
};

// Files with other names, and what is not a file, are left alone and not counted. With `tidy`,
// which REQUIRES the folder's lock, files whose writers are gone are removed: a living writer holds
// a lock on its file.
TierListing list_folder(int folder, IoEngine& engine, bool tidy);

// When a file was used last. A time before 1970 or after kLatestUse is nobody's: long ago.
std::int64_t use_of(const struct stat& status);

}  // namespace pagekv::inline v0::internal
