// Whether two model files are the same, told from parts of them: files of tens of gigabytes are not
// read for it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace pagekv::inline v0::engine {

// SHA-256, in hexadecimal, of the file's size and of up to 1,024 pieces of 4 KiB, the first and the
// last among them, as far from each other as the file allows. Files that differ in a few bytes only
// may have the same; models that were trained differently differ everywhere.
std::string fingerprint(std::span<const std::byte> file);

}  // namespace pagekv::inline v0::engine
