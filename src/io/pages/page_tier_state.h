// PageTierState: what the handles of one page tier, its sink and its fetches share.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/store_core.h"
#include "io/pages/page_record.h"
#include "io/pages/space_names.h"
#include "pagekv/page_tier.h"

namespace pagekv::inline v0::internal {

class PageTierState {
 public:
  PageTierState(std::shared_ptr<StoreCore> core, std::shared_ptr<Tier> tier,
                PageTierOptions options);
  PageTierState(const PageTierState&) = delete;
  PageTierState& operator=(const PageTierState&) = delete;

  const std::shared_ptr<StoreCore>& core() const { return core_; }
  const CacheLayout& layout() const { return core_->layout(); }
  Tier& tier() const { return *tier_; }
  const PageTierOptions& options() const { return options_; }
  const PageRecord& record(int group) const { return records_[static_cast<std::size_t>(group)]; }

  SpaceNames& names() { return names_; }
  void invalidate(const Digest& space);

  // ---- Down.

  // One group's part of page `page` of a table, to be written.
  TierPut put_of(const PageTag& tag, const Epoch& epoch, const PageTable& table,
                 std::int64_t page) const;
  // Lets the tier write them; pages that it refuses are lost.
  void put(std::span<const TierPut> records);
  void give_up(const PageSink::Page& page);
  // `tokens`: those of the view.
  Result<std::int64_t> store(const PrefixSpace& space, std::span<const TokenId> tokens,
                             const PageHolder& view);
  bool flush(std::chrono::steady_clock::time_point until);

  void count(std::int64_t PageTierStats::* counter, std::int64_t by = 1);
  PageTierStats stats() const;

 private:
  std::shared_ptr<StoreCore> core_;
  std::shared_ptr<Tier> tier_;
  PageTierOptions options_;
  std::vector<PageRecord> records_;  // by group
  SpaceNames names_;
  mutable std::mutex mutex_;    // of what follows; nothing blocks under it
  std::deque<TierBatch> puts_;  // that may not be finished
  PageTierStats stats_;
};

// Pages that the reclaimer gives up.
class TierSink final : public PageSink {
 public:
  explicit TierSink(std::shared_ptr<PageTierState> state) : state_(std::move(state)) {}
  void give_up(const Page& page) noexcept override;
  void invalidate(const Digest& space) noexcept override;

 private:
  std::shared_ptr<PageTierState> state_;
};

}  // namespace pagekv::inline v0::internal
