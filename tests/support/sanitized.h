// Whether a sanitizer watches: everything is ten times slower then, and tests of many cases take
// fewer of them.
#pragma once

namespace pagekv::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace pagekv::testing
