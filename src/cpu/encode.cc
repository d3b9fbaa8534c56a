// Encode: rows of a step into pages, rounded to the storage type.
#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "codec/arrangement.h"
#include "cpu/backend.h"
#include "cpu/head_planes.h"
#include "cpu/row_address.h"

namespace pagekv::inline v0::internal {

namespace {

// Rows of one task, and the bytes below which waking other threads costs more than it brings.
constexpr std::int64_t kTaskRows = 32;
constexpr std::int64_t kInlineBytes = 64 * 1024;

// Stores token `token` of a span, whose rows are row `row` of k and v. Returns whether all values
// are finite in the storage type.
bool encode_token(const KernelTable& kernels, const LayerAddress& layer, const PageId* pages,
                  std::int64_t position, const Rows& k, const Rows& v, std::int64_t row) {
  auto* convert_k = kernels.convert[dtype_index(k.dtype)][dtype_index(layer.format.k.dtype())];
  auto* convert_v = kernels.convert[dtype_index(v.dtype)][dtype_index(layer.format.v.dtype())];
  alignas(64) std::array<std::byte, kMaxHeadDim * sizeof(float)> key;
  bool finite = true;
  for (int kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
    const HeadPlanes head(layer, kv_head);
    const PageId page = head.page_of(pages, position);
    const std::int64_t token = head.row_of(position);
    finite &= convert_k(row_address(k, row, kv_head), key.data(), layer.key_dim);
    store_key_row(layer.arrangement, head.keys(page), head.key_row_bytes(), token, key.data());
    finite &= convert_v(row_address(v, row, kv_head),
                        head.values(page) + token * head.value_row_bytes(), layer.value_dim);
  }
  return finite;
}

void keep_first(std::int64_t& first, std::int64_t token) {
  std::atomic_ref<std::int64_t> shared(first);
  std::int64_t seen = shared.load(std::memory_order_relaxed);
  while (token < seen && !shared.compare_exchange_weak(seen, token, std::memory_order_relaxed)) {
  }
}

}  // namespace

void CpuBackend::encode(const LayerAddress& layer, std::span<WriteSpan> spans, Rows k, Rows v,
                        Stream) {
  constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t tasks = 0;
  std::int64_t total_rows = 0;
  for (WriteSpan& span : spans) {
    span.bad_token = kNone;
    tasks += (span.tokens + kTaskRows - 1) / kTaskRows;
    total_rows += span.tokens;
  }

  const auto run_task = [&](int, std::int64_t task) {
    std::int64_t row = 0;  // of k and v, where the span begins
    std::size_t which = 0;
    while (true) {
      const std::int64_t span_tasks = (spans[which].tokens + kTaskRows - 1) / kTaskRows;
      if (task < span_tasks) break;
      task -= span_tasks;
      row += spans[which++].tokens;
    }
    WriteSpan& span = spans[which];
    const std::int64_t end = std::min((task + 1) * kTaskRows, span.tokens);
    for (std::int64_t token = task * kTaskRows; token < end; ++token) {
      const bool finite =
          encode_token(*kernels_, layer, span.pages, span.position + token, k, v, row + token);
      if (!finite) keep_first(span.bad_token, token);
    }
  };
  const std::int64_t row_bytes = layer.kv_heads * (layer.k[0].row_bytes + layer.v[0].row_bytes);
  if (tasks == 1 || total_rows * row_bytes <= kInlineBytes) {
    for (std::int64_t task = 0; task < tasks; ++task) run_task(0, task);
  } else {
    executor_->parallel_for(tasks, run_task);
  }
  for (WriteSpan& span : spans) {
    if (span.bad_token == kNone) span.bad_token = -1;
  }
}

}  // namespace pagekv::inline v0::internal
