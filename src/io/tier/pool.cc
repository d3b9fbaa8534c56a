#include "io/tier/pool.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace pagekv::inline v0::internal {

TierPool::~TierPool() {
  decltype(queue_) rest;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    rest.swap(queue_);
  }
  came_.notify_all();
  deadline_.notify_all();
  for (const auto& batch : rest) batch->give_up(TierOutcome::cancelled);
  for (std::thread& thread : threads_) thread.join();
}

Status TierPool::start(int threads) {
  try {
    threads_.reserve(static_cast<std::size_t>(threads) + 1);
    for (int at = 0; at < threads; ++at) threads_.emplace_back([this] { work(); });
    threads_.emplace_back([this] { keep_time(); });
    return {};
  } catch (const std::system_error& error) {
    return fail(ErrorCode::io_error, "cannot start threads: {s}", {error.code().value()},
                error.code().message());
  }
}

void TierPool::submit(const std::shared_ptr<TierBatchState>& batch) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(batch);
  }
  if (batch->size() == 1) {
    came_.notify_one();
  } else {
    came_.notify_all();
  }
  if (batch->deadline() != kNoDeadline) deadline_.notify_one();
}

void TierPool::work() {
  while (const auto batch = front()) {
    const auto index = batch->begin(std::chrono::steady_clock::now());
    if (!index) {
      pop(batch);
      continue;
    }
    run_(*batch, batch->work(*index));
    batch->finish(*index);
  }
}

std::shared_ptr<TierBatchState> TierPool::front() {
  std::unique_lock lock(mutex_);
  came_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
  return stopping_ ? nullptr : queue_.front();
}

void TierPool::pop(const std::shared_ptr<TierBatchState>& batch) {
  const std::lock_guard lock(mutex_);
  if (!queue_.empty() && queue_.front() == batch) queue_.pop_front();
}

void TierPool::keep_time() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const TierTime earliest = earliest_deadline();
    if (earliest == kNoDeadline) {
      deadline_.wait(lock);
    } else {
      deadline_.wait_until(lock, earliest);
    }
    while (const auto expired = take_expired(std::chrono::steady_clock::now())) {
      lock.unlock();
      expired->give_up(TierOutcome::expired);
      lock.lock();
    }
  }
}

TierTime TierPool::earliest_deadline() const {
  TierTime earliest = kNoDeadline;
  for (const auto& batch : queue_) earliest = std::min(earliest, batch->deadline());
  return earliest;
}

std::shared_ptr<TierBatchState> TierPool::take_expired(TierTime now) {
  const auto found = std::find_if(queue_.begin(), queue_.end(),
                                  [now](const auto& batch) { return batch->deadline() <= now; });
  if (found == queue_.end()) return nullptr;
  auto batch = std::move(*found);
  queue_.erase(found);
  return batch;
}

}  // namespace pagekv::inline v0::internal
