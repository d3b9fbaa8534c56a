#include "core/make_plan.h"

#include <algorithm>
#include <cmath>

#include "core/plan_mask.h"
#include "core/share_prefixes.h"
#include "core/store_core.h"

namespace pagekv::inline v0::internal {

namespace {

bool knows_window(Mask mask) {
  return mask == Mask::causal || mask == Mask::local;
}

Status check_spec(const CacheLayout& layout, const AttendSpec& spec) {
  if (spec.group < 0 || spec.group >= layout.group_count()) {
    return fail(ErrorCode::invalid_argument, "group {0} of a layout of {1} groups",
                {spec.group, layout.group_count()});
  }
  if (spec.query_heads < 1) {
    return fail(ErrorCode::invalid_argument, "{0} query heads; at least 1 is legal",
                {spec.query_heads});
  }
  if (!std::isfinite(spec.scale) || !std::isfinite(spec.logit_softcap) ||
      spec.logit_softcap < 0.0f) {
    return fail(ErrorCode::invalid_argument,
                "scale must be finite, logit_softcap finite and at least 0");
  }
  if (spec.window_tokens < kLayerWindow) {
    return fail(ErrorCode::invalid_argument,
                "a window of {0} tokens; legal are positive ones, 0 for none, -1 for the group's",
                {spec.window_tokens});
  }
  if (!knows_window(spec.mask) && spec.window_tokens > 0) {
    return fail(ErrorCode::invalid_argument,
                "a window of {0} tokens needs the causal or the local mask", {spec.window_tokens});
  }
  return {};
}

// The other masks say all themselves, also in a window group.
std::int64_t resolve_window(const CacheLayout& layout, const AttendSpec& spec) {
  if (!knows_window(spec.mask)) return 0;
  return spec.window_tokens == kLayerWindow ? layout.group(spec.group).window_tokens
                                            : spec.window_tokens;
}

Status check_query(const StoreCore& core, const AttendSpec& spec, const QueryRows& query,
                   std::int64_t index) {
  if (query.view.holder() == nullptr) {
    return fail(ErrorCode::invalid_argument, "entry {0} of the plan has no view", {index});
  }
  if (query.view.holder()->store().get() != &core) {
    return fail(ErrorCode::wrong_store, "entry {0} of the plan is a view of another store",
                {index});
  }
  const std::int64_t most = core.options().max_sequence_tokens;
  if (query.rows < 1 || query.rows > most) {
    return fail(ErrorCode::invalid_argument,
                "entry {0} of the plan has {1} rows; legal are 1 to {2}",
                {index, query.rows, most});
  }
  return check_mask(spec, query, index);
}

// Every token that a row sees is still kept.
Status check_window(const PlanState& plan, const PlanSequence& sequence, std::int64_t first,
                    std::int64_t index) {
  const TokenRange seen = plan.visible_rows(sequence, 0, sequence.rows);
  if (seen.begin < seen.end && seen.begin < first) {
    return fail(ErrorCode::window_lost,
                "entry {2} of the plan sees tokens from {0} on, its pages start at token {1}",
                {seen.begin, first, index});
  }
  return {};
}

int smallest_kv_heads(const CacheLayout& layout, int group) {
  int heads = layout.layer(layout.group(group).layers.front()).spec.kv_heads;
  for (const int layer : layout.group(group).layers) {
    heads = std::min(heads, layout.layer(layer).spec.kv_heads);
  }
  return heads;
}

}  // namespace

Status make_plan(const std::shared_ptr<StoreCore>& core, std::span<const QueryRows> rows,
                 const AttendSpec& spec, PlanState& plan) {
  const CacheLayout& layout = core->layout();
  plan.store.reset();  // until it is whole again, run() refuses it
  if (auto ok = check_spec(layout, spec); !ok) return ok;
  plan.spec = spec;
  plan.window_tokens = resolve_window(layout, spec);
  plan.total_rows = 0;
  plan.sequences.clear();
  clear_masks(plan);
  for (const QueryRows& query : rows) {
    const auto index = static_cast<std::int64_t>(plan.sequences.size());
    if (auto ok = check_query(*core, spec, query, index); !ok) return ok;
    const PageHolder& holder = *query.view.holder();
    PlanSequence sequence{.pages = holder.table(spec.group).pages.data(),
                          .length = query.view.length(),
                          .rows = query.rows,
                          .first_row = plan.total_rows};
    if (spec.mask == Mask::block) sequence.block_tokens = query.rows;
    add_mask(plan, sequence, query);
    if (auto ok = check_window(plan, sequence, holder.first(spec.group), index); !ok) return ok;
    plan.sequences.push_back(sequence);
    plan.total_rows += query.rows;
  }
  Backend& backend = core->backend();
  share_prefixes(plan, backend.attend_cut(), layout.page_tokens());
  cut_work(plan, backend.attend_cut(), backend.executor().threads(),
           smallest_kv_heads(layout, spec.group));
  const std::int64_t floats = backend.workspace_floats(layout, plan);
  if (static_cast<std::int64_t>(plan.workspace.size()) < floats) {
    plan.workspace.resize(static_cast<std::size_t>(floats));
  }
  plan.store = core;
  return {};
}

}  // namespace pagekv::inline v0::internal
