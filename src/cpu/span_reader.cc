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

// Calls use(index, its first byte, whether it is the first or begins a page) for one plane of
// `count` tiles of a side of a sequence, from `position` on.
template <typename Use>
void for_each_tile(const HeadSide& side, int plane, const PageId* pages, std::int64_t page_tokens,
                   std::int64_t position, std::int64_t count, Use use) {
  const PageId* page = pages + position / page_tokens;
  const std::int64_t tile_bytes = kTileTokens * side.shape(plane).row_bytes;
  std::int64_t row = position % page_tokens;
  const std::byte* tile = nullptr;
  for (std::int64_t index = 0; index < count; ++index, row += kTileTokens) {
    if (row == page_tokens) {
      row = 0;
      ++page;
    }
    const bool lookup = index == 0 || row == 0;
    tile = lookup ? side.tile(plane, *page, row) : tile + tile_bytes;
    use(static_cast<std::size_t>(index), tile, lookup);
  }
}

// Asks for what a plane has of neighbouring tiles, `tile_bytes` each, each line once.
class AskPlane {
 public:
  explicit AskPlane(std::int64_t tile_bytes) : tile_bytes_(tile_bytes) {}
  void operator()(const std::byte* tile) {
    const auto address = reinterpret_cast<std::uintptr_t>(tile);
    const std::uintptr_t end = address + static_cast<std::uintptr_t>(tile_bytes_);
    for (std::uintptr_t line = address / kLineBytes; line * kLineBytes < end; ++line) {
      if (line == last_) continue;
      __builtin_prefetch(tile + (line - address / kLineBytes) * kLineBytes, 0, 2);
      last_ = line;
    }
  }

 private:
  const std::int64_t tile_bytes_;
  std::uintptr_t last_ = 0;
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
  const std::int64_t position = start - origin_ + span.first_tile * kTileTokens;
  const std::int64_t tiles = span.end_tile - span.first_tile;
  const auto first = static_cast<std::size_t>(span.first_tile);
  const auto find = [&](const HeadSide& side, auto& found) {
    for (int plane = 0; plane < side.planes(); ++plane) {
      for_each_tile(side, plane, pages_, page_tokens_, position, tiles,
                    [&](std::size_t i, const std::byte* tile, bool) {
                      found[first + i][static_cast<std::size_t>(plane)] = tile;
                    });
    }
  };
  find(keys_, span.k);
  find(values_, span.v);
  std::array<const std::byte*, kSpanTiles> values{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(tiles); ++i) {
    values[i] = span.v[first + i][0];
  }
  span.next_values = ahead_of(values_, values.data(), tiles);
  look_ahead(start, span);
  return true;
}

// Kernels ask for elements and codes, values while keys of the same span are scored, the next
// span's keys while values are added. Here is what else would be waited for: scales and biases of
// the next span.
void SpanReader::look_ahead(std::int64_t start, SpanTiles& span) const {
  span.next_keys = {};
  const std::int64_t next = start + kSpanTokens;
  if (next < range_.begin) return;  // only where a block begins within its first span
  const std::int64_t left = (range_.end - next + kTileTokens - 1) / kTileTokens;
  if (left <= 0) return;
  const std::int64_t tiles = std::min(left, kSpanTiles);
  std::array<const std::byte*, kSpanTiles> keys{};
  for_each_tile(keys_, 0, pages_, page_tokens_, next - origin_, tiles,
                [&](std::size_t i, const std::byte* tile, bool begins_page) {
                  keys[i] = tile;
                  // Translates the page's address: what is asked for before that comes late.
                  if (begins_page) __builtin_prefetch(tile, 0, 2);
                });
  span.next_keys = ahead_of(keys_, keys.data(), tiles);
  for (const HeadSide* side : {&keys_, &values_}) {
    for (int plane = 1; plane < side->planes(); ++plane) {
      AskPlane ask(kTileTokens * side->shape(plane).row_bytes);
      for_each_tile(*side, plane, pages_, page_tokens_, next - origin_, tiles,
                    [&](std::size_t, const std::byte* tile, bool) { ask(tile); });
    }
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
