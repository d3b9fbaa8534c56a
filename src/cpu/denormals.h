// FlushDenormals: while it lives, this thread's vectors take numbers below 2^-126 for 0, as a
// matrix unit does.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace pagekv::inline v0::internal {

#if defined(__x86_64__)
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | kFlushResults | kFlushOperands); }
  ~FlushDenormals() { _mm_setcsr(before_); }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  static constexpr unsigned kFlushResults = 1u << 15;
  static constexpr unsigned kFlushOperands = 1u << 6;
  unsigned before_;
};
#else
class [[maybe_unused]] FlushDenormals {};  // no other processor's matrix unit is used
#endif

}  // namespace pagekv::inline v0::internal
