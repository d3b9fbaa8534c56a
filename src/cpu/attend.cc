// Attend: a plan's items, KV heads and merges as tasks for the executor.
#include <algorithm>

#include "cpu/attend_block.h"
#include "cpu/attend_gathered.h"
#include "cpu/backend.h"
#include "cpu/block_tail.h"

namespace pagekv::inline v0::internal {

namespace {

std::int64_t partial_floats(const PlanState& plan, std::int64_t value_dim) {
  return plan.partial_slots * plan.spec.query_heads * (value_dim + 2);
}

std::int64_t longest_view(const PlanState& plan) {
  std::int64_t longest = 0;
  for (const PlanSequence& sequence : plan.sequences) longest = std::max(longest, sequence.end());
  return longest;
}

std::int64_t worker_floats(const KernelTable& kernels, const PlanState& plan,
                           const HeadShape& shape) {
  return plan.spec.arm == ReadArm::gathered ? gathered_floats(longest_view(plan), shape)
                                            : AttendScratch::floats(kernels, shape);
}

// Calls attend(task, scratch) for every task, each worker with scratch of its own.
template <typename Attend>
void run_tasks(const AttendCall& call, Executor& executor, float* scratch,
               std::int64_t scratch_floats, std::size_t tasks, std::int64_t heads, Attend attend) {
  if (tasks == 0) return;
  const auto run = [&](int worker, std::int64_t task) {
    AttendScratch mine =
        AttendScratch::carve(call.kernels, call.shape, scratch + worker * scratch_floats);
    attend(static_cast<std::size_t>(task / heads), task % heads, mine);
  };
  executor.parallel_for(static_cast<std::int64_t>(tasks) * heads, run);
}

void run_direct(const AttendCall& call, Executor& executor, float* scratch,
                std::int64_t scratch_floats) {
  const PlanState& plan = call.plan;
  const std::int64_t kv_heads = call.layer.kv_heads;
  const auto run = [&](std::size_t tasks, std::int64_t heads, auto attend) {
    run_tasks(call, executor, scratch, scratch_floats, tasks, heads, attend);
  };
  if (plan.spec.mask == Mask::block) {
    run(plan.sequences.size(), kv_heads, [&](std::size_t at, std::int64_t head, auto& mine) {
      fill_tail(call, plan.sequences[at], head, mine);
    });
  }
  run(plan.shared_items.size(), kv_heads, [&](std::size_t at, std::int64_t head, auto& mine) {
    attend_shared(call, plan.shared_items[at], head, mine);
  });
  run(plan.items.size(), kv_heads, [&](std::size_t at, std::int64_t head, auto& mine) {
    attend_item(call, plan.items[at], head, mine);
  });
  run(plan.merges.size(), plan.spec.query_heads,
      [&](std::size_t at, std::int64_t head, auto& mine) {
        merge_item(call, plan.merges[at], head, mine);
      });
}

void run_gathered(const AttendCall& call, Executor& executor, float* scratch,
                  std::int64_t scratch_floats) {
  const std::int64_t kv_heads = call.layer.kv_heads;
  const auto run_head = [&](int worker, std::int64_t task) {
    attend_gathered(call, call.plan.sequences[static_cast<std::size_t>(task / kv_heads)],
                    task % kv_heads, scratch + worker * scratch_floats);
  };
  executor.parallel_for(static_cast<std::int64_t>(call.plan.sequences.size()) * kv_heads, run_head);
}

}  // namespace

AttendCut CpuBackend::attend_cut() const {
  return {.chunk_tokens = kChunkTokens, .rows_per_item = kRowsPerItem};
}

std::int64_t CpuBackend::workspace_floats(const CacheLayout& layout, const PlanState& plan) const {
  std::int64_t most = 0;
  for (const int index : layout.group(plan.spec.group).layers) {
    const LayerSpec& spec = layout.layer(index).spec;
    if (plan.spec.query_heads % spec.kv_heads != 0) continue;  // run() refuses this layer
    const HeadShape shape{spec.key_dim, spec.value_dim, plan.spec.query_heads / spec.kv_heads};
    most = std::max(most, partial_floats(plan, shape.value_dim) +
                              tail_floats(plan, spec.kv_heads, shape) +
                              executor_->threads() * worker_floats(*kernels_, plan, shape));
  }
  return most;
}

void CpuBackend::attend(const LayerAddress& layer, PlanState& plan, const AttendArgs& args,
                        float scale, Stream) {
  const HeadShape shape{layer.key_dim, layer.value_dim, plan.spec.query_heads / layer.kv_heads};
  float* tails = plan.workspace.data() + partial_floats(plan, layer.value_dim);
  const AttendCall call{
      .kernels = *kernels_,
      .layer = layer,
      .plan = plan,
      .args = args,
      .shape = shape,
      .key_side = side_shape(layer.format.k, layer.k, layer.key_dim),
      .value_side = side_shape(layer.format.v, layer.v, layer.value_dim),
      .map = {.scale = scale, .softcap = plan.spec.logit_softcap},
      .integers = plan.spec.arithmetic == Arithmetic::fast,
      .tails = tails,
  };
  float* scratch = tails + tail_floats(plan, layer.kv_heads, shape);
  const std::int64_t scratch_floats = worker_floats(*kernels_, plan, call.shape);
  if (plan.spec.arm == ReadArm::gathered) {
    run_gathered(call, *executor_, scratch, scratch_floats);
  } else {
    run_direct(call, *executor_, scratch, scratch_floats);
  }
}

}  // namespace pagekv::inline v0::internal
