// Device: where pages live and who computes on them.
//
// A Device is a handle; copies share the device. Safe on any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pagekv/error.h"
#include "pagekv/executor.h"
#include "pagekv/export.h"
#include "pagekv/layout.h"

namespace pagekv::inline v0 {

namespace internal {
class Backend;
}

// The queue that byte work of one call goes to. On CPU work runs inline and is done on return.
struct Stream {
  void* native = nullptr;
};

class PAGEKV_API Device {
 public:
  explicit Device(std::shared_ptr<internal::Backend> backend);
  ~Device();
  Device(const Device&);
  Device& operator=(const Device&);
  Device(Device&&) noexcept;
  Device& operator=(Device&&) noexcept;

  std::string name() const;  // "cpu/AVX3"
  // The arrangement whose reads are fastest here; put it into the LayoutSpec.
  TileArrangement suggested_arrangement() const;
  Executor& executor() const;

  internal::Backend& backend() const { return *backend_; }

 private:
  std::shared_ptr<internal::Backend> backend_;
};

struct CpuOptions {
  // Who does the work; null: a thread executor with `threads` threads.
  std::shared_ptr<Executor> executor{};
  int threads = 1;
  // One of cpu_targets(); empty: the best this processor has.
  std::string target{};
  // Ask the system for huge pages; where it has none this changes nothing.
  bool huge_pages = true;
};

// Names of the instruction sets compiled in and supported here, best first: {"AVX3_AMX",
// "AVX3_VNNI", "AVX3", "AVX2", ...}.
PAGEKV_API std::vector<std::string> cpu_targets();

// Errors: invalid_argument (threads, an unknown target: the text names the legal ones).
PAGEKV_API Result<Device> make_cpu_device(CpuOptions options = {});

}  // namespace pagekv::inline v0
