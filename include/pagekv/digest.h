// What names content outside a process: 32 bytes, of SHA-256.
#pragma once

#include <array>
#include <cstddef>

namespace pagekv::inline v0 {

using Digest = std::array<std::byte, 32>;

}  // namespace pagekv::inline v0
