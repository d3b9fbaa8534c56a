// Attention over codes in integers: cpu/code_weights.h says how, cpu/codes-inl.h does it.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/code_table.h"
#include "cpu/code_weights.h"
#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/codes.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/elements-inl.h"
#include "cpu/span_scales-inl.h"
#include "cpu/vector-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR
using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;
using ByteTag = hn::Repartition<std::uint8_t, FloatTag>;
using ByteVec = hn::Vec<ByteTag>;
using StreamTag = hn::Repartition<std::uint64_t, FloatTag>;
using StreamVec = hn::Vec<StreamTag>;
inline constexpr std::int64_t kBytes = 4 * kLanes;

namespace pairs {
#define PAGEKV_VNNI 0
#include "cpu/codes-inl.h"
#undef PAGEKV_VNNI
}  // namespace pairs

void export_codes(KernelTable& table) {
  pairs::fill_codes(table);
}
#else
// Without vectors there are no quads: codes are widened there.
void export_codes(KernelTable& /* table */) {}
#endif

#if HWY_TARGET != HWY_AVX3
void export_codes_vnni(KernelTable& /* table */) {}
#endif

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

// The one place with instructions that Highway's AVX3 target does not have.
#if HWY_TARGET == HWY_AVX3
HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni")
namespace pagekv::inline v0::internal::HWY_NAMESPACE {
namespace vnni {
#define PAGEKV_VNNI 1
#include "cpu/codes-inl.h"
#undef PAGEKV_VNNI
}  // namespace vnni

void export_codes_vnni(KernelTable& table) {
  vnni::fill_codes(table);
  vnni::fill_looked_up(table);
}
}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_POP_ATTRIBUTES
#endif

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_codes);
HWY_EXPORT(export_codes_vnni);

void bind_codes(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_codes), table);
}

bool bind_codes_vnni(KernelTable& table) {
#if HWY_ARCH_X86
  if (table.target != HWY_AVX3 || __builtin_cpu_supports("avx512vnni") == 0) return false;
  bind_kernels(HWY_DISPATCH_TABLE(export_codes_vnni), table);
  return true;
#else
  static_cast<void>(table);
  return false;
#endif
}

}  // namespace pagekv::inline v0::internal
#endif
