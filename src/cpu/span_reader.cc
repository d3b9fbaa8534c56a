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

// Tiles of one side of a sequence, one after the other.
class TileWalk {
 public:
  TileWalk(const HeadSide& side, const PageId* pages, std::int64_t page_tokens,
           std::int64_t position)
      : side_(side),
        page_(pages + position / page_tokens),
        row_(position % page_tokens),
        page_tokens_(page_tokens),
        tile_(side.tile(*page_, row_)) {}

  const ConstPlanePointers& tile() const { return tile_; }
  bool begins_page() const { return row_ == 0; }
  // REQUIRES: there is one more.
  void advance() {
    row_ += kTileTokens;
    if (row_ == page_tokens_) {
      row_ = 0;
      tile_ = side_.tile(*++page_, 0);
      return;
    }
    for (int plane = 0; plane < side_.planes(); ++plane) {
      tile_[static_cast<std::size_t>(plane)] += kTileTokens * side_.shape(plane).row_bytes;
    }
  }

 private:
  const HeadSide& side_;
  const PageId* page_;
  std::int64_t row_;
  std::int64_t page_tokens_;
  ConstPlanePointers tile_;
};

// Asks for scales and biases of neighbouring tiles, each line once.
class AskScales {
 public:
  explicit AskScales(const HeadSide& side) : side_(side) {}
  void operator()(const ConstPlanePointers& tile) {
    for (int plane = 1; plane < side_.planes(); ++plane) {
      const auto at = static_cast<std::size_t>(plane);
      const auto from = reinterpret_cast<std::uintptr_t>(tile[at]) / kLineBytes;
      const std::uintptr_t end =
          reinterpret_cast<std::uintptr_t>(tile[at]) + kTileTokens * side_.shape(plane).row_bytes;
      for (std::uintptr_t line = from; line * kLineBytes < end; ++line) {
        if (line == last_[at]) continue;
        __builtin_prefetch(tile[at] + (line - from) * kLineBytes, 0, 2);
        last_[at] = line;
      }
    }
  }

 private:
  const HeadSide& side_;
  std::array<std::uintptr_t, kMaxPlanes> last_{};
};

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
  const std::int64_t first = start - origin_ + span.first_tile * kTileTokens;
  TileWalk key_walk(keys_, pages_, page_tokens_, first);
  TileWalk value_walk(values_, pages_, page_tokens_, first);
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const auto at = static_cast<std::size_t>(tile);
    if (tile > span.first_tile) {
      key_walk.advance();
      value_walk.advance();
    }
    span.k[at] = key_walk.tile();
    span.v[at] = value_walk.tile();
    values[at] = span.v[at][0];
  }
  span.next_values =
      ahead_of(values_, values.data() + span.first_tile, span.end_tile - span.first_tile);
  look_ahead(start, span);
  return true;
}

// Kernels ask for elements and codes, values while keys of the same span are scored, the next
// span's keys while values are added. Here is what else would be waited for: scales and biases of
// the next span.
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
  TileWalk walk(keys_, pages_, page_tokens_, next - origin_);
  AskScales ask_scales(keys_);
  for (std::int64_t tile = 0; tile < next_tiles; ++tile) {
    if (tile > 0) walk.advance();
    next_keys[static_cast<std::size_t>(tile)] = walk.tile()[0];
    // Translates the page's address: what is asked for with addresses still unknown comes late.
    if (tile == 0 || walk.begins_page()) __builtin_prefetch(walk.tile()[0], 0, 2);
    ask_scales(walk.tile());
  }
  if (values_.planes() > 1) ask_for_value_scales(next, next_tiles);
  span.next_keys = ahead_of(keys_, next_keys.data(), next_tiles);
}

void SpanReader::ask_for_value_scales(std::int64_t start, std::int64_t tiles) const {
  TileWalk walk(values_, pages_, page_tokens_, start - origin_);
  AskScales ask_scales(values_);
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    if (tile > 0) walk.advance();
    ask_scales(walk.tile());
  }
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
