// Rotation of single vectors, and pages of dense rotated ones.
#include <cstddef>
#include <cstdint>

#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/rotate.cc"
#include "hwy/foreach_target.h"
// foreach_target.h must come first.
#include "cpu/encode-inl.h"
#include "cpu/rotate-inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::internal::HWY_NAMESPACE {

void rotate(const Rotation& rotation, float* values) {
  rotate_vector(rotation, largest_magnitude(values, rotation.dim), values);
}

void unrotate(const Rotation& rotation, float* values) {
  unrotate_vector(rotation, largest_magnitude(values, rotation.dim), values);
}

std::uint32_t encode_dense(float* values, std::int64_t rows, const SideShape& shape,
                           const PlanePointers& to) {
  const std::uint32_t refused = prepare(shape, rows, values);
  store_all_saturated(shape.scales, values, rows * shape.dim, to[0]);
  return refused;
}

void export_rotate(KernelTable& table) {
  table.rotate = rotate;
  table.unrotate = unrotate;
  for (std::size_t type = 0; type < kDTypes; ++type) table.encode[type] = encode_dense;
}

}  // namespace pagekv::inline v0::internal::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::internal {

HWY_EXPORT(export_rotate);

void bind_rotate(KernelTable& table) {
  bind_kernels(HWY_DISPATCH_TABLE(export_rotate), table);
}

}  // namespace pagekv::inline v0::internal
#endif
