#include "pagekv/attend.h"

#include <cmath>

#include "core/plan.h"
#include "core/store_core.h"

namespace pagekv::inline v0 {

using internal::PlanState;
using internal::StoreCore;

namespace {

Status check_block(const AttendSpec& spec, const AttendArgs& args, int layer) {
  if (spec.mask != Mask::block) {
    if (args.block_k.data == nullptr && args.block_v.data == nullptr) return {};
    return fail(ErrorCode::invalid_argument,
                "rows of a block for layer {0}; the plan is no block read", {layer});
  }
  if (args.block_k.data == nullptr || args.block_v.data == nullptr) {
    return fail(ErrorCode::invalid_argument, "null keys or values of the block for layer {0}",
                {layer});
  }
  return {};
}

}  // namespace

Plan::Plan() = default;
Plan::Plan(std::unique_ptr<PlanState> state) : state_(std::move(state)) {}
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

std::int64_t Plan::rows() const {
  return state_ && state_->store ? state_->total_rows : 0;
}

Status Plan::run(int layer, const AttendArgs& args, Stream stream) {
  if (!state_ || !state_->store) {
    return fail(ErrorCode::invalid_argument, "this plan was never made, or making it failed");
  }
  StoreCore& core = *state_->store;
  const AttendSpec& spec = state_->spec;
  if (layer < 0 || layer >= core.layout().layer_count() ||
      core.layout().layer(layer).group != spec.group) {
    return fail(ErrorCode::invalid_argument, "layer {0} is not in group {1}, which the plan is for",
                {layer, spec.group});
  }
  const LayerSpec& shape = core.layout().layer(layer).spec;
  if (spec.query_heads % shape.kv_heads != 0) {
    return fail(ErrorCode::invalid_argument,
                "{0} query heads cannot share the {1} KV heads of layer {2} evenly",
                {spec.query_heads, shape.kv_heads, layer});
  }
  if (state_->total_rows == 0) return {};
  if (args.q.data == nullptr || args.out.data == nullptr) {
    return fail(ErrorCode::invalid_argument, "null queries or output for layer {0}", {layer});
  }
  if (auto ok = check_block(spec, args, layer); !ok) return ok;
  const float scale =
      spec.scale != 0.0f ? spec.scale : 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
  core.backend().attend(core.address(layer), *state_, args, scale, stream);
  return {};
}

}  // namespace pagekv::inline v0
