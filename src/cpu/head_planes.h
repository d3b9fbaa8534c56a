// The bytes of one KV head of one layer: from a page and a token in it to addresses.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/backend.h"
#include "core/ids.h"

namespace pagekv::inline v0::internal {

class HeadPlanes {
 public:
  HeadPlanes(const LayerAddress& layer, std::int64_t kv_head)
      : keys_(layer.base + layer.k[0].offset + kv_head * layer.k[0].head_stride),
        values_(layer.base + layer.v[0].offset + kv_head * layer.v[0].head_stride),
        page_stride_(layer.page_stride),
        page_tokens_(layer.page_tokens),
        key_row_bytes_(layer.k[0].row_bytes),
        value_row_bytes_(layer.v[0].row_bytes),
        arrangement_(layer.arrangement) {}

  // Plane of `page`: page_tokens rows in the layer's arrangement.
  std::byte* keys(PageId page) const { return keys_ + index(page) * page_stride_; }
  std::byte* values(PageId page) const { return values_ + index(page) * page_stride_; }

  // First byte of the tile that holds `position`. Every arrangement keeps the rows of a tile in one
  // piece, at the same place.
  std::byte* key_tile(const PageId* pages, std::int64_t position) const {
    return keys(page_of(pages, position)) + tile_row(position) * key_row_bytes_;
  }
  std::byte* value_tile(const PageId* pages, std::int64_t position) const {
    return values(page_of(pages, position)) + tile_row(position) * value_row_bytes_;
  }

  PageId page_of(const PageId* pages, std::int64_t position) const {
    return pages[position / page_tokens_];
  }
  std::int64_t row_of(std::int64_t position) const { return position % page_tokens_; }

  std::int64_t key_row_bytes() const { return key_row_bytes_; }
  std::int64_t value_row_bytes() const { return value_row_bytes_; }
  TileArrangement arrangement() const { return arrangement_; }

 private:
  std::int64_t tile_row(std::int64_t position) const {
    return position % page_tokens_ / kTileTokens * kTileTokens;
  }

  std::byte* keys_;
  std::byte* values_;
  std::int64_t page_stride_;
  std::int64_t page_tokens_;
  std::int64_t key_row_bytes_;
  std::int64_t value_row_bytes_;
  TileArrangement arrangement_;
};

}  // namespace pagekv::inline v0::internal
