// Which lines are asked for, in which order, and in how many calls.
#include "cpu/ahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace pagekv {
namespace {

using internal::Ahead;
using internal::AskAhead;
using internal::kLineBytes;
using internal::kSpanTiles;

// Addresses only: nothing here is read.
constexpr std::int64_t kApart = std::int64_t{1} << 20;
const std::byte* tile_at(std::int64_t index) {
  static std::vector<std::byte> room(static_cast<std::size_t>((kSpanTiles + 1) * kApart));
  return room.data() + index * kApart;
}

Ahead tiles_of(std::int64_t count, std::int64_t bytes) {
  std::array<const std::byte*, kSpanTiles> tiles{};
  for (std::int64_t i = 0; i < count; ++i) tiles[static_cast<std::size_t>(i)] = tile_at(i);
  return {tiles.data(), count, bytes};
}

std::vector<const std::byte*> all_lines(AskAhead ask) {
  std::vector<const std::byte*> lines;
  while (ask.left() > 0) {
    ask.take_round([&](const std::byte* line) { lines.push_back(line); });
  }
  return lines;
}

class AheadOf : public testing::TestWithParam<std::int64_t> {};  // bytes of a tile

TEST_P(AheadOf, EveryLineIsAskedFor) {
  for (std::int64_t count = 1; count <= kSpanTiles; ++count) {
    std::map<const std::byte*, int> times;
    for (const std::byte* line : all_lines(tiles_of(count, GetParam()).lines())) ++times[line];
    const std::int64_t lines = (GetParam() + kLineBytes - 1) / kLineBytes;
    EXPECT_EQ(times.size(), static_cast<std::size_t>(count * lines));
    for (std::int64_t tile = 0; tile < count; ++tile) {
      for (std::int64_t line = 0; line < lines; ++line) {
        EXPECT_GT(times[tile_at(tile) + line * kLineBytes], 0) << count << " " << tile;
      }
    }
  }
}

TEST_P(AheadOf, WholeSpansHaveNoLineTwice) {
  const auto lines = all_lines(tiles_of(kSpanTiles, GetParam()).lines());
  EXPECT_EQ(static_cast<std::int64_t>(lines.size()),
            kSpanTiles * ((GetParam() + kLineBytes - 1) / kLineBytes));
}

TEST_P(AheadOf, TilesAreReadFromTheirBeginningOn) {
  std::map<std::int64_t, const std::byte*> last;  // of each tile
  for (const std::byte* line : all_lines(tiles_of(kSpanTiles, GetParam()).lines())) {
    const std::int64_t tile = (line - tile_at(0)) / kApart;
    const std::byte* expected = last.contains(tile) ? last[tile] + kLineBytes : tile_at(tile);
    EXPECT_EQ(line, expected);
    last[tile] = line;
  }
}

TEST_P(AheadOf, SoManyCallsAskForAll) {
  const Ahead ahead = tiles_of(kSpanTiles, GetParam());
  for (const std::int64_t steps : {1, 3, 8, 64, 100, 513, 100'000}) {
    for (const std::int64_t before : {0, 1, 5}) {  // asked for in another way
      AskAhead ask = ahead.lines();
      const std::int64_t rounds = ask.left();
      ask.ask(before);
      EXPECT_EQ(ask.left(), std::max<std::int64_t>(rounds - before, 0));
      ask.spread(steps);
      std::int64_t calls = 0;
      for (; ask.left() > 0; ++calls) ask();
      EXPECT_LE(calls, steps);
    }
  }
}

TEST_P(AheadOf, CallsAreSpreadEvenly) {
  const Ahead ahead = tiles_of(kSpanTiles, GetParam());
  AskAhead ask = ahead.lines();
  const std::int64_t rounds = ask.left();
  ask.spread(3 * rounds);
  for (std::int64_t call = 1; call <= 3 * rounds; ++call) {
    ask();
    EXPECT_EQ(ask.left(), rounds - call / 3);
  }
  for (int call = 0; call < 10; ++call) ask();  // nothing is left
  EXPECT_EQ(ask.left(), 0);
}

INSTANTIATE_TEST_SUITE_P(Tiles, AheadOf,
                         testing::Values(16, 64, 256, 512, 1024, 1040, 2048, 3072, 4096, 8192,
                                         16384));

TEST(Ahead, LargeTilesComeFourAtATime) {
  const auto lines = all_lines(tiles_of(kSpanTiles, 4096).lines());
  for (std::size_t first = 0; first < lines.size(); first += 4) {
    std::vector<std::int64_t> tiles;
    for (std::size_t i = 0; i < 4; ++i) tiles.push_back((lines[first + i] - tile_at(0)) / kApart);
    EXPECT_EQ(tiles, first < 256 ? (std::vector<std::int64_t>{0, 2, 4, 6})
                                 : (std::vector<std::int64_t>{1, 3, 5, 7}));
  }
}

TEST(Ahead, NothingIsAskedForWhereNothingIs) {
  const Ahead nothing{};
  for (AskAhead ask : {nothing.lines(), AskAhead()}) {
    EXPECT_EQ(ask.left(), 0);
    ask.spread(10);
    ask();
    ask.ask(10);
    EXPECT_EQ(ask.left(), 0);
  }
}

}  // namespace
}  // namespace pagekv
