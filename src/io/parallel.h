// Work that may fail, spread over an executor.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

#include "pagekv/error.h"
#include "pagekv/executor.h"

namespace pagekv::inline v0::internal {

// Calls body(worker, item), which gives a Status, for every item in [0, items), and none that has
// not begun once one has failed. The error is that of one that did.
template <typename Body>
Status try_for_each(Executor& executor, std::int64_t items, const Body& body) {
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::optional<Error> error;
  const auto guarded = [&](int worker, std::int64_t item) -> Status {
    try {
      return body(worker, item);
    } catch (const std::bad_alloc&) {
      return fail(ErrorCode::out_of_memory, "the system refused memory for a buffer");
    }
  };
  executor.parallel_for(items, [&](int worker, std::int64_t item) {
    if (failed.load(std::memory_order_relaxed)) return;
    const Status done = guarded(worker, item);
    if (done) return;
    failed.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex);
    if (!error) error = done.error();
  });
  if (error) return tl::unexpected(std::move(*error));
  return {};
}

}  // namespace pagekv::inline v0::internal
