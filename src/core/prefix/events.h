// The events of an index that nobody has taken yet.
#pragma once

#include <cstdint>
#include <deque>
#include <new>
#include <vector>

#include "pagekv/prefix_index.h"

namespace pagekv::inline v0::internal {

class PrefixEvents {
 public:
  explicit PrefixEvents(std::int64_t most) : most_(static_cast<std::size_t>(most)) {}
  bool wanted() const { return most_ > 0; }
  // Adds and numbers what `make` returns; the oldest event makes room for it. Never fails: an event
  // that finds no memory is lost, which the numbers tell.
  template <typename Make>
  void add(Make make) noexcept {
    const std::int64_t number = next_number_++;
    try {
      if (events_.size() >= most_) events_.pop_front();
      events_.push_back(make());
      events_.back().number = number;
    } catch (const std::bad_alloc&) {
      // Lost: the next number says so.
    }
  }
  std::vector<PrefixEvent> take();

 private:
  std::size_t most_;
  std::int64_t next_number_ = 0;
  std::deque<PrefixEvent> events_;
};

}  // namespace pagekv::inline v0::internal
