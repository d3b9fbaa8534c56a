#include "pagekv/executor.h"

#include <atomic>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "core/executor_limits.h"

namespace pagekv::inline v0 {

Executor::~Executor() = default;

namespace {

using internal::kMaxExecutorThreads;

// How long an idle worker looks for work before it sleeps: about as long as the gap between two
// layers of a decode step, so that a running engine never pays for a wake-up.
constexpr int kSpins = 4000;

class SerialExecutor final : public Executor {
 public:
  int threads() const override { return 1; }
  void parallel_for(std::int64_t items, TaskRef task) override {
    for (std::int64_t item = 0; item < items; ++item) task(0, item);
  }
};

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // `yield` costs nothing on most cores, so that kSpins of it would pass in no time.
  asm volatile("isb" ::: "memory");
#endif
}

// Fork-join: the caller publishes a job under a new generation, works on it itself, and waits until
// every worker has left it. Workers take items from one counter.
class ThreadExecutor final : public Executor {
 public:
  explicit ThreadExecutor(int threads) {
    workers_.reserve(static_cast<std::size_t>(threads - 1));
    try {
      for (int worker = 1; worker < threads; ++worker) {
        workers_.emplace_back([this, worker] { work(worker); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ThreadExecutor() override { stop(); }

  int threads() const override { return static_cast<int>(workers_.size()) + 1; }

  void parallel_for(std::int64_t items, TaskRef task) override {
    if (items <= 1 || workers_.empty()) {
      for (std::int64_t item = 0; item < items; ++item) task(0, item);
      return;
    }
    const std::lock_guard lock(callers_);
    task_ = &task;
    items_ = items;
    next_.store(0, std::memory_order_relaxed);
    active_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    take_items(0);
    await_zero(active_);
  }

 private:
  void take_items(int worker) {
    const TaskRef& task = *task_;
    for (;;) {
      const std::int64_t item = next_.fetch_add(1, std::memory_order_relaxed);
      if (item >= items_) return;
      task(worker, item);
    }
  }

  void work(int worker) {
    std::uint32_t seen = 0;
    for (;;) {
      seen = await_change(generation_, seen);
      if (stopping_.load(std::memory_order_acquire)) return;
      take_items(worker);
      if (active_.fetch_sub(1, std::memory_order_acq_rel) == 1) active_.notify_all();
    }
  }

  static std::uint32_t await_change(std::atomic<std::uint32_t>& value, std::uint32_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      const std::uint32_t now = value.load(std::memory_order_acquire);
      if (now != seen) return now;
      relax();
    }
    value.wait(seen, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
  }

  static void await_zero(std::atomic<int>& value) {
    for (int spin = 0; spin < kSpins; ++spin) {
      if (value.load(std::memory_order_acquire) == 0) return;
      relax();
    }
    for (int now = value.load(std::memory_order_acquire); now != 0;
         now = value.load(std::memory_order_acquire)) {
      value.wait(now, std::memory_order_acquire);
    }
  }

  void stop() {
    stopping_.store(true, std::memory_order_release);
    generation_.fetch_add(1, std::memory_order_release);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  std::mutex callers_;  // one job at a time
  const TaskRef* task_ = nullptr;
  std::int64_t items_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> active_{0};  // workers that have not left the job
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
};

}  // namespace

std::shared_ptr<Executor> make_serial_executor() {
  return std::make_shared<SerialExecutor>();
}

Result<std::shared_ptr<Executor>> make_thread_executor(int threads) {
  if (threads < 1 || threads > kMaxExecutorThreads) {
    return fail(ErrorCode::invalid_argument, "{0} threads; legal are 1 to {1}",
                {threads, kMaxExecutorThreads});
  }
  try {
    return std::make_shared<ThreadExecutor>(threads);
  } catch (const std::system_error&) {
    return fail(ErrorCode::out_of_memory, "the system refused to start {0} threads", {threads});
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "no memory for {0} threads", {threads});
  }
}

}  // namespace pagekv::inline v0
