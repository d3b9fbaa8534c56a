// Planes in canonical order, out of pages and into them: what files hold.
#include <algorithm>

#include "cpu/backend.h"
#include "cpu/head_planes.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t kInterleavedUnit = 4;  // bytes that the kernels interleave by

// Calls visit(head, first byte of the tile or run in its plane, row in it, rows, token) for runs of
// tokens that lie in one tile each.
template <typename Visit>
void for_each_run(const LayerAddress& layer, const ReadSpan& span, bool keys, int plane,
                  Executor& executor, Visit visit) {
  executor.parallel_for(layer.kv_heads, [&](int, std::int64_t head) {
    const HeadSide side = keys ? head_keys(layer, head) : head_values(layer, head);
    for (std::int64_t token = span.begin; token < span.end;) {
      const std::int64_t row = token % layer.page_tokens;
      const std::int64_t rows = std::min(kTileTokens - row % kTileTokens, span.end - token);
      std::byte* page = side.plane(plane, span.pages[token / layer.page_tokens]);
      visit(head, side.shape(plane), page, row, rows, token);
      token += rows;
    }
  });
}

bool is_whole_tile(const PlaneShape& shape, std::int64_t rows) {
  return shape.interleaved && shape.unit_bytes == kInterleavedUnit && rows == kTileTokens;
}

}  // namespace

void CpuBackend::read_plane(const LayerAddress& layer, const ReadSpan& span, bool keys, int plane,
                            std::byte* to) {
  const std::int64_t tokens = span.end - span.begin;
  for_each_run(layer, span, keys, plane, executor(),
               [&](std::int64_t head, const PlaneShape& shape, const std::byte* page,
                   std::int64_t row, std::int64_t rows, std::int64_t token) {
                 std::byte* out = to + (head * tokens + token - span.begin) * shape.row_bytes;
                 if (is_whole_tile(shape, rows)) {
                   kernels_->deinterleave(page + tile_offset(shape, row), shape.row_bytes, out);
                   return;
                 }
                 for (std::int64_t i = 0; i < rows; ++i) {
                   load_row(shape, page, row + i, out + i * shape.row_bytes);
                 }
               });
}

void CpuBackend::write_plane(const LayerAddress& layer, const ReadSpan& span, bool keys, int plane,
                             const std::byte* from, std::int64_t head_stride) {
  for_each_run(layer, span, keys, plane, executor(),
               [&](std::int64_t head, const PlaneShape& shape, std::byte* page, std::int64_t row,
                   std::int64_t rows, std::int64_t token) {
                 const std::byte* in =
                     from + head * head_stride + (token - span.begin) * shape.row_bytes;
                 if (is_whole_tile(shape, rows)) {
                   kernels_->interleave(in, shape.row_bytes, page + tile_offset(shape, row));
                   return;
                 }
                 for (std::int64_t i = 0; i < rows; ++i) {
                   store_row(shape, page, row + i, in + i * shape.row_bytes);
                 }
               });
}

}  // namespace pagekv::inline v0::internal
