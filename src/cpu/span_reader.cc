#include "cpu/span_reader.h"

#include <algorithm>
#include <cstring>

namespace pagekv::inline v0::internal {

namespace {

// Tokens [first, end) of a tile into key_tile16 form; the others are zero.
void stage_plane(const PlaneShape& shape, const std::byte* tile, std::int64_t first,
                 std::int64_t end, std::byte* room) {
  if (end - first < kTileTokens) {
    std::memset(room, 0, static_cast<std::size_t>(kTileTokens * shape.row_bytes));
  }
  for (std::int64_t token = first; token < end; ++token) {
    copy_row(shape, tile + token * token_stride(shape), unit_stride(shape),
             room + token * shape.unit_bytes, kTileTokens * shape.unit_bytes);
  }
}

}  // namespace

bool SpanReader::locate(std::int64_t start, SpanTiles& span) const {
  span.begin = std::clamp<std::int64_t>(range_.begin - start, 0, kSpanTokens);
  span.end = std::clamp<std::int64_t>(range_.end - start, 0, kSpanTokens);
  if (span.begin >= span.end) return false;
  span.first_tile = span.begin / kTileTokens;
  span.end_tile = (span.end + kTileTokens - 1) / kTileTokens;
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const std::int64_t position = start + tile * kTileTokens;
    const auto at = static_cast<std::size_t>(tile);
    span.k[at] = keys_.tile(pages_, position);
    span.v[at] = values_.tile(pages_, position);
    const std::int64_t next = position + kSpanTokens;
    span.next_k[at] = next < range_.end ? keys_.tile(pages_, next)[0] : nullptr;
  }
  return true;
}

ConstPlanePointers SpanReader::stage_tile(std::int64_t start, std::int64_t tile,
                                          const SpanTiles& span, std::byte* room) const {
  const std::int64_t position = start + tile * kTileTokens;
  const std::int64_t first = std::max<std::int64_t>(range_.begin - position, 0);
  const std::int64_t end = std::min(range_.end - position, kTileTokens);
  const ConstPlanePointers& in_page = span.k[static_cast<std::size_t>(tile)];
  if (first == 0 && end == kTileTokens && keys_.interleaved()) return in_page;

  ConstPlanePointers staged{};
  for (int plane = 0; plane < keys_.planes(); ++plane) {
    const auto at = static_cast<std::size_t>(plane);
    stage_plane(keys_.shape(plane), in_page[at], first, end, room);
    staged[at] = room;
    room += kTileTokens * keys_.shape(plane).row_bytes;
  }
  return staged;
}

void SpanReader::stage(std::int64_t start, SpanTiles& span, std::byte* room) const {
  std::int64_t tile_bytes = 0;
  for (int plane = 0; plane < keys_.planes(); ++plane) {
    tile_bytes += kTileTokens * keys_.shape(plane).row_bytes;
  }
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    span.k[static_cast<std::size_t>(tile)] =
        stage_tile(start, tile, span, room + tile * tile_bytes);
  }
}

}  // namespace pagekv::inline v0::internal
