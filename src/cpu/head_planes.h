// The bytes of one KV head of one layer: from a page and a token in it to addresses.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/arrangement.h"
#include "core/ids.h"
#include "core/layer_address.h"

namespace pagekv::inline v0::internal {

// One pointer per plane of a codec, null where it has no such plane.
using PlanePointers = std::array<std::byte*, kMaxPlanes>;
using ConstPlanePointers = std::array<const std::byte*, kMaxPlanes>;

// The planes of a head's keys, or of its values.
class HeadSide {
 public:
  HeadSide(const LayerAddress& layer, const PlaneLayouts& planes, std::int64_t kv_head,
           bool interleaved)
      : page_stride_(layer.page_stride), page_tokens_(layer.page_tokens) {
    for (const PlaneLayout& plane : planes) {
      if (plane.row_bytes == 0) break;
      const auto at = static_cast<std::size_t>(count_++);
      base_[at] = layer.base + plane.offset + kv_head * plane.head_stride;
      shape_[at] = {plane.row_bytes, plane.unit_bytes, interleaved};
    }
  }

  int planes() const { return count_; }
  const PlaneShape& shape(int plane) const { return shape_[static_cast<std::size_t>(plane)]; }
  bool interleaved() const { return shape_[0].interleaved; }

  std::byte* plane(int plane, PageId page) const {
    return base_[static_cast<std::size_t>(plane)] + index(page) * page_stride_;
  }
  // First byte of the tile of a page that begins with row `row`: one piece in every arrangement.
  const std::byte* tile(int plane, PageId page, std::int64_t row) const {
    return this->plane(plane, page) + tile_offset(shape(plane), row);
  }
  // First bytes of the token's row.
  PlanePointers row(const PageId* pages, std::int64_t position) const {
    return pointers<PlanePointers>(pages, position, [&](const PlaneShape& shape, std::int64_t row) {
      return token_offset(shape, row);
    });
  }

 private:
  template <typename Pointers, typename Offset>
  Pointers pointers(const PageId* pages, std::int64_t position, Offset offset) const {
    const PageId page = pages[position / page_tokens_];
    Pointers found{};
    for (int i = 0; i < count_; ++i) {
      found[static_cast<std::size_t>(i)] =
          plane(i, page) + offset(shape(i), position % page_tokens_);
    }
    return found;
  }

  int count_ = 0;
  std::array<std::byte*, kMaxPlanes> base_{};
  std::array<PlaneShape, kMaxPlanes> shape_{};
  std::int64_t page_stride_;
  std::int64_t page_tokens_;
};

inline HeadSide head_keys(const LayerAddress& layer, std::int64_t kv_head) {
  return {layer, layer.k, kv_head, layer.arrangement == TileArrangement::key_tile16};
}
inline HeadSide head_values(const LayerAddress& layer, std::int64_t kv_head) {
  return {layer, layer.v, kv_head, false};
}

}  // namespace pagekv::inline v0::internal
