// Gather: stored rows out of pages into contiguous tensors, each value rounded once.
#include <algorithm>
#include <array>

#include "codec/limits.h"
#include "codec/stored_vector.h"
#include "cpu/backend.h"
#include "cpu/head_planes.h"
#include "cpu/row_address.h"
#include "cpu/tile_room.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t kTaskRows = 64;

// How vectors of one side of a layer are read, whatever the head.
class VectorReader {
 public:
  VectorReader(const KernelTable& kernels, const VectorCodec& codec, const PlaneLayouts& planes,
               std::int64_t dim, DType type)
      : kernels_(kernels),
        codec_(codec),
        shape_(side_shape(codec, planes, dim)),
        type_(type),
        as_stored_(codec.kind() == CodecKind::dense && !codec.is_rotated()),
        convert_(kernels.convert[dtype_index(as_stored_ ? codec.dtype() : DType::f32)]
                                [dtype_index(type)]),
        decode_(kernels.decode[codec_index(codec)]) {}

  const KernelTable& kernels() const { return kernels_; }

  // Out of planes that are contiguous. What is not dense saturates at the largest finite value of
  // the type it is gathered in.
  void operator()(const ConstPlanePointers& from, std::byte* vector) const {
    if (as_stored_) {
      convert_(from[0], vector, shape_.dim);
    } else if (!decode_(from, shape_, type_, vector)) {
      alignas(64) std::array<float, kMaxHeadDim> values;
      decode_vector(codec_, {from[0], from[1], from[2]}, shape_.dim, values.data());
      const float largest = largest_finite(type_);
      std::for_each_n(values.begin(), shape_.dim,
                      [=](float& value) { value = std::clamp(value, -largest, largest); });
      convert_(values.data(), vector, shape_.dim);
    }
  }

 private:
  const KernelTable& kernels_;
  VectorCodec codec_;
  SideShape shape_;
  DType type_;
  bool as_stored_;
  KernelTable::Convert* convert_;
  KernelTable::Decode* decode_;
};

// Rows of a tensor for one head.
struct HeadRows {
  std::byte* first;
  std::int64_t stride;  // bytes
  std::int64_t count;
};

// Rows of one tile, the first one's planes at `from`.
void gather_run(const VectorReader& read, const HeadSide& side, const PlanePointers& from,
                const HeadRows& rows) {
  const auto read_rows = [&](const PlanePointers& first) {
    ConstPlanePointers next = {first[0], first[1], first[2]};
    for (std::int64_t row = 0; row < rows.count; ++row) {
      read(next, rows.first + row * rows.stride);
      for (int i = 0; i < side.planes(); ++i) {
        next[static_cast<std::size_t>(i)] += side.shape(i).row_bytes;
      }
    }
  };
  if (!side.interleaved()) return read_rows(from);
  TileRoom room(side);
  room.deinterleave(read.kernels(), side, rows.count, from);
  read_rows(room.planes());
}

void gather_head(const VectorReader& read, const HeadSide& side, const PageId* pages,
                 std::int64_t position, const HeadRows& rows) {
  for (std::int64_t done = 0; done < rows.count;) {
    const std::int64_t at = position + done;
    const std::int64_t run = std::min(rows.count - done, kTileTokens - at % kTileTokens);
    gather_run(read, side, side.row(pages, at),
               {rows.first + done * rows.stride, rows.stride, run});
    done += run;
  }
}

}  // namespace

void CpuBackend::gather(const LayerAddress& layer, const ReadSpan& span, MutableRows k,
                        MutableRows v, Stream) {
  const std::int64_t rows = span.end - span.begin;
  const VectorReader read_key(*kernels_, layer.format.k, layer.k, layer.key_dim, k.dtype);
  const VectorReader read_value(*kernels_, layer.format.v, layer.v, layer.value_dim, v.dtype);
  const auto run_task = [&](int, std::int64_t task) {
    const std::int64_t first = task * kTaskRows;
    const std::int64_t count = std::min(kTaskRows, rows - first);
    for (int kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
      gather_head(read_key, head_keys(layer, kv_head), span.pages, span.begin + first,
                  {row_address(k, first, kv_head), row_bytes(k), count});
      gather_head(read_value, head_values(layer, kv_head), span.pages, span.begin + first,
                  {row_address(v, first, kv_head), row_bytes(v), count});
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
