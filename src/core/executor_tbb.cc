#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <new>

#include "core/executor_limits.h"
#include "pagekv/executor.h"

namespace pagekv::inline v0 {

namespace {

class TbbExecutor final : public Executor {
 public:
  explicit TbbExecutor(int threads) : arena_(threads) { arena_.initialize(); }
  int threads() const override { return arena_.max_concurrency(); }
  void parallel_for(std::int64_t items, TaskRef task) override {
    arena_.execute([&] {
      oneapi::tbb::parallel_for(std::int64_t{0}, items, [&](std::int64_t item) {
        task(oneapi::tbb::this_task_arena::current_thread_index(), item);
      });
    });
  }

 private:
  oneapi::tbb::task_arena arena_;
};

}  // namespace

Result<std::shared_ptr<Executor>> make_tbb_executor(int threads) {
  if (threads < 1 || threads > internal::kMaxExecutorThreads) {
    return fail(ErrorCode::invalid_argument, "{0} threads; legal are 1 to {1}",
                {threads, internal::kMaxExecutorThreads});
  }
  try {
    return std::make_shared<TbbExecutor>(threads);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "no memory for {0} threads", {threads});
  }
}

}  // namespace pagekv::inline v0
