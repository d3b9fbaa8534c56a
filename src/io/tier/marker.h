// The file `format` in a tier's folder, which says that it is one, and of which version. Nothing is
// written into, or removed from, a folder that holds something else.
#pragma once

#include <string>

#include "io/tier/descriptor.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::internal {

// Opens the folder, and makes it where it is missing and `read_only` is false. Errors: io_error,
// invalid_argument (it holds something, and no marker), unsupported (another version).
Result<Descriptor> open_tier_folder(const std::string& path, bool read_only);

// Errors: invalid_argument where there is no marker; as above.
Status check_marked(int folder, const std::string& path);

// Writes the marker if there is none. REQUIRES: the folder's lock. Errors: as above.
Status mark_tier_folder(int folder, const std::string& path);

}  // namespace pagekv::inline v0::internal
