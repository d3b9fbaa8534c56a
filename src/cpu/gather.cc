// Gather: stored rows out of pages into contiguous tensors, each value rounded once.
#include <algorithm>
#include <array>

#include "codec/arrangement.h"
#include "cpu/backend.h"
#include "cpu/head_planes.h"
#include "cpu/row_address.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t kTaskRows = 64;

void gather_token(const KernelTable& kernels, const LayerAddress& layer, const PageId* pages,
                  std::int64_t position, const MutableRows& k, const MutableRows& v,
                  std::int64_t row) {
  auto* convert_k = kernels.convert[dtype_index(layer.format.k.dtype())][dtype_index(k.dtype)];
  auto* convert_v = kernels.convert[dtype_index(layer.format.v.dtype())][dtype_index(v.dtype)];
  alignas(64) std::array<std::byte, kMaxHeadDim * sizeof(float)> key;
  for (int kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
    const HeadPlanes head(layer, kv_head);
    const PageId page = head.page_of(pages, position);
    const std::int64_t token = head.row_of(position);
    load_key_row(layer.arrangement, head.keys(page), head.key_row_bytes(), token, key.data());
    convert_k(key.data(), row_address(k, row, kv_head), layer.key_dim);
    convert_v(head.values(page) + token * head.value_row_bytes(), row_address(v, row, kv_head),
              layer.value_dim);
  }
}

}  // namespace

void CpuBackend::gather(const LayerAddress& layer, const ReadSpan& span, MutableRows k,
                        MutableRows v, Stream) {
  const std::int64_t rows = span.end - span.begin;
  const auto run_task = [&](int, std::int64_t task) {
    const std::int64_t end = std::min((task + 1) * kTaskRows, rows);
    for (std::int64_t row = task * kTaskRows; row < end; ++row) {
      gather_token(*kernels_, layer, span.pages, span.begin + row, k, v, row);
    }
  };
  const std::int64_t tasks = (rows + kTaskRows - 1) / kTaskRows;
  if (tasks <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) run_task(0, task);
  } else {
    executor_->parallel_for(tasks, run_task);
  }
}

}  // namespace pagekv::inline v0::internal
