// CpuBackend: the CPU device. Work runs inline on the executor's threads and is done on return.
//
// Immutable after construction, so safe on any thread.
#pragma once

#include <memory>
#include <string>

#include "core/backend.h"
#include "cpu/kernel_table.h"

namespace pagekv::inline v0::internal {

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, std::shared_ptr<Executor> executor, bool huge_pages);

  std::string name() const override;
  TileArrangement suggested_arrangement() const override { return TileArrangement::key_tile16; }
  Executor& executor() override { return *executor_; }
  Result<std::unique_ptr<Arena>> reserve_arena(std::int64_t bytes) override;
  Status supports(const CacheLayout& layout) const override;

  Fence record_fence() override { return {}; }
  bool passed(Fence) const override { return true; }

  void copy_rows(const LayerAddress& layer, PageId from, PageId to, std::int64_t rows,
                 Stream stream) override;
  void encode(const LayerAddress& layer, std::span<WriteSpan> spans, Rows k, Rows v,
              Stream stream) override;
  void gather(const LayerAddress& layer, const ReadSpan& span, MutableRows k, MutableRows v,
              Stream stream) override;

  void read_plane(const LayerAddress& layer, const ReadSpan& span, HeadPlane of,
                  std::byte* to) override;
  void write_plane(const LayerAddress& layer, const ReadSpan& span, HeadPlane of,
                   const std::byte* from) override;
  AttendCut attend_cut() const override;
  std::int64_t workspace_floats(const CacheLayout& layout, const PlanState& plan) const override;
  void attend(const LayerAddress& layer, PlanState& plan, const AttendArgs& args, float scale,
              Stream stream) override;

 private:
  const KernelTable* kernels_;
  std::shared_ptr<Executor> executor_;
  bool huge_pages_;
};

}  // namespace pagekv::inline v0::internal
