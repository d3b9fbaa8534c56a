#include "cpu/span_reader.h"

#include <algorithm>
#include <array>
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

namespace {

// Tiles of one sequence, one after the other.
class TileWalk {
 public:
  TileWalk(const PageId* pages, std::int64_t page_tokens, std::int64_t position)
      : page_(pages + position / page_tokens),
        row_(position % page_tokens),
        page_tokens_(page_tokens) {}
  void advance() {
    row_ += kTileTokens;
    if (row_ < page_tokens_) return;
    row_ = 0;
    ++page_;
  }
  ConstPlanePointers tile(const HeadSide& side) const { return side.tile(*page_, row_); }

 private:
  const PageId* page_;
  std::int64_t row_;
  std::int64_t page_tokens_;
};

void ask_for(const void* address) {
  __builtin_prefetch(address, 0, 2);
}

// The first plane of these tiles.
Ahead ahead_of(const HeadSide& side, const std::byte* const* tiles, std::int64_t count) {
  return {tiles, count, kTileTokens * side.shape(0).row_bytes};
}

}  // namespace

bool SpanReader::locate(std::int64_t start, SpanTiles& span) const {
  span.begin = std::clamp<std::int64_t>(range_.begin - start, 0, kSpanTokens);
  span.end = std::clamp<std::int64_t>(range_.end - start, 0, kSpanTokens);
  if (span.begin >= span.end) return false;
  span.first_tile = span.begin / kTileTokens;
  span.end_tile = (span.end + kTileTokens - 1) / kTileTokens;
  std::array<const std::byte*, kSpanTiles> values{};
  TileWalk walk(pages_, page_tokens_, start - origin_ + span.first_tile * kTileTokens);
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile, walk.advance()) {
    const auto at = static_cast<std::size_t>(tile);
    span.k[at] = walk.tile(keys_);
    span.v[at] = walk.tile(values_);
    values[at] = span.v[at][0];
  }
  span.next_values =
      ahead_of(values_, values.data() + span.first_tile, span.end_tile - span.first_tile);
  look_ahead(start, span);
  return true;
}

// Kernels ask for elements and codes, values while keys of the same span are scored, the next
// span's keys while values are added. Here is what else would be waited for: scales and biases of
// the next span, and the translation of addresses further on.
void SpanReader::look_ahead(std::int64_t start, SpanTiles& span) const {
  const auto tiles_from = [&](std::int64_t position) {
    const std::int64_t left = (range_.end - position + kTileTokens - 1) / kTileTokens;
    return std::clamp<std::int64_t>(left, 0, kSpanTiles);
  };
  span.next_keys = {};
  const std::int64_t next = start + kSpanTokens;
  if (next < range_.begin) return;  // only where a block begins within its first span
  const std::int64_t next_tiles = tiles_from(next);
  if (next_tiles == 0) return;
  std::array<const std::byte*, kSpanTiles> next_keys{};
  TileWalk walk(pages_, page_tokens_, next - origin_);
  for (std::int64_t tile = 0; tile < next_tiles; ++tile, walk.advance()) {
    const ConstPlanePointers keys = walk.tile(keys_);
    const ConstPlanePointers values = walk.tile(values_);
    next_keys[static_cast<std::size_t>(tile)] = keys[0];
    for (int plane = 1; plane < keys_.planes(); ++plane)
      ask_for(keys[static_cast<std::size_t>(plane)]);
    for (int plane = 1; plane < values_.planes(); ++plane)
      ask_for(values[static_cast<std::size_t>(plane)]);
  }
  span.next_keys = ahead_of(keys_, next_keys.data(), next_tiles);
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
