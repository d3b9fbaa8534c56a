#include "io/tier/batch.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace pagekv::inline v0::internal {

Result<std::shared_ptr<TierChannel>> TierChannel::make() {
  auto channel = std::make_shared<TierChannel>();
  channel->event_ = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (channel->event_.valid()) return channel;
  const int code = errno;
  return fail(ErrorCode::io_error, "cannot make an event descriptor: {s}", {code},
              std::generic_category().message(code));
}

// Neither can fail in a way that matters: a counter that is full is readable, an empty one is
// clear.
void TierChannel::signal() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t ignored = ::write(event_.get(), &one, sizeof one);
}

void TierChannel::clear() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t ignored = ::read(event_.get(), &count, sizeof count);
}

AlignedBytes allocate_aligned(std::size_t bytes) {
  return AlignedBytes(
      static_cast<std::byte*>(::operator new[](bytes, kValueAlignment, std::nothrow)));
}

TierBatchState::TierBatchState(TierOperation operation, std::vector<TierWork> works,
                               const TierOptions& options, std::shared_ptr<TierChannel> channel)
    : operation_(operation),
      options_(options),
      channel_(std::move(channel)),
      works_(std::move(works)) {}

std::optional<std::size_t> TierBatchState::begin(TierTime now) {
  if (now >= options_.deadline) {
    give_up(TierOutcome::expired);
    return std::nullopt;
  }
  const std::lock_guard lock(mutex_);
  if (next_ == works_.size()) return std::nullopt;
  ++running_;
  return next_++;
}

void TierBatchState::finish(std::size_t index) {
  release(works_[index]);
  end_running();
}

void TierBatchState::give_up(TierOutcome outcome) {
  std::size_t at = 0;
  {
    const std::lock_guard lock(mutex_);
    if (next_ == works_.size()) return;
    at = std::exchange(next_, works_.size());
    ++running_;
  }
  auto& counter = outcome == TierOutcome::expired ? channel_->expired : channel_->cancelled;
  counter += static_cast<std::int64_t>(works_.size() - at);
  for (; at < works_.size(); ++at) {
    works_[at].answer = {.outcome = outcome};
    release(works_[at]);
  }
  end_running();
}

bool TierBatchState::done() const {
  const std::lock_guard lock(mutex_);
  return done_locked();
}

bool TierBatchState::wait(TierTime until) const {
  std::unique_lock lock(mutex_);
  const auto is_done = [this] { return done_locked(); };
  if (until != kNoDeadline) return finished_.wait_until(lock, until, is_done);
  finished_.wait(lock, is_done);
  return true;
}

// Lets go of what was to be written: without the mutex, since an owner's end is the caller's code.
void TierBatchState::release(TierWork& work) {
  work.value = {};
  work.tag = {};
  channel_->waiting_bytes -= std::exchange(work.waiting_bytes, 0);
}

// The event comes under the mutex: who sees it finds the batch finished, and who finds the batch
// finished gets no event of it later.
void TierBatchState::end_running() {
  const std::lock_guard lock(mutex_);
  --running_;
  if (!done_locked()) return;
  channel_->signal();
  finished_.notify_all();
}

}  // namespace pagekv::inline v0::internal
