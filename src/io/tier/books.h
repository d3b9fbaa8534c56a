// What one process knows of the records of a folder, in the order in which they would be evicted,
// and the keys that it pinned. A hint and no more: other processes change the folder, so files are
// looked at again before anything is done to them.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "pagekv/digest.h"

namespace pagekv::inline v0::internal {

struct KnownRecord {
  Digest key{};
  std::int64_t bytes = 0;
  std::int64_t last_use = 0;  // UseClock
};

class TierBooks {
 public:
  void set(const KnownRecord& record);                 // adds it, or changes it
  void use(const Digest& key, std::int64_t last_use);  // of a known one; later only
  void forget(const Digest& key);
  // What a listing found is what there is. A use that is known here only, counts.
  void replace(std::span<const KnownRecord> found);

  std::optional<KnownRecord> find(const Digest& key) const;
  std::optional<KnownRecord> oldest() const;  // that is not pinned
  std::vector<KnownRecord> all() const;       // oldest first
  std::int64_t records() const { return static_cast<std::int64_t>(records_.size()); }

  void pin(const Digest& key);
  void unpin(const Digest& key);  // allocates nothing
  std::int64_t pinned_keys() const { return static_cast<std::int64_t>(pins_.size()); }

 private:
  struct Entry {
    std::int64_t bytes = 0;
    std::int64_t last_use = 0;
  };
  using Order = std::set<std::pair<std::int64_t, Digest>>;

  static Order::value_type place(const Digest& key, const Entry& entry) {
    return {entry.last_use, key};
  }
  Order& order_of(const Digest& key) { return pins_.contains(key) ? pinned_order_ : order_; }
  void move(const Digest& key, Order& from, Order& to);

  std::map<Digest, Entry> records_;
  Order order_;                          // of those that are not pinned, by last use
  Order pinned_order_;                   // of the others
  std::map<Digest, std::int64_t> pins_;  // how often
};

}  // namespace pagekv::inline v0::internal
