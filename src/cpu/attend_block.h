// One block of rows, all query heads of one KV head, through the pages.
//
// Rows take the same arithmetic whatever block they are in: for each span, logits, max, p and sum,
// p times values; span states fold left into the chunk's, chunk states into the row's; then the
// sink, then the division. The two loop nests differ only in how often a key or value is loaded and
// widened.
#pragma once

#include "core/backend.h"
#include "cpu/attend_scratch.h"
#include "cpu/kernel_table.h"

namespace pagekv::inline v0::internal {

// One call of Backend::attend, shared by all workers.
struct AttendCall {
  const KernelTable& kernels;
  const LayerAddress& layer;
  PlanState& plan;
  const AttendArgs& args;
  HeadShape shape;
  SideShape key_side;
  SideShape value_side;
  LogitMap map;
  bool integers = false;   // Arithmetic::fast: affine codes are attended as integers
  float* tails = nullptr;  // of a block read (cpu/block_tail.h)

  // The same call on other pages.
  AttendCall on(const LayerAddress& other) const {
    return {.kernels = kernels,
            .layer = other,
            .plan = plan,
            .args = args,
            .shape = shape,
            .key_side = side_shape(other.format.k, other.k, shape.key_dim),
            .value_side = side_shape(other.format.v, other.v, shape.value_dim),
            .map = map,
            .integers = integers,
            .tails = tails};
  }

  // The partial state of a slot and query head: value_dim values, then max, then sum.
  float* partial(std::int64_t slot, std::int64_t query_head) const {
    return plan.workspace.data() +
           (slot * plan.spec.query_heads + query_head) * (shape.value_dim + 2);
  }
};

// Rows that share a prefix through chunks of it: writes partial states.
void attend_shared(const AttendCall& call, const SharedItem& item, std::int64_t kv_head,
                   AttendScratch& scratch);

// Everything of `item` that concerns `kv_head`: writes outputs, or partial states where the item is
// part of a split.
void attend_item(const AttendCall& call, const WorkItem& item, std::int64_t kv_head,
                 AttendScratch& scratch);

// Folds the partial states of a split's rows for one query head, and writes outputs.
void merge_item(const AttendCall& call, const MergeItem& merge, std::int64_t query_head,
                AttendScratch& scratch);

}  // namespace pagekv::inline v0::internal
