#include "core/step_state.h"

#include <mutex>

#include "core/store_core.h"

namespace pagekv::inline v0::internal {

void retire_step(std::unique_ptr<StepState> step) {
  const std::shared_ptr<StoreCore> store = std::move(step->store);
  {
    const std::lock_guard lock(store->mutex());
    for (int index = 0; index < step->count; ++index) {
      step->entry(index).sequence->live_step = nullptr;
      step->entry(index).sequence->reserved_tokens = 0;
    }
    std::erase(store->live_steps, step.get());
  }
  for (int index = 0; index < step->count; ++index) {
    step->entry(index).sequence.reset();
    step->entry(index).failure.reset();
  }
  step->count = 0;
  step->reserved = false;
  const std::lock_guard lock(store->mutex());
  store->give_step_state(std::move(step));
}

}  // namespace pagekv::inline v0::internal
