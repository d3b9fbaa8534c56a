#include "io/checksum.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // takes the widest vectors that the processor has
#else
#include <xxhash.h>
#endif

namespace pagekv::inline v0::internal {

std::uint64_t checksum(std::span<const std::byte> bytes, std::int64_t length) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), static_cast<XXH64_hash_t>(length));
}

std::string hex(std::uint64_t number) {
  std::string digits(16, '0');
  for (auto digit = digits.rbegin(); digit != digits.rend(); ++digit, number >>= 4) {
    *digit = "0123456789abcdef"[number & 15];
  }
  return digits;
}

}  // namespace pagekv::inline v0::internal
