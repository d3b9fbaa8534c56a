// Ahead: cache lines that will be read soon, asked for while something else is computed.
//
// Lines are asked for a few at a time, since a burst would fill the buffers that wait for memory,
// and from four tiles in turn. A processor continues by itself what it sees being asked for in
// order, within 4 KiB and after some lines of them: of four such pieces at once, one is always past
// its beginning. docs/performance.md has what else was tried.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/constants.h"

namespace pagekv::inline v0::internal {

// Asks for some of the lines at each call. The Ahead it comes from must outlive it.
class AskAhead {
 public:
  AskAhead() = default;  // asks for nothing

  void operator()() { (*this)(share_); }
  void operator()(std::int64_t lines) {
    for (; lines > 0 && share_ > 0; --lines) __builtin_prefetch(next(), 0, 2);
  }

  // From here on, all that are left in so many calls.
  void spread(std::int64_t steps) {
    if (steps > 0 && share_ > 0) share_ = (left() + steps - 1) / steps;
  }

  std::int64_t left() const {
    const std::int64_t streams = static_cast<std::int64_t>(last_turn_) + 1;
    const std::int64_t lines = ((end_ - from_) * tile_bytes_ - streams * offset_) / kLineBytes;
    return lines - static_cast<std::int64_t>(turn_);
  }
  // The next line, instead of asking for it. REQUIRES: left() > 0.
  const std::byte* next() {
    const std::byte* line = from_[turn_] + offset_;
    turn_ = (turn_ + 1) & last_turn_;
    if (turn_ == 0) next_lines();
    return line;
  }

 private:
  friend class Ahead;

  // One line further in each stream.
  void next_lines() {
    offset_ += kLineBytes;
    if (offset_ < tile_bytes_) return;
    offset_ = 0;
    from_ += last_turn_ + 1;
    if (from_ == end_) share_ = 0;
  }

  const std::byte* const* from_ = nullptr;  // tiles of this round
  const std::byte* const* end_ = nullptr;
  std::int64_t offset_ = 0;
  std::int64_t tile_bytes_ = 0;
  std::int64_t share_ = 0;  // lines of one call
  std::size_t turn_ = 0;
  std::size_t last_turn_ = 0;
};

class Ahead {
 public:
  Ahead() = default;  // nothing

  // `count` tiles, 1 to kSpanTiles, of `tile_bytes` bytes each.
  Ahead(const std::byte* const* tiles, std::int64_t count, std::int64_t tile_bytes)
      : tile_bytes_((tile_bytes + kLineBytes - 1) / kLineBytes * kLineBytes) {
    const std::int64_t pieces = (count * tile_bytes_ + kPiece - 1) / kPiece;
    streams_ = kStreams;
    while (streams_ > pieces || streams_ > count) streams_ /= 2;
    rounds_ = (count + streams_ - 1) / streams_;
    std::size_t at = 0;
    for (std::int64_t round = 0; round < rounds_; ++round) {
      for (std::int64_t stream = 0; stream < streams_; ++stream) {
        const std::int64_t tile = std::min(stream * rounds_ + round, count - 1);
        order_[at++] = tiles[tile];
      }
    }
  }

  // All of them, one at a call.
  AskAhead lines() const {
    AskAhead ask;
    if (rounds_ == 0) return ask;
    ask.from_ = order_.data();
    ask.end_ = ask.from_ + rounds_ * streams_;
    ask.tile_bytes_ = tile_bytes_;
    ask.last_turn_ = static_cast<std::size_t>(streams_ - 1);
    ask.share_ = 1;
    return ask;
  }

 private:
  static constexpr std::int64_t kStreams = 4;   // or 1 or 2
  static constexpr std::int64_t kPiece = 4096;  // bytes that a processor goes on within

  // [round][stream]; the last tile stands in where a stream has none.
  static_assert(kSpanTiles % kStreams == 0);
  std::array<const std::byte*, kSpanTiles> order_;
  std::int64_t tile_bytes_ = 0;
  std::int64_t rounds_ = 0;
  std::int64_t streams_ = 0;
};

}  // namespace pagekv::inline v0::internal
