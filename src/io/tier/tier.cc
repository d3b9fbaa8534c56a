#include "pagekv/tier.h"

#include <cassert>
#include <utility>

#include "io/tier/batch.h"
#include "io/tier/directory_tier.h"

namespace pagekv::inline v0 {

const char* name(TierOutcome outcome) {
  switch (outcome) {
    case TierOutcome::ok: return "ok";
    case TierOutcome::present: return "present";
    case TierOutcome::absent: return "absent";
    case TierOutcome::corrupt: return "corrupt";
    case TierOutcome::too_large: return "too_large";
    case TierOutcome::no_room: return "no_room";
    case TierOutcome::read_only: return "read_only";
    case TierOutcome::busy: return "busy";
    case TierOutcome::io_error: return "io_error";
    case TierOutcome::expired: return "expired";
    case TierOutcome::cancelled: return "cancelled";
  }
  return "unknown";
}

Tier::~Tier() = default;

TierBatch::TierBatch() = default;
TierBatch::TierBatch(std::shared_ptr<internal::TierBatchState> state) : state_(std::move(state)) {}
TierBatch::~TierBatch() {
  cancel();
}
TierBatch::TierBatch(TierBatch&&) noexcept = default;

TierBatch& TierBatch::operator=(TierBatch&& other) noexcept {
  if (this == &other) return *this;
  cancel();
  state_ = std::move(other.state_);
  return *this;
}

std::size_t TierBatch::size() const {
  return state_ ? state_->size() : 0;
}

bool TierBatch::poll() const {
  return !state_ || state_->done();
}

bool TierBatch::wait(std::chrono::steady_clock::time_point until) const {
  return !state_ || state_->wait(until);
}

const TierAnswer& TierBatch::answer(std::size_t index) const {
  return state_->work(index).answer;
}

void TierBatch::cancel() {
  if (state_) state_->give_up(TierOutcome::cancelled);
}

void TierBatch::detach() {
  state_.reset();
}

Result<std::unique_ptr<Tier>> open_directory_tier(const std::string& path,
                                                  const DirectoryTierOptions& options) {
  return internal::DirectoryTier::open(path, options);
}

}  // namespace pagekv::inline v0
