// Making a plan: validate the views and the spec, resolve the window, cut the work.
#pragma once

#include <memory>
#include <span>

#include "core/plan.h"
#include "pagekv/attend.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::internal {

Status make_plan(const std::shared_ptr<StoreCore>& core, std::span<const QueryRows> rows,
                 const AttendSpec& spec, PlanState& plan);

}  // namespace pagekv::inline v0::internal
