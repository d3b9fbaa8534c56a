#include "cpu/amx.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace pagekv::inline v0::internal {

#if defined(__x86_64__) && defined(__linux__)

namespace {

bool processor_has_amx() {
  // Intel's manual, CPUID leaf 7: tiles, their products of bf16 and of bytes; AVX-512's bf16.
  constexpr unsigned kTiles = 1u << 24;
  constexpr unsigned kBf16 = 1u << 22;
  constexpr unsigned kBytes = 1u << 25;
  constexpr unsigned kAll = kTiles | kBf16 | kBytes;
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kVectorBf16 = 1u << 5;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAll) != kAll) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kVectorBf16) != 0;
}

}  // namespace

// The tiles' 8 KiB are part of a thread's state only in processes that asked for them:
// Documentation/arch/x86/xstate.rst of Linux.
bool amx_allowed() {
  constexpr long kRequest = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;     // the state's number
  static const bool allowed =
      processor_has_amx() && syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return allowed;
}

#else

bool amx_allowed() {
  return false;
}

#endif

}  // namespace pagekv::inline v0::internal
