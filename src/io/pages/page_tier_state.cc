#include "io/pages/page_tier_state.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <utility>

#include "core/prefix/digest.h"

namespace pagekv::inline v0::internal {

namespace {

using Clock = std::chrono::steady_clock;

Epoch random_epoch() {
  std::random_device device;
  Epoch epoch;
  for (std::byte& byte : epoch) byte = static_cast<std::byte>(device());
  return epoch;
}

TierPut epoch_put(const Digest& space, const Epoch& epoch) {
  return {.key = epoch_key(space), .value = {.bytes = epoch}, .tag = {}};
}

Status no_answer(TierOutcome outcome, int system_error) {
  return fail(ErrorCode::io_error, "the tier did not answer: {s}", {system_error}, name(outcome));
}

}  // namespace

PageTierState::PageTierState(std::shared_ptr<StoreCore> core, std::shared_ptr<Tier> tier,
                             PageTierOptions options)
    : core_(std::move(core)), tier_(std::move(tier)), options_(options) {
  for (int group = 0; group < layout().group_count(); ++group) {
    records_.emplace_back(layout(), group);
  }
}

PageTierState::~PageTierState() {
  std::vector<Digest> keys;
  for (const auto& [space, epoch] : epochs_) keys.push_back(epoch_key(space));
  tier_->unpin(keys);
}

// ---- Names

// What another process stored first counts; a tier that cannot be written serves what it has.
Status PageTierState::attach(const Digest& space) {
  if (epoch(space)) return {};
  const Digest key = epoch_key(space);
  const TierOptions options{.deadline = Clock::now() + options_.patience};
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto get = tier_->get({&key, 1}, options);
    if (!get) return tl::unexpected(get.error());
    get->wait();
    const TierAnswer& answer = get->answer(0);
    Epoch epoch;
    if (answer.outcome == TierOutcome::ok && answer.value.size() == epoch.size()) {
      std::memcpy(epoch.data(), answer.value.data(), epoch.size());
      set_epoch(space, epoch);
      return tier_->pin({&key, 1});
    }
    if (answer.outcome == TierOutcome::expired || attempt == 1) {
      return no_answer(answer.outcome, answer.system_error);
    }
    const TierPut fresh = epoch_put(space, random_epoch());
    auto put = tier_->put({&fresh, 1}, options);
    if (!put) return tl::unexpected(put.error());
    put->wait();
    const TierAnswer& written = put->answer(0);
    if (written.outcome != TierOutcome::ok && written.outcome != TierOutcome::present) {
      return no_answer(written.outcome, written.system_error);
    }
  }
  return {};
}

std::optional<Epoch> PageTierState::epoch(const Digest& space) const {
  const std::lock_guard lock(mutex_);
  const auto found = epochs_.find(space);
  if (found == epochs_.end()) return std::nullopt;
  return found->second;
}

void PageTierState::set_epoch(const Digest& space, const Epoch& epoch) {
  const std::lock_guard lock(mutex_);
  epochs_[space] = epoch;
}

// The old name is forgotten first: whatever becomes of the tier, this process serves nothing of it.
void PageTierState::invalidate(const Digest& space) {
  const Epoch fresh = random_epoch();
  {
    const std::lock_guard lock(mutex_);
    const auto found = epochs_.find(space);
    if (found == epochs_.end()) return;
    found->second = fresh;
  }
  const TierPut put = epoch_put(space, fresh);
  auto batch =
      tier_->put({&put, 1}, {.deadline = Clock::now() + options_.patience, .replace = true});
  if (batch) batch->wait();
  if (!batch || batch->answer(0).outcome != TierOutcome::ok) {
    count(&PageTierStats::failed_invalidations);
  }
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
  const std::optional<Epoch> epoch = this->epoch(page.space);
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

Result<std::int64_t> PageTierState::store(const Digest& space, const std::vector<Digest>& chain,
                                          std::span<const TokenId> tokens, const PageHolder& view) {
  const std::optional<Epoch> epoch = this->epoch(space);
  if (!epoch) {
    return fail(ErrorCode::invalid_argument, "the namespace is not attached to this tier");
  }
  struct Part {
    std::int64_t page;
    int group;
  };
  std::vector<Part> parts;
  std::vector<Digest> keys;
  const std::int64_t page_tokens = layout().page_tokens();
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
    const auto [page, group] = parts[i];
    const auto at = static_cast<std::size_t>(page);
    const PageTag tag{space, chain[at], at == 0 ? space : chain[at - 1], group,
                      tokens.subspan(at * static_cast<std::size_t>(page_tokens),
                                     static_cast<std::size_t>(page_tokens))};
    const TierPut record = put_of(tag, *epoch, view.table(group), page);
    put({&record, 1});
    ++stored;
    waiting_bytes += this->record(group).bytes();
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
