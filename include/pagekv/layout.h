// CacheLayout: what every layer stores, and where each byte of a page is.
//
// This is the one place with an offset formula, for host and device:
//
//   address(layer, page, plane, head) = arena + layer.offset + page * layer.page_stride
//                                             + plane.offset + head * plane.head_stride
//
// and within a head's plane the tile arrangement says where a token's elements are
// (docs/layout.md draws it). Immutable after make(); copies share; safe on any thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pagekv/codec.h"
#include "pagekv/error.h"

namespace pagekv::inline v0 {

inline constexpr std::int64_t kTileTokens = 16;         // tokens of one tile, on every device
inline constexpr std::int64_t kMaxHeadDim = 576;        // largest key or value dim
inline constexpr std::int64_t kDefaultPageTokens = 64;  // measured: docs/performance.md

// Order of a page's bytes. page_major: one page is one contiguous block over all layers of its
// group, so a copy, a file or a transfer of a page is one piece. layer_major: all pages of a layer
// side by side. Numeric ids are stable.
enum class PageOrder : std::uint8_t { page_major = 0, layer_major = 1 };

// Where a token's elements are within a head's plane, named and versioned. Numeric ids are stable.
//   row_major    [token][dim] for keys and values: the canonical form, also of files.
//   key_tile16   values as row_major; every plane of keys interleaved over tiles of 16 tokens in
//                units of the plane (codes: 4 bytes; scales and biases: one of them):
//                [tile][row bytes / unit][token % 16][unit], so that a score needs no horizontal
//                sum. Suggested by the CPU device.
enum class TileArrangement : std::uint8_t { row_major = 0, key_tile16 = 1 };

struct LayerSpec {
  int kv_heads = 0;
  int key_dim = 0;    // a multiple of 8, at most kMaxHeadDim
  int value_dim = 0;  // a multiple of 8, at most kMaxHeadDim
  Format format{};
  // How many tokens a row can see, itself included; 0: all. Layers with equal windows form a group.
  std::int64_t window_tokens = 0;
  // Index of an earlier layer whose pages this one reads; -1: stores its own. A donor layer's
  // reader has the donor's shape, format and window.
  int donor = -1;
};

struct LayoutSpec {
  std::vector<LayerSpec> layers = {};
  std::int64_t page_tokens = kDefaultPageTokens;  // a positive multiple of kTileTokens
  // Kept behind every window for rollback and edited turns.
  std::int64_t window_slack_tokens = 0;
  PageOrder order = PageOrder::page_major;
  TileArrangement arrangement = TileArrangement::key_tile16;
};

// One plane of one head within a layer's part of a page.
struct PlaneLayout {
  std::int64_t offset = 0;       // bytes from the layer's part of the page
  std::int64_t head_stride = 0;  // bytes from one head to the next
  std::int64_t row_bytes = 0;    // bytes of one token's vector
  std::int64_t unit_bytes = 0;   // pieces in which an arrangement moves them
};

inline constexpr int kMaxPlanes = 3;
using PlaneLayouts = std::array<PlaneLayout, kMaxPlanes>;

struct LayerLayout {
  LayerSpec spec;
  int group = 0;
  int storage_layer = 0;  // itself, or the donor at the end of the chain
  PlaneLayouts k;
  PlaneLayouts v;
  std::int64_t bytes = 0;        // of this layer in one page, a multiple of 64; 0 for donor readers
  std::int64_t page_offset = 0;  // bytes of the group's layers before it, in one page
};

struct GroupLayout {
  std::int64_t window_tokens = 0;  // 0: keeps everything
  std::vector<int> layers;         // that store bytes, ascending
  std::int64_t page_bytes = 0;     // of one page over all its layers
};

// Strides of a layer once the number of pages its arena can hold is known.
struct LayerStride {
  std::int64_t offset = 0;       // bytes from the arena's base
  std::int64_t page_stride = 0;  // bytes from one page to the next
};

class PAGEKV_API CacheLayout {
 public:
  // Settles the groups of all codecs. Errors: invalid_argument naming the layer, the value and what
  // is legal.
  static Result<CacheLayout> make(LayoutSpec spec);

  std::int64_t page_tokens() const;
  std::int64_t window_slack_tokens() const;
  PageOrder order() const;
  TileArrangement arrangement() const;
  int layer_count() const;
  int group_count() const;
  const LayerLayout& layer(int index) const;  // REQUIRES: 0 <= index < layer_count()
  bool has_windows() const;                   // of any group
  const GroupLayout& group(int index) const;  // REQUIRES: 0 <= index < group_count()

  // REQUIRES: `layer` stores bytes or reads a donor; `capacity_pages` > 0.
  LayerStride stride(int layer, std::int64_t capacity_pages) const;

  // Bytes of one token's vectors in all layers that store any. Pages hold a little more: planes are
  // padded to 64 bytes, and the last page of a sequence is not full (GroupLayout::page_bytes).
  std::int64_t bytes_per_token() const;
  // First page that a sequence of `tokens` committed tokens still needs in `group`: behind it every
  // page is given back at commit. A row at position p sees (p - window, p]; the next row is
  // `tokens`.
  std::int64_t first_kept_page(int group, std::int64_t tokens) const;
  // Pages of `group` that a sequence of `tokens` tokens holds.
  std::int64_t pages_for(int group, std::int64_t tokens) const;

 private:
  struct Data;
  explicit CacheLayout(std::shared_ptr<const Data> data) : data_(std::move(data)) {}
  std::shared_ptr<const Data> data_;
};

}  // namespace pagekv::inline v0
