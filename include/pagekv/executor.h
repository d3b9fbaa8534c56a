// Executor: the threads that do pagekv's byte work, the caller's or ours.
//
// Engines own threads already; they hand them in by implementing this interface. Results never
// depend on the executor: work is cut the same way for any number of threads.
#pragma once

#include <cstdint>
#include <memory>

#include "pagekv/error.h"
#include "pagekv/export.h"

namespace pagekv::inline v0 {

// A reference to a callable `void(int worker, std::int64_t item)`: two pointers, no allocation.
// REQUIRES: the callable outlives the call it is passed to.
class TaskRef {
 public:
  template <typename F>
  TaskRef(
      const F& f)  // NOLINT(google-explicit-constructor): a lambda at the call site is the point
      : context_(&f), call_([](const void* context, int worker, std::int64_t item) {
          (*static_cast<const F*>(context))(worker, item);
        }) {}
  void operator()(int worker, std::int64_t item) const { call_(context_, worker, item); }

 private:
  const void* context_;
  void (*call_)(const void*, int, std::int64_t);
};

class PAGEKV_API Executor {
 public:
  virtual ~Executor();
  virtual int threads() const = 0;
  // Calls task(worker, item) once for every item in [0, items), with 0 <= worker < threads() and,
  // of one parallel_for, never two calls with the same worker at once; returns when all are done.
  // Order and placement are the executor's. May be called from several threads, never from inside a
  // task. The task does not throw, and needs up to 128 KiB of its thread's stack.
  virtual void parallel_for(std::int64_t items, TaskRef task) = 0;
};

// The calling thread alone.
PAGEKV_API std::shared_ptr<Executor> make_serial_executor();
// A fork-join pool of std::thread: the caller and `threads - 1` workers.
// Errors: invalid_argument unless 1 <= threads <= 1024; out_of_memory.
PAGEKV_API Result<std::shared_ptr<Executor>> make_thread_executor(int threads);
// A oneTBB arena. Errors: as above; unsupported where the library was built without oneTBB.
PAGEKV_API Result<std::shared_ptr<Executor>> make_tbb_executor(int threads);

}  // namespace pagekv::inline v0
