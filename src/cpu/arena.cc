#include "cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>

#if defined(__SANITIZE_ADDRESS__)
#define PAGEKV_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PAGEKV_ASAN 1
#endif
#endif
#if defined(PAGEKV_ASAN)
#include <sanitizer/asan_interface.h>
#endif

namespace pagekv::inline v0::internal {

namespace {

// Where a transparent huge page can begin.
constexpr std::int64_t kBaseAlignment = std::int64_t{2} << 20;

std::int64_t system_page_bytes() {
  static const std::int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

std::size_t to_size(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes);
}

void poison([[maybe_unused]] const std::byte* at, [[maybe_unused]] std::int64_t bytes) {
#if defined(PAGEKV_ASAN)
  __asan_poison_memory_region(at, to_size(bytes));
#endif
}

void unpoison([[maybe_unused]] const std::byte* at, [[maybe_unused]] std::int64_t bytes) {
#if defined(PAGEKV_ASAN)
  __asan_unpoison_memory_region(at, to_size(bytes));
#endif
}

}  // namespace

Result<std::unique_ptr<Arena>> CpuArena::reserve(std::int64_t bytes, bool huge_pages) {
  // Room to move the base up to its alignment.
  const std::int64_t mapped_bytes = round_up(bytes, system_page_bytes()) + kBaseAlignment;
  void* mapping = mmap(nullptr, to_size(mapped_bytes), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return fail(ErrorCode::out_of_memory, "the system has no {0} bytes of address space left",
                {bytes});
  }
#if defined(MADV_HUGEPAGE)
  // Advice: a kernel without huge pages refuses, and nothing is lost.
  if (huge_pages) static_cast<void>(madvise(mapping, to_size(mapped_bytes), MADV_HUGEPAGE));
#else
  static_cast<void>(huge_pages);
#endif
  return std::unique_ptr<Arena>(new CpuArena(mapping, mapped_bytes, bytes));
}

CpuArena::CpuArena(void* mapping, std::int64_t mapped_bytes, std::int64_t bytes)
    : mapping_(mapping), mapped_bytes_(mapped_bytes), bytes_(bytes), marked_begin_(bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  const std::uintptr_t misaligned = address % static_cast<std::uintptr_t>(kBaseAlignment);
  const std::uintptr_t skip = misaligned == 0 ? 0 : kBaseAlignment - misaligned;
  base_ = static_cast<std::byte*>(mapping) + skip;
}

CpuArena::~CpuArena() {
  // The addresses may be handed out again; their poison must not stay behind. Only what was
  // poisoned: the shadow of a whole reservation is memory in itself.
  if (marked_begin_ < marked_end_) unpoison(base_ + marked_begin_, marked_end_ - marked_begin_);
  munmap(mapping_, to_size(mapped_bytes_));
}

Status CpuArena::commit(std::int64_t offset, std::int64_t bytes) {
  assert(offset >= 0 && bytes >= 0 && offset + bytes <= bytes_);
  const std::int64_t page = system_page_bytes();
  const std::int64_t begin = offset / page * page;
  const std::int64_t end = round_up(offset + bytes, page);
  if (begin == end) return {};
  if (mprotect(base_ + begin, to_size(end - begin), PROT_READ | PROT_WRITE) != 0) {
    return fail(ErrorCode::out_of_memory, "the system refused {0} bytes of memory", {bytes});
  }
  return {};
}

void CpuArena::decommit(std::int64_t offset, std::int64_t bytes) {
  assert(offset >= 0 && bytes >= 0 && offset + bytes <= bytes_);
  const std::int64_t page = system_page_bytes();
  const std::int64_t begin = round_up(offset, page);
  const std::int64_t end = (offset + bytes) / page * page;
  // Stays accessible: a later commit of the same range finds zeros.
  if (begin < end) static_cast<void>(madvise(base_ + begin, to_size(end - begin), MADV_DONTNEED));
}

void CpuArena::mark_free(std::int64_t offset, std::int64_t bytes) {
  marked_begin_ = std::min(marked_begin_, offset);
  marked_end_ = std::max(marked_end_, offset + bytes);
  poison(base_ + offset, bytes);
}

void CpuArena::mark_used(std::int64_t offset, std::int64_t bytes) {
  unpoison(base_ + offset, bytes);
}

}  // namespace pagekv::inline v0::internal
