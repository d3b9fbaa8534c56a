// Gives the times of uses: the system's clock, or one more than the last time given where that
// clock stands or went back. So times order records, for as long as a folder lives.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>

namespace pagekv::inline v0::internal {

// Nanoseconds since 1970, in the year 2116. No later time is believed, so that adding to one never
// overflows.
inline constexpr std::int64_t kLatestUse = std::int64_t{1} << 62;

// Thread-safe.
class UseClock {
 public:
  explicit UseClock(std::function<std::int64_t()> system_ns) : system_ns_(std::move(system_ns)) {}

  std::int64_t next() {
    const std::int64_t now = system();
    std::int64_t last = last_.load();
    std::int64_t given = 0;
    do {
      given = std::max(now, last + 1);
    } while (!last_.compare_exchange_weak(last, given));
    return given;
  }
  // Times given from now on are later than `floor`.
  void raise(std::int64_t floor) {
    std::int64_t last = last_.load();
    while (last < floor && !last_.compare_exchange_weak(last, floor)) {
    }
  }
  // Whether the times it gives are later than the system's.
  bool is_ahead() const { return last_.load() > system(); }

 private:
  std::int64_t system() const { return std::clamp<std::int64_t>(system_ns_(), 0, kLatestUse); }

  const std::function<std::int64_t()> system_ns_;
  std::atomic<std::int64_t> last_ = 0;
};

}  // namespace pagekv::inline v0::internal
