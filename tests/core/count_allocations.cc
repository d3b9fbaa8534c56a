// A file of its own: where the compiler sees both halves of a pair of operators and malloc behind
// one, it warns about the other.
#include "count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> count{0};
}

std::int64_t pagekv::testing::allocations() {
  return count;
}

void* operator new(std::size_t bytes) {
  ++count;
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void* operator new(std::size_t bytes, std::align_val_t align) {
  ++count;
  const auto step = static_cast<std::size_t>(align);
  if (void* memory = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
