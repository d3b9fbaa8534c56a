// SpanReader: which bytes of a span may be read, and where they are.
//
// Only tokens of the block's range are ever touched: rows at or past a view's length may be written
// by another thread or hold anything, and pages behind a window are gone. A tile that is not wholly
// in the range, and every row-major tile, is staged: its readable keys are copied into key_tile16
// form with zeros elsewhere, and then take the same arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/plan.h"
#include "cpu/head_planes.h"
#include "cpu/kernel_table.h"

namespace pagekv::inline v0::internal {

class SpanReader {
 public:
  // `range`: the tokens that the block's rows see, all of them stored. `pages` begins with the
  // token at position `origin`, a span's first.
  SpanReader(const LayerAddress& layer, std::int64_t kv_head, const PageId* pages, TokenRange range,
             std::int64_t origin = 0)
      : keys_(head_keys(layer, kv_head)),
        values_(head_values(layer, kv_head)),
        pages_(pages),
        page_tokens_(layer.page_tokens),
        range_(range),
        origin_(origin) {}

  // Finds the tiles of the span at position `start`. False: nothing of it is readable. Key pointers
  // of tiles to be staged are those of the page.
  bool locate(std::int64_t start, SpanTiles& span) const;

  // Tile `tile` of the span in key_tile16 form: in the page, or copied to `room`, which has space
  // for the planes of one tile.
  ConstPlanePointers stage_tile(std::int64_t start, std::int64_t tile, const SpanTiles& span,
                                std::byte* room) const;

  // Replaces key pointers by staged copies where needed. `room`: space for kSpanTiles tiles.
  void stage(std::int64_t start, SpanTiles& span, std::byte* room) const;

 private:
  void look_ahead(std::int64_t start, SpanTiles& span) const;

  HeadSide keys_;
  HeadSide values_;
  const PageId* pages_;
  std::int64_t page_tokens_;
  TokenRange range_;
  std::int64_t origin_;
};

}  // namespace pagekv::inline v0::internal
