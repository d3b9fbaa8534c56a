// The state behind a TierBatch, shared by its handle and the threads that work on it, so that the
// memory of a key lives until the last of them is done with it.
//
// Keys are begun in their order. A thread that has begun one owns it until it calls finish(); the
// handle reads answers only when all have been given. Whoever gives up what is not begun owns those
// keys until they are answered.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "io/tier/descriptor.h"
#include "pagekv/error.h"
#include "pagekv/tier.h"

namespace pagekv::inline v0::internal {

using TierTime = std::chrono::steady_clock::time_point;

// What a tier and its batches share. Lives as long as the last of them. Thread-safe.
class TierChannel {
 public:
  static Result<std::shared_ptr<TierChannel>> make();  // Errors: io_error

  int event_fd() const { return event_.get(); }
  void signal();
  void clear();

  std::atomic<std::int64_t> waiting_bytes = 0;  // of puts
  std::atomic<std::int64_t> expired = 0;
  std::atomic<std::int64_t> cancelled = 0;

 private:
  Descriptor event_;
};

inline constexpr std::align_val_t kValueAlignment{64};
struct FreeAligned {
  void operator()(std::byte* bytes) const { ::operator delete[](bytes, kValueAlignment); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeAligned>;
AlignedBytes allocate_aligned(std::size_t bytes);  // null where the system refuses

enum class TierOperation : std::uint8_t { exists, get, put, remove };

// One key of a batch.
struct TierWork {
  Digest key{};
  TierBytes value = {};  // of put; with an owner
  TierBytes tag = {};
  std::int64_t waiting_bytes = 0;          // of those of the channel
  bool busy = false;                       // came when too many bytes waited already
  AlignedBytes value_memory = {};          // of get
  std::vector<std::byte> tag_memory = {};  // of get
  TierAnswer answer = {};
};

class TierBatchState {
 public:
  TierBatchState(TierOperation operation, std::vector<TierWork> works, const TierOptions& options,
                 std::shared_ptr<TierChannel> channel);

  TierOperation operation() const { return operation_; }
  bool replace() const { return options_.replace; }
  TierTime deadline() const { return options_.deadline; }
  std::size_t size() const { return works_.size(); }
  TierWork& work(std::size_t index) { return works_[index]; }  // REQUIRES: it is the caller's

  // For threads of the tier. begin(): the next key, if there is one and the deadline has not come;
  // where it has, the rest is expired.
  std::optional<std::size_t> begin(TierTime now);
  void finish(std::size_t index);
  // Answers all that is not begun. `outcome`: expired or cancelled.
  void give_up(TierOutcome outcome);

  // For the handle.
  bool done() const;
  bool wait(TierTime until) const;

 private:
  void release(TierWork& work);
  bool done_locked() const { return next_ == works_.size() && running_ == 0; }
  void end_running();

  const TierOperation operation_;
  const TierOptions options_;
  const std::shared_ptr<TierChannel> channel_;
  std::vector<TierWork> works_;

  mutable std::mutex mutex_;
  mutable std::condition_variable finished_;
  std::size_t next_ = 0;     // the first that is not begun
  std::size_t running_ = 0;  // threads that own keys
};

}  // namespace pagekv::inline v0::internal
