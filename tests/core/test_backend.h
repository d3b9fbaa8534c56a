// TestBackend: a real device whose memory and fences a test controls.
//
//   - pages that are free or fresh are filled with NaN, so that any read of them shows;
//   - memory can be refused after a number of commits, and layouts as such;
//   - fences can be held back, so that pages retire.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/backend.h"
#include "pagekv/pagekv.h"

namespace pagekv::testing {

class TestBackend final : public internal::Backend {
 public:
  explicit TestBackend(Device inner) : inner_(std::move(inner)) {}

  std::int64_t commits_until_refusal = -1;  // -1: never refuses
  bool refuses_layouts = false;
  std::atomic<bool> hold_fences{false};

  std::string name() const override { return "test on " + inner_.name(); }
  TileArrangement suggested_arrangement() const override { return inner_.suggested_arrangement(); }
  Executor& executor() override { return inner_.executor(); }
  Result<std::unique_ptr<internal::Arena>> reserve_arena(std::int64_t bytes) override;
  Status supports(const CacheLayout& layout) const override {
    if (refuses_layouts) return fail(ErrorCode::unsupported, "refused, as told");
    return inner_.backend().supports(layout);
  }
  internal::Fence record_fence() override { return {++recorded_}; }
  bool passed(internal::Fence fence) const override {
    return !hold_fences || fence.ticket <= passed_up_to_;
  }
  void pass_fences() { passed_up_to_ = recorded_.load(); }

  void copy_rows(const internal::LayerAddress& layer, internal::PageId from, internal::PageId to,
                 std::int64_t rows, Stream stream) override {
    ++copies;
    inner_.backend().copy_rows(layer, from, to, rows, stream);
  }
  void encode(const internal::LayerAddress& layer, std::span<internal::WriteSpan> spans, Rows k,
              Rows v, Stream stream) override {
    inner_.backend().encode(layer, spans, k, v, stream);
  }
  void gather(const internal::LayerAddress& layer, const internal::ReadSpan& span, MutableRows k,
              MutableRows v, Stream stream) override {
    inner_.backend().gather(layer, span, k, v, stream);
  }
  void read_plane(const internal::LayerAddress& layer, const internal::ReadSpan& span,
                  internal::HeadPlane of, std::byte* to) override {
    inner_.backend().read_plane(layer, span, of, to);
  }
  void write_plane(const internal::LayerAddress& layer, const internal::ReadSpan& span,
                   internal::HeadPlane of, const std::byte* from) override {
    inner_.backend().write_plane(layer, span, of, from);
  }
  internal::AttendCut attend_cut() const override { return inner_.backend().attend_cut(); }
  std::int64_t workspace_floats(const CacheLayout& layout,
                                const internal::PlanState& plan) const override {
    return inner_.backend().workspace_floats(layout, plan);
  }
  void attend(const internal::LayerAddress& layer, internal::PlanState& plan,
              const AttendArgs& args, float scale, Stream stream) override {
    inner_.backend().attend(layer, plan, args, scale, stream);
  }

  std::atomic<std::int64_t> copies{0};  // copy_rows calls: one per layer of a copied page

 private:
  Device inner_;
  std::atomic<std::uint64_t> recorded_{0};
  std::atomic<std::uint64_t> passed_up_to_{0};
};

// A device over a TestBackend over the best CPU target with `threads` threads.
struct TestDevice {
  explicit TestDevice(int threads = 1);
  std::shared_ptr<TestBackend> backend;
  Device device;
};

}  // namespace pagekv::testing
