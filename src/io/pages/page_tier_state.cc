#include "io/pages/page_tier_state.h"

#include <algorithm>
#include <utility>

#include "core/prefix/space.h"

namespace pagekv::inline v0::internal {

using Clock = std::chrono::steady_clock;

PageTierState::PageTierState(std::shared_ptr<StoreCore> core, std::shared_ptr<Tier> tier,
                             PageTierOptions options)
    : core_(std::move(core)),
      tier_(std::move(tier)),
      options_(options),
      names_(tier_, options.patience) {
  for (int group = 0; group < layout().group_count(); ++group) {
    records_.emplace_back(layout(), group);
  }
}

void PageTierState::invalidate(const Digest& space) {
  if (!names_.invalidate(space)) count(&PageTierStats::failed_invalidations);
}

// ---- Down

TierPut PageTierState::put_of(const PageTag& tag, const Epoch& epoch, const PageTable& table,
                              std::int64_t page) const {
  const PageRecord& record = this->record(tag.group);
  auto value = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(record.bytes()));
  record.read(*core_, table, page, value->data());
  auto written = std::make_shared<const std::vector<std::byte>>(write_tag(tag));
  const std::span<const std::byte> bytes = *value;
  const std::span<const std::byte> tag_bytes = *written;
  return {.key = page_key(epoch, tag.digest, tag.group),
          .value = {.bytes = bytes, .owner = std::move(value)},
          .tag = {.bytes = tag_bytes, .owner = std::move(written)}};
}

void PageTierState::put(std::span<const TierPut> records) {
  auto batch = tier_->put(records);
  if (!batch) return;
  const std::lock_guard lock(mutex_);
  while (!puts_.empty() && puts_.front().poll()) puts_.pop_front();
  puts_.push_back(std::move(*batch));
}

void PageTierState::give_up(const PageSink::Page& page) {
  count(&PageTierStats::offered_pages);
  const std::optional<Epoch> epoch = names_.find(page.space);
  const PageHolder* view = page.view.valid() ? page.view.ref().holder() : nullptr;
  if (!epoch || view == nullptr) return count(&PageTierStats::skipped_pages);
  const std::int64_t index = view->length / layout().page_tokens() - 1;
  std::vector<TierPut> records;
  for (int group = 0; group < view->groups(); ++group) {
    if (view->table(group).first_page > index) continue;  // a window has let go of it
    const PageTag tag{page.space, page.digest, page.parent, group, page.tokens};
    records.push_back(put_of(tag, *epoch, view->table(group), index));
  }
  if (!records.empty()) put(records);
}

Result<std::int64_t> PageTierState::store(const PrefixSpace& space, std::span<const TokenId> tokens,
                                          const PageHolder& view) {
  const std::optional<Epoch> epoch = names_.find(space);
  if (!epoch) {
    return fail(ErrorCode::invalid_argument, "the namespace is not attached to this tier");
  }
  const std::int64_t page_tokens = layout().page_tokens();
  const std::vector<Digest> chain = page_digests(space.digest(), tokens, page_tokens);
  std::vector<PagePart> parts;
  std::vector<Digest> keys;
  for (std::size_t page = 0; page < chain.size(); ++page) {
    for (int group = 0; group < view.groups(); ++group) {
      const auto at = static_cast<std::int64_t>(page);
      if (at * page_tokens < view.first(group)) continue;
      parts.push_back({at, group});
      keys.push_back(page_key(*epoch, chain[page], group));
    }
  }
  auto there = tier_->exists(keys);
  if (!there) return tl::unexpected(there.error());
  there->wait();
  std::int64_t stored = 0;
  std::int64_t waiting_bytes = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (there->answer(i).outcome == TierOutcome::ok) continue;
    const PageTag tag = tag_of(space.digest(), chain, tokens, page_tokens, parts[i]);
    const TierPut record = put_of(tag, *epoch, view.table(tag.group), parts[i].page);
    put({&record, 1});
    ++stored;
    waiting_bytes += this->record(tag.group).bytes();
    if (waiting_bytes < options_.batch_bytes) continue;
    flush(kNoDeadline);
    waiting_bytes = 0;
  }
  count(&PageTierStats::stored_pages, stored);
  return stored;
}

bool PageTierState::flush(Clock::time_point until) {
  for (;;) {
    TierBatch batch;
    {
      const std::lock_guard lock(mutex_);
      if (puts_.empty()) return true;
      batch = std::move(puts_.front());
      puts_.pop_front();
    }
    if (batch.wait(until)) continue;
    const std::lock_guard lock(mutex_);
    puts_.push_front(std::move(batch));
    return false;
  }
}

void PageTierState::count(std::int64_t PageTierStats::* counter, std::int64_t by) {
  const std::lock_guard lock(mutex_);
  stats_.*counter += by;
}

PageTierStats PageTierState::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

// ---- The sink

void TierSink::give_up(const Page& page) noexcept {
  try {
    state_->give_up(page);
  } catch (const std::exception&) {  // no memory for the copy: the page is lost
    state_->count(&PageTierStats::skipped_pages);
  }
}

void TierSink::invalidate(const Digest& space) noexcept {
  try {
    state_->invalidate(space);
  } catch (const std::exception&) {
    state_->count(&PageTierStats::failed_invalidations);
  }
}

}  // namespace pagekv::inline v0::internal
