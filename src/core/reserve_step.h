// Making a step: validate, reserve all or nothing, ask the reclaimer when pages are short.
#pragma once

#include <memory>
#include <span>

#include "core/step_state.h"
#include "core/store_core.h"
#include "pagekv/step.h"

namespace pagekv::inline v0::internal {

Result<std::unique_ptr<StepState>> reserve_step(const std::shared_ptr<StoreCore>& core,
                                                std::span<const Append> appends);

}  // namespace pagekv::inline v0::internal
