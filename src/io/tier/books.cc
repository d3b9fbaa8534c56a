#include "io/tier/books.h"

#include <algorithm>

namespace pagekv::inline v0::internal {

void TierBooks::set(const KnownRecord& record) {
  const auto [at, added] = records_.try_emplace(record.key);
  Order& order = order_of(record.key);
  if (!added) order.erase(place(record.key, at->second));
  at->second = {.bytes = record.bytes, .last_use = record.last_use};
  order.insert(place(record.key, at->second));
}

void TierBooks::use(const Digest& key, std::int64_t last_use) {
  const auto at = records_.find(key);
  if (at == records_.end() || at->second.last_use >= last_use) return;
  set({.key = key, .bytes = at->second.bytes, .last_use = last_use});
}

void TierBooks::forget(const Digest& key) {
  const auto at = records_.find(key);
  if (at == records_.end()) return;
  order_of(key).erase(place(key, at->second));
  records_.erase(at);
}

void TierBooks::replace(std::span<const KnownRecord> found) {
  const auto known = std::move(records_);
  records_.clear();
  order_.clear();
  pinned_order_.clear();
  for (KnownRecord record : found) {
    const auto at = known.find(record.key);
    if (at != known.end()) record.last_use = std::max(record.last_use, at->second.last_use);
    set(record);
  }
}

std::optional<KnownRecord> TierBooks::find(const Digest& key) const {
  const auto at = records_.find(key);
  if (at == records_.end()) return std::nullopt;
  return KnownRecord{.key = key, .bytes = at->second.bytes, .last_use = at->second.last_use};
}

std::optional<KnownRecord> TierBooks::oldest() const {
  if (order_.empty()) return std::nullopt;
  return find(order_.begin()->second);
}

std::vector<KnownRecord> TierBooks::all() const {
  std::vector<KnownRecord> all;
  all.reserve(records_.size());
  for (const auto& [key, entry] : records_) {
    all.push_back({.key = key, .bytes = entry.bytes, .last_use = entry.last_use});
  }
  std::sort(all.begin(), all.end(), [](const KnownRecord& a, const KnownRecord& b) {
    return std::pair(a.last_use, a.key) < std::pair(b.last_use, b.key);
  });
  return all;
}

void TierBooks::pin(const Digest& key) {
  if (++pins_[key] == 1) move(key, order_, pinned_order_);
}

void TierBooks::unpin(const Digest& key) {
  const auto pin = pins_.find(key);
  if (pin == pins_.end() || --pin->second > 0) return;
  pins_.erase(pin);
  move(key, pinned_order_, order_);
}

void TierBooks::move(const Digest& key, Order& from, Order& to) {
  const auto at = records_.find(key);
  if (at != records_.end()) to.insert(from.extract(place(key, at->second)));
}

}  // namespace pagekv::inline v0::internal
