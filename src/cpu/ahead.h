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

// Asks for lines in rounds, one line of each of the tiles at hand, some rounds at each call or one
// round at some of them. The Ahead it comes from must outlive it. Kernels call it in their inner
// loops, where it must cost next to nothing: mostly it counts.
class AskAhead {
 public:
  AskAhead() = default;  // asks for nothing

  void operator()() {
    if (--wait_ != 0) return;
    wait_ = period_;
    ask(at_once_);
  }
  void ask(std::int64_t rounds) {
    for (; rounds > 0 && left_ > 0; --rounds) {
      take_round([](const std::byte* line) { __builtin_prefetch(line, 0, 2); });
    }
  }

  // From here on, all that are left in so many calls.
  void spread(std::int64_t calls) {
    if (calls <= 0 || left_ == 0) return;
    period_ = std::max<std::int64_t>(calls / left_, 1);
    at_once_ = (left_ + calls - 1) / calls;
    wait_ = period_;
  }

  // Rounds.
  std::int64_t left() const { return left_; }
  // Calls use(line) for each of the next round, which counts as asked for. REQUIRES: left() > 0.
  template <typename Use>
  void take_round(Use use) {
    if (streams_ == 4) {  // as most have
      use(from_[0] + offset_);
      use(from_[1] + offset_);
      use(from_[2] + offset_);
      use(from_[3] + offset_);
    } else {
      for (std::int64_t i = 0; i < streams_; ++i) use(from_[i] + offset_);
    }
    --left_;
    offset_ += kLineBytes;
    if (offset_ < tile_bytes_) return;
    offset_ = 0;
    from_ += streams_;
  }

 private:
  friend class Ahead;

  std::int64_t wait_ = 0;  // calls; of no use from 0 on
  std::int64_t period_ = 0;
  std::int64_t at_once_ = 0;
  std::int64_t left_ = 0;
  const std::byte* const* from_ = nullptr;  // the tiles at hand
  std::int64_t streams_ = 0;                // so many
  std::int64_t offset_ = 0;
  std::int64_t tile_bytes_ = 0;
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
        order_[at++] = tiles[std::min(stream * rounds_ + round, count - 1)];
      }
    }
  }

  // All of them, a round at each call.
  AskAhead lines() const {
    AskAhead ask;
    if (rounds_ == 0) return ask;
    ask.wait_ = ask.period_ = ask.at_once_ = 1;
    ask.left_ = rounds_ * tile_bytes_ / kLineBytes;
    ask.from_ = order_.data();
    ask.streams_ = streams_;
    ask.tile_bytes_ = tile_bytes_;
    return ask;
  }

 private:
  static constexpr std::int64_t kStreams = 4;   // or 1 or 2
  static constexpr std::int64_t kPiece = 4096;  // bytes that a processor goes on within

  // [round][stream]; the last tile stands in where a stream has none.
  static_assert(kSpanTiles % kStreams == 0);
  std::array<const std::byte*, kSpanTiles> order_;
  std::int64_t tile_bytes_ = 0;
  std::int64_t rounds_ = 0;  // of tiles
  std::int64_t streams_ = 0;
};

}  // namespace pagekv::inline v0::internal
