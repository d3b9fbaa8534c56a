#include "cpu/backend.h"

#include <cstring>
#include <utility>

#include "cpu/arena.h"
#include "cpu/head_planes.h"
#include "cpu/targets.h"

namespace pagekv::inline v0 {
namespace internal {

CpuBackend::CpuBackend(const KernelTable& kernels, std::shared_ptr<Executor> executor,
                       bool huge_pages)
    : kernels_(&kernels), executor_(std::move(executor)), huge_pages_(huge_pages) {}

std::string CpuBackend::name() const {
  return std::string("cpu/") + kernels_->name;
}

Result<std::unique_ptr<Arena>> CpuBackend::reserve_arena(std::int64_t bytes) {
  return CpuArena::reserve(bytes, huge_pages_);
}

Status CpuBackend::supports(const CacheLayout& layout) const {
  switch (layout.arrangement()) {
    case TileArrangement::row_major:
    case TileArrangement::key_tile16: return {};
  }
  return fail(ErrorCode::unsupported, "the CPU device does not know tile arrangement {0}",
              {static_cast<std::int64_t>(layout.arrangement())});
}

namespace {

void copy_side(const HeadSide& side, PageId from_page, PageId to_page, std::int64_t rows) {
  for (int i = 0; i < side.planes(); ++i) {
    const PlaneShape& shape = side.shape(i);
    const std::byte* from = side.plane(i, from_page);
    std::byte* to = side.plane(i, to_page);
    const std::int64_t whole_rows = shape.interleaved ? rows / kTileTokens * kTileTokens : rows;
    std::memcpy(to, from, static_cast<std::size_t>(whole_rows * shape.row_bytes));
    // Of the last tile only the rows below `rows`, unit by unit: another thread may be writing the
    // units of later rows.
    const std::int64_t tail = rows - whole_rows;
    const std::int64_t units = tail > 0 ? shape.row_bytes / shape.unit_bytes : 0;
    for (std::int64_t unit = 0; unit < units; ++unit) {
      const std::int64_t at = tile_offset(shape, whole_rows) + unit * unit_stride(shape);
      std::memcpy(to + at, from + at, static_cast<std::size_t>(tail * shape.unit_bytes));
    }
  }
}

}  // namespace

void CpuBackend::copy_rows(const LayerAddress& layer, PageId from, PageId to, std::int64_t rows,
                           Stream) {
  for (int kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
    copy_side(head_keys(layer, kv_head), from, to, rows);
    copy_side(head_values(layer, kv_head), from, to, rows);
  }
}

}  // namespace internal

Result<Device> make_cpu_device(CpuOptions options) {
  const internal::KernelTable* kernels = internal::find_kernel_table(options.target);
  if (kernels == nullptr) {
    std::string names;
    for (const std::string& name : cpu_targets()) names += (names.empty() ? "" : ", ") + name;
    return fail(ErrorCode::invalid_argument, "unknown CPU target: {s}", {},
                "\"" + options.target + "\" is not one of " + names);
  }
  std::shared_ptr<Executor> executor = std::move(options.executor);
  if (executor == nullptr) {
    auto made = make_thread_executor(options.threads);
    if (!made) return tl::make_unexpected(made.error());
    executor = *std::move(made);
  }
  return Device(
      std::make_shared<internal::CpuBackend>(*kernels, std::move(executor), options.huge_pages));
}

}  // namespace pagekv::inline v0
