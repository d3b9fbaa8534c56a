#include "cpu/span_reader.h"

#include <algorithm>
#include <cstring>

#include "codec/arrangement.h"

namespace pagekv::inline v0::internal {

bool SpanReader::locate(std::int64_t start, SpanTiles& span) const {
  span.begin = std::clamp<std::int64_t>(range_.begin - start, 0, kSpanTokens);
  span.end = std::clamp<std::int64_t>(range_.end - start, 0, kSpanTokens);
  if (span.begin >= span.end) return false;
  span.first_tile = span.begin / kTileTokens;
  span.end_tile = (span.end + kTileTokens - 1) / kTileTokens;
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const std::int64_t position = start + tile * kTileTokens;
    const auto at = static_cast<std::size_t>(tile);
    span.k[at] = head_.key_tile(pages_, position);
    span.v[at] = head_.value_tile(pages_, position);
    const std::int64_t next = position + kSpanTokens;
    span.next_k[at] = next < range_.end ? head_.key_tile(pages_, next) : nullptr;
  }
  return true;
}

const std::byte* SpanReader::stage_tile(std::int64_t start, std::int64_t tile,
                                        const SpanTiles& span, std::byte* room) const {
  const std::int64_t position = start + tile * kTileTokens;
  const std::int64_t first = std::max<std::int64_t>(range_.begin - position, 0);
  const std::int64_t end = std::min(range_.end - position, kTileTokens);
  const std::byte* keys = span.k[static_cast<std::size_t>(tile)];
  const bool whole = first == 0 && end == kTileTokens;
  if (whole && head_.arrangement() == TileArrangement::key_tile16) return keys;

  const std::int64_t row_bytes = head_.key_row_bytes();
  if (!whole) std::memset(room, 0, static_cast<std::size_t>(kTileTokens * row_bytes));
  const std::int64_t token_step =
      head_.arrangement() == TileArrangement::row_major ? row_bytes : kUnitBytes;
  const std::int64_t unit_step =
      head_.arrangement() == TileArrangement::row_major ? kUnitBytes : kUnitStride;
  for (std::int64_t token = first; token < end; ++token) {
    const std::byte* from = keys + token * token_step;
    std::byte* to = room + token * kUnitBytes;
    for (std::int64_t unit = 0; unit < row_bytes / kUnitBytes; ++unit) {
      std::memcpy(to + unit * kUnitStride, from + unit * unit_step, kUnitBytes);
    }
  }
  return room;
}

void SpanReader::stage(std::int64_t start, SpanTiles& span, std::byte* room) const {
  const std::int64_t tile_bytes = kTileTokens * head_.key_row_bytes();
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    span.k[static_cast<std::size_t>(tile)] =
        stage_tile(start, tile, span, room + tile * tile_bytes);
  }
}

}  // namespace pagekv::inline v0::internal
