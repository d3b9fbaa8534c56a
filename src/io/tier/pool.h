// The threads of a tier: they take batches in the order in which they came, several at the same
// batch if they can, and expire what has waited past its deadline, also while all of them are held
// up by the disk.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "io/tier/batch.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::internal {

class TierPool {
 public:
  // Answers a key of a batch. Called by several threads at once; must not throw.
  using Run = std::function<void(TierBatchState&, TierWork&)>;

  explicit TierPool(Run run) : run_(std::move(run)) {}
  // Cancels what is not begun, and waits for the rest.
  ~TierPool();
  TierPool(const TierPool&) = delete;
  TierPool& operator=(const TierPool&) = delete;

  Status start(int threads);  // Errors: io_error (the system gives no more threads)
  void submit(const std::shared_ptr<TierBatchState>& batch);

 private:
  void work();
  void keep_time();
  std::shared_ptr<TierBatchState> front();  // waits for it; null: the end
  void pop(const std::shared_ptr<TierBatchState>& batch);
  TierTime earliest_deadline() const;
  std::shared_ptr<TierBatchState> take_expired(TierTime now);  // one; null: there is none

  const Run run_;
  std::mutex mutex_;
  std::condition_variable came_;                       // a batch, or the end: for workers
  std::condition_variable deadline_;                   // for the thread that keeps the time
  std::deque<std::shared_ptr<TierBatchState>> queue_;  // finished ones leave it when they are met
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace pagekv::inline v0::internal
