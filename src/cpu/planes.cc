// Planes in canonical order, out of pages and into them: what files hold.
#include <algorithm>

#include "cpu/backend.h"
#include "cpu/head_planes.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t kInterleavedUnit = 4;  // bytes that the kernels interleave by

// Calls visit(the plane's shape, its page, row in it, rows, token) for runs of tokens that lie in
// one tile each.
template <typename Visit>
void for_each_run(const LayerAddress& layer, const ReadSpan& span, HeadPlane of, Visit visit) {
  const HeadSide side = of.keys ? head_keys(layer, of.head) : head_values(layer, of.head);
  for (std::int64_t token = span.begin; token < span.end;) {
    const std::int64_t row = token % layer.page_tokens;
    const std::int64_t rows = std::min(kTileTokens - row % kTileTokens, span.end - token);
    std::byte* page = side.plane(of.plane, span.pages[token / layer.page_tokens]);
    visit(side.shape(of.plane), page, row, rows, token - span.begin);
    token += rows;
  }
}

bool is_whole_tile(const PlaneShape& shape, std::int64_t rows) {
  return shape.interleaved && shape.unit_bytes == kInterleavedUnit && rows == kTileTokens;
}

}  // namespace

void CpuBackend::read_plane(const LayerAddress& layer, const ReadSpan& span, HeadPlane of,
                            std::byte* to) {
  for_each_run(layer, span, of,
               [&](const PlaneShape& shape, const std::byte* page, std::int64_t row,
                   std::int64_t rows, std::int64_t at) {
                 std::byte* out = to + at * shape.row_bytes;
                 if (is_whole_tile(shape, rows)) {
                   kernels_->deinterleave(page + tile_offset(shape, row), shape.row_bytes, out);
                   return;
                 }
                 for (std::int64_t i = 0; i < rows; ++i) {
                   load_row(shape, page, row + i, out + i * shape.row_bytes);
                 }
               });
}

void CpuBackend::write_plane(const LayerAddress& layer, const ReadSpan& span, HeadPlane of,
                             const std::byte* from) {
  for_each_run(layer, span, of,
               [&](const PlaneShape& shape, std::byte* page, std::int64_t row, std::int64_t rows,
                   std::int64_t at) {
                 const std::byte* in = from + at * shape.row_bytes;
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
