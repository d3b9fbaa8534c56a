#include "test_backend.h"

#include <cstring>

namespace pagekv::testing {

namespace {

class NanArena final : public internal::Arena {
 public:
  NanArena(std::unique_ptr<internal::Arena> inner, TestBackend& backend)
      : inner_(std::move(inner)), backend_(backend) {}

  std::byte* base() const override { return inner_->base(); }
  Status commit(std::int64_t offset, std::int64_t bytes) override {
    if (backend_.commits_until_refusal == 0) {
      return fail(ErrorCode::out_of_memory, "refused {0} bytes, as told", {bytes});
    }
    if (backend_.commits_until_refusal > 0) --backend_.commits_until_refusal;
    return inner_->commit(offset, bytes);
  }
  void decommit(std::int64_t offset, std::int64_t bytes) override {
    inner_->decommit(offset, bytes);
  }
  // All bits set is a NaN in every dense format.
  void mark_free(std::int64_t offset, std::int64_t bytes) override {
    std::memset(base() + offset, 0xff, static_cast<std::size_t>(bytes));
    inner_->mark_free(offset, bytes);
  }
  void mark_used(std::int64_t offset, std::int64_t bytes) override {
    inner_->mark_used(offset, bytes);
  }

 private:
  std::unique_ptr<internal::Arena> inner_;
  TestBackend& backend_;
};

}  // namespace

Result<std::unique_ptr<internal::Arena>> TestBackend::reserve_arena(std::int64_t bytes) {
  auto inner = inner_.backend().reserve_arena(bytes);
  if (!inner) return tl::unexpected(inner.error());
  return std::make_unique<NanArena>(std::move(*inner), *this);
}

TestDevice::TestDevice(int threads)
    : backend(std::make_shared<TestBackend>(*make_cpu_device({.threads = threads}))),
      device(backend) {}

}  // namespace pagekv::testing
