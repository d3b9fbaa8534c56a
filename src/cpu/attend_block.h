// One block of rows of one sequence, all query heads of one KV head, through the pages.
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
  bool integers = false;  // Arithmetic::fast: affine codes are attended as integers

  // The partial state of a slot and query head: value_dim values, then max, then sum.
  float* partial(std::int64_t slot, std::int64_t query_head) const {
    return plan.workspace.data() +
           (slot * plan.spec.query_heads + query_head) * (shape.value_dim + 2);
  }
};

// Everything of `item` that concerns `kv_head`: writes outputs, or partial states where the item is
// part of a split.
void attend_item(const AttendCall& call, const WorkItem& item, std::int64_t kv_head,
                 AttendScratch& scratch);

// Folds the partial states of a split's rows for one query head, and writes outputs.
void merge_item(const AttendCall& call, const MergeItem& merge, std::int64_t query_head,
                AttendScratch& scratch);

}  // namespace pagekv::inline v0::internal
