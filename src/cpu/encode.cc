// Encode: rows of a step into pages, each vector by its codec.
#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

#include "codec/stored_vector.h"
#include "cpu/backend.h"
#include "cpu/head_planes.h"
#include "cpu/row_address.h"

namespace pagekv::inline v0::internal {

namespace {

// Rows of one task, and the bytes below which waking other threads costs more than it brings.
constexpr std::int64_t kTaskRows = 32;
constexpr std::int64_t kInlineBytes = 64 * 1024;

// One head's vector into the planes at `to`. Returns whether all of it can be stored.
bool encode_side(const KernelTable& kernels, const VectorCodec& codec, const HeadSide& side,
                 const PlanePointers& to, DType type, const std::byte* vector, std::int64_t dim) {
  using Bytes = std::array<std::byte, kMaxHeadDim * sizeof(float)>;
  const bool as_given = codec.kind() == CodecKind::dense && !codec.is_rotated();
  alignas(64) std::array<Bytes, kMaxPlanes> rows;
  bool stored = false;
  if (as_given && !side.interleaved()) {
    return kernels.convert[dtype_index(type)][dtype_index(codec.dtype())](vector, to[0], dim);
  }
  if (as_given) {
    stored =
        kernels.convert[dtype_index(type)][dtype_index(codec.dtype())](vector, rows[0].data(), dim);
  } else {
    alignas(64) std::array<float, kMaxHeadDim> values;
    kernels.convert[dtype_index(type)][dtype_index(DType::f32)](vector, values.data(), dim);
    stored =
        encode_vector(codec, values.data(), dim, {rows[0].data(), rows[1].data(), rows[2].data()});
    if (!stored) return false;
  }
  for (int i = 0; i < side.planes(); ++i) {
    const PlaneShape& shape = side.shape(i);
    const auto at = static_cast<std::size_t>(i);
    copy_row(shape, rows[at].data(), shape.unit_bytes, to[at], unit_stride(shape));
  }
  return stored;
}

// Stores the token at `position`, whose rows are row `row` of k and v. Returns whether all of it
// can be stored.
bool encode_token(const KernelTable& kernels, const LayerAddress& layer, const PageId* pages,
                  std::int64_t position, const Rows& k, const Rows& v, std::int64_t row) {
  bool stored = true;
  for (int kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
    const HeadSide keys = head_keys(layer, kv_head);
    const HeadSide values = head_values(layer, kv_head);
    stored &= encode_side(kernels, layer.format.k, keys, keys.row(pages, position), k.dtype,
                          row_address(k, row, kv_head), layer.key_dim);
    stored &= encode_side(kernels, layer.format.v, values, values.row(pages, position), v.dtype,
                          row_address(v, row, kv_head), layer.value_dim);
  }
  return stored;
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
      const bool stored =
          encode_token(*kernels_, layer, span.pages, span.position + token, k, v, row + token);
      if (!stored) keep_first(span.bad_token, token);
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
