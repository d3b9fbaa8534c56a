// Encode: rows of a step into pages, each vector by its codec.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <limits>

#include "cpu/backend.h"
#include "cpu/head_planes.h"
#include "cpu/row_address.h"
#include "cpu/tile_room.h"

namespace pagekv::inline v0::internal {

namespace {

// Rows of one task, and the bytes below which waking other threads costs more than it brings.
constexpr std::int64_t kTaskRows = 32;
constexpr std::int64_t kInlineBytes = 64 * 1024;

void keep_first(std::int64_t& first, std::int64_t token) {
  std::atomic_ref<std::int64_t> shared(first);
  std::int64_t seen = shared.load(std::memory_order_relaxed);
  while (token < seen && !shared.compare_exchange_weak(seen, token, std::memory_order_relaxed)) {
  }
}

// Rows of a tensor for one head: where they are, and the token of the span that the first one is.
struct HeadRows {
  const std::byte* first;
  std::int64_t stride;  // bytes
  std::int64_t token;
  std::int64_t count;
};

// How vectors of one side of a layer are stored, whatever the head.
class VectorWriter {
 public:
  VectorWriter(const KernelTable& kernels, const VectorCodec& codec, const PlaneLayouts& planes,
               std::int64_t dim, DType type)
      : kernels_(kernels),
        shape_(side_shape(codec, planes, dim)),
        as_given_(codec.kind() == CodecKind::dense && !codec.is_rotated()),
        convert_(kernels.convert[dtype_index(type)][dtype_index(codec.dtype())]),
        to_float_(kernels.to_float[dtype_index(type)]),
        encode_(kernels.encode[codec_index(codec)]) {}

  const KernelTable& kernels() const { return kernels_; }

  // Up to kTileTokens rows into planes whose rows are contiguous. Returns those that cannot be
  // stored, a bit each.
  std::uint32_t operator()(const HeadRows& rows, const PlanePointers& to) const {
    return as_given_ ? convert_rows(rows, to) : encode_rows(rows, to);
  }

 private:
  std::uint32_t convert_rows(const HeadRows& rows, const PlanePointers& to) const {
    std::uint32_t refused = 0;
    for (std::int64_t row = 0; row < rows.count; ++row) {
      std::byte* into = to[0] + row * shape_.row_bytes[0];
      if (!convert_(rows.first + row * rows.stride, into, shape_.dim)) refused |= 1u << row;
    }
    return refused;
  }

  std::uint32_t encode_rows(const HeadRows& rows, const PlanePointers& to) const {
    alignas(64) std::array<float, kTileTokens * kMaxHeadDim> values;
    for (std::int64_t row = 0; row < rows.count; ++row) {
      to_float_(rows.first + row * rows.stride, values.data() + row * shape_.dim, shape_.dim);
    }
    return encode_(values.data(), rows.count, shape_, to);
  }

  const KernelTable& kernels_;
  SideShape shape_;
  bool as_given_;
  KernelTable::Convert* convert_;
  KernelTable::ToFloat* to_float_;
  KernelTable::Encode* encode_;
};

// Rows that go into one tile, the first one's planes at `to`.
void encode_run(const VectorWriter& write, const HeadSide& side, const PlanePointers& to,
                const HeadRows& rows, WriteSpan& span) {
  std::uint32_t refused = 0;
  if (side.interleaved()) {
    const TileRoom room(side);
    refused = write(rows, room.planes());
    room.interleave(write.kernels(), side, rows.count, to);
  } else {
    refused = write(rows, to);
  }
  if (refused != 0) keep_first(span.bad_token, rows.token + std::countr_zero(refused));
}

void encode_head(const VectorWriter& write, const HeadSide& side, const HeadRows& rows,
                 WriteSpan& span) {
  for (std::int64_t done = 0; done < rows.count;) {
    const std::int64_t position = span.position + rows.token + done;
    const std::int64_t run = std::min(rows.count - done, kTileTokens - position % kTileTokens);
    encode_run(write, side, side.row(span.pages, position),
               {rows.first + done * rows.stride, rows.stride, rows.token + done, run}, span);
    done += run;
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

  const VectorWriter write_key(*kernels_, layer.format.k, layer.k, layer.key_dim, k.dtype);
  const VectorWriter write_value(*kernels_, layer.format.v, layer.v, layer.value_dim, v.dtype);
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
    const std::int64_t first = task * kTaskRows;
    const std::int64_t count = std::min(kTaskRows, span.tokens - first);
    for (int kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
      encode_head(write_key, head_keys(layer, kv_head),
                  {row_address(k, row + first, kv_head), row_bytes(k), first, count}, span);
      encode_head(write_value, head_values(layer, kv_head),
                  {row_address(v, row + first, kv_head), row_bytes(v), first, count}, span);
    }
  };
  const std::int64_t code_bytes = layer.kv_heads * (layer.k[0].row_bytes + layer.v[0].row_bytes);
  if (tasks == 1 || total_rows * code_bytes <= kInlineBytes) {
    for (std::int64_t task = 0; task < tasks; ++task) run_task(0, task);
  } else {
    executor_->parallel_for(tasks, run_task);
  }
  for (WriteSpan& span : spans) {
    if (span.bad_token == kNone) span.bad_token = -1;
  }
}

}  // namespace pagekv::inline v0::internal
