#include "pagekv/view.h"

#include "core/store_core.h"

namespace pagekv::inline v0 {

std::int64_t View::length() const {
  return state_ ? state_->length : 0;
}

std::int64_t View::first(int group) const {
  if (!state_) return 0;
  return state_->first(group);
}

ViewRef View::ref() const& {
  return {state_.get(), length()};
}

}  // namespace pagekv::inline v0
