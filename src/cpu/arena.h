// CpuArena: address space from mmap, memory by protection.
//
// Not thread-safe: core calls it under its own lock.
#pragma once

#include <memory>

#include "core/backend.h"

namespace pagekv::inline v0::internal {

class CpuArena final : public Arena {
 public:
  // Reserves `bytes` of inaccessible address space whose base is a multiple of 2 MiB.
  // Errors: out_of_memory.
  static Result<std::unique_ptr<Arena>> reserve(std::int64_t bytes, bool huge_pages);
  ~CpuArena() override;
  CpuArena(const CpuArena&) = delete;
  CpuArena& operator=(const CpuArena&) = delete;

  std::byte* base() const override { return base_; }
  Status commit(std::int64_t offset, std::int64_t bytes) override;
  void decommit(std::int64_t offset, std::int64_t bytes) override;
  void mark_free(std::int64_t offset, std::int64_t bytes) override;
  void mark_used(std::int64_t offset, std::int64_t bytes) override;

 private:
  CpuArena(void* mapping, std::int64_t mapped_bytes, std::int64_t bytes);

  void* mapping_;                        // what mmap gave
  std::int64_t mapped_bytes_;            // of it
  std::byte* base_;                      // aligned, inside the mapping
  [[maybe_unused]] std::int64_t bytes_;  // that the caller asked for; asserts look at it
  // Whatever was ever marked free lies in [marked_begin_, marked_end_).
  std::int64_t marked_begin_;
  std::int64_t marked_end_ = 0;
};

}  // namespace pagekv::inline v0::internal
