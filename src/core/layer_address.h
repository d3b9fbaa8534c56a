// LayerAddress: what core tells a device about a layer. Kernels see this much of core and no more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagekv/codec.h"
#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

// Where one layer's bytes are, and what they mean: all a kernel needs to know.
struct LayerAddress {
  std::byte* base = nullptr;     // of the layer's part of page 0
  std::int64_t page_stride = 0;  // bytes
  std::int64_t page_tokens = 0;
  TileArrangement arrangement = TileArrangement::row_major;
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  Format format;
  PlaneLayouts k;
  PlaneLayouts v;
};

}  // namespace pagekv::inline v0::internal
