// Gather: stored rows out of pages into contiguous tensors, each value rounded once.
#include <algorithm>
#include <array>

#include "codec/limits.h"
#include "codec/stored_vector.h"
#include "cpu/backend.h"
#include "cpu/head_planes.h"
#include "cpu/row_address.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t kTaskRows = 64;

// One head's vector out of the planes at `from`. What is not dense saturates at the largest finite
// value of the type it is gathered in.
void gather_side(const KernelTable& kernels, const VectorCodec& codec, const HeadSide& side,
                 const PlanePointers& from, DType type, std::byte* vector, std::int64_t dim) {
  using Bytes = std::array<std::byte, kMaxHeadDim * sizeof(float)>;
  alignas(64) std::array<Bytes, kMaxPlanes> rows;
  for (int i = 0; i < side.planes(); ++i) {
    const PlaneShape& shape = side.shape(i);
    const auto at = static_cast<std::size_t>(i);
    copy_row(shape, from[at], unit_stride(shape), rows[at].data(), shape.unit_bytes);
  }
  if (codec.kind() == CodecKind::dense && !codec.is_rotated()) {
    kernels.convert[dtype_index(codec.dtype())][dtype_index(type)](rows[0].data(), vector, dim);
    return;
  }
  alignas(64) std::array<float, kMaxHeadDim> values;
  decode_vector(codec, {rows[0].data(), rows[1].data(), rows[2].data()}, dim, values.data());
  const float largest = largest_finite(type);
  for (std::int64_t i = 0; i < dim; ++i) {
    float& value = values[static_cast<std::size_t>(i)];
    value = std::clamp(value, -largest, largest);
  }
  kernels.convert[dtype_index(DType::f32)][dtype_index(type)](values.data(), vector, dim);
}

void gather_token(const KernelTable& kernels, const LayerAddress& layer, const PageId* pages,
                  std::int64_t position, const MutableRows& k, const MutableRows& v,
                  std::int64_t row) {
  for (int kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
    const HeadSide keys = head_keys(layer, kv_head);
    const HeadSide values = head_values(layer, kv_head);
    gather_side(kernels, layer.format.k, keys, keys.row(pages, position), k.dtype,
                row_address(k, row, kv_head), layer.key_dim);
    gather_side(kernels, layer.format.v, values, values.row(pages, position), v.dtype,
                row_address(v, row, kv_head), layer.value_dim);
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
