#include "pagekv/sequence.h"

#include <mutex>

#include "core/store_core.h"

namespace pagekv::inline v0 {

using internal::guard_memory;
using internal::SequenceState;
using internal::StoreCore;
using internal::ViewState;

namespace {

Status check_length(const char* text, std::int64_t tokens, std::int64_t length) {
  if (tokens >= 0 && tokens <= length) return {};
  return fail(ErrorCode::invalid_argument, text, {tokens, length});
}

}  // namespace

Sequence::Sequence(std::shared_ptr<SequenceState> state) : state_(std::move(state)) {}
Sequence::~Sequence() = default;
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;

std::int64_t Sequence::length() const {
  return state_ ? state_->length : 0;
}

std::int64_t Sequence::first(int group) const {
  if (!state_) return 0;
  return state_->first(group);
}

ViewRef Sequence::ref() const& {
  return {state_.get(), length()};
}

Result<Sequence> Sequence::fork() const {
  if (!state_) return fail(ErrorCode::invalid_argument, "an empty sequence handle has no fork");
  return guard_memory([&]() -> Result<Sequence> {
    auto child = std::make_shared<SequenceState>(state_->store());
    StoreCore& core = *state_->store();
    const std::lock_guard lock(core.mutex());
    core.share_prefix(*state_, state_->length, *child);
    return Sequence(std::move(child));
  });
}

Status Sequence::truncate(std::int64_t tokens) {
  if (!state_) return fail(ErrorCode::invalid_argument, "an empty sequence handle has no tokens");
  StoreCore& core = *state_->store();
  const std::lock_guard lock(core.mutex());
  if (state_->live_step != nullptr) {
    return fail(ErrorCode::busy, "a sequence cannot be truncated while it is in a live step");
  }
  if (auto ok = check_length("cannot truncate to {0} tokens a sequence of {1}", tokens, length());
      !ok) {
    return ok;
  }
  if (auto ok = core.prefix_kept(*state_, tokens); !ok) return ok;
  for (int group = 0; group < state_->groups(); ++group) {
    core.shrink(group, state_->table(group), core.pages_over(tokens));
  }
  state_->length = tokens;
  return {};
}

Result<View> Sequence::publish(std::int64_t tokens) const {
  if (!state_) return fail(ErrorCode::invalid_argument, "an empty sequence handle has no tokens");
  if (auto ok = check_length("cannot publish {0} tokens of a sequence of {1}", tokens, length());
      !ok) {
    return tl::unexpected(ok.error());
  }
  return guard_memory([&]() -> Result<View> {
    auto view = std::make_shared<ViewState>(state_->store(), tokens);
    StoreCore& core = *state_->store();
    const std::lock_guard lock(core.mutex());
    if (auto ok = core.prefix_kept(*state_, tokens); !ok) return tl::unexpected(ok.error());
    core.share_prefix(*state_, tokens, *view);
    return View(std::move(view));
  });
}

}  // namespace pagekv::inline v0
