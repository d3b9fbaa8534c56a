// What a reader of a span may touch: tiles that are not wholly readable are copied, row by row.
#include "cpu/span_reader.h"

#include <gtest/gtest.h>

#include <vector>

#include "cpu/paged_cache.h"

namespace pagekv::testing {
namespace {

using internal::SpanReader;
using internal::SpanTiles;

// Readers of other lengths may be reading the page while a writer fills the tile's later rows.
TEST(SpanReader, CutTilesAreCopiedAndWholeOnesAreNot) {
  constexpr std::int64_t kLength = 64;
  for (const char* format : {"bf16", "kv3", "k8v4", "affine:5:16:rot"}) {
    for (const TileArrangement arrangement :
         {TileArrangement::key_tile16, TileArrangement::row_major}) {
      const CacheShape shape{.format = format_of(format), .arrangement = arrangement};
      const PagedCache cache(make_device(), shape, {kLength}, 3);
      std::vector<std::byte> room(16 * 1024);
      for (std::int64_t begin = 0; begin < kLength; begin += 5) {
        for (std::int64_t end = begin + 1; end <= kLength; end += 3) {
          const SpanReader reader(cache.address(), 0, cache.pages(0), {begin, end});
          SpanTiles span;
          ASSERT_TRUE(reader.locate(0, span));
          EXPECT_EQ(span.first_tile, begin / 16);
          EXPECT_EQ(span.end_tile, (end + 15) / 16);
          for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
            const auto planes = reader.stage_tile(0, tile, span, room.data());
            const bool whole = begin <= tile * 16 && end >= tile * 16 + 16;
            const bool in_page = whole && arrangement == TileArrangement::key_tile16;
            for (std::size_t i = 0; i < planes.size(); ++i) {
              if (planes[i] == nullptr) continue;
              const bool copied = planes[i] >= room.data() && planes[i] < room.data() + room.size();
              EXPECT_EQ(copied, !in_page) << format << " tile " << tile << " plane " << i;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace pagekv::testing
