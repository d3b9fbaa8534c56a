// Removing what `pagekv cache` has selected.
#pragma once

#include <cstdint>
#include <vector>

#include "pagekv/error.h"
#include "pagekv/tier.h"
#include "tools/cache_place.h"
#include "tools/cache_records.h"

namespace pagekv_tool {

struct Removed {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};

// Those that are gone already are passed over. Errors: io_error; what went until then is gone.
pagekv::Result<Removed> remove_records(pagekv::Tier& tier, const std::vector<CacheRecord>& records);
pagekv::Status remove_file(const SnapshotFile& file);

}  // namespace pagekv_tool
