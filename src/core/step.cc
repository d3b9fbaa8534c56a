#include "pagekv/step.h"

#include <cassert>
#include <mutex>

#include "core/reservation.h"
#include "core/step_state.h"
#include "core/store_core.h"

namespace pagekv::inline v0 {

using internal::StepEntry;
using internal::StepState;
using internal::StoreCore;

namespace {

Status check_counts(const StepState& step, std::span<const std::int64_t> counts) {
  if (static_cast<int>(counts.size()) != step.count) {
    return fail(ErrorCode::invalid_argument, "{0} counts for a step of {1} sequences",
                {static_cast<std::int64_t>(counts.size()), step.count});
  }
  for (int entry = 0; entry < step.count; ++entry) {
    const std::int64_t count = counts[static_cast<std::size_t>(entry)];
    if (count < 0 || count > step.entry(entry).tokens) {
      return fail(ErrorCode::invalid_argument,
                  "cannot commit {1} tokens of sequence {0}; it has {2} in this step",
                  {entry, count, step.entry(entry).tokens});
    }
  }
  return {};
}

Status check_written(const StepState& step) {
  const CacheLayout& layout = step.store->layout();
  for (int layer = 0; layer < layout.layer_count(); ++layer) {
    if (layout.layer(layer).storage_layer == layer &&
        !step.written[static_cast<std::size_t>(layer)]) {
      return fail(ErrorCode::incomplete_step, "layer {0} was not written in this step", {layer});
    }
  }
  return {};
}

// Ends a step: count_of(entry index) rows of each entry become visible.
template <typename CountOf>
void finish(std::unique_ptr<StepState> state, CountOf count_of) {
  {
    const std::lock_guard lock(state->store->mutex());
    for (int index = 0; index < state->count; ++index) {
      internal::keep_rows(*state->store, state->entry(index), count_of(index));
      state->entry(index).sequence->reserved_tokens = 0;
    }
    state->reserved = false;
  }
  internal::retire_step(std::move(state));
}

}  // namespace

Step::Step() = default;
Step::Step(std::unique_ptr<StepState> state) : state_(std::move(state)) {}
Step::~Step() {
  drop();
}
Step::Step(Step&&) noexcept = default;

Step& Step::operator=(Step&& other) noexcept {
  if (this != &other) {
    drop();
    state_ = std::move(other.state_);
  }
  return *this;
}

int Step::size() const {
  return state_ ? state_->count : 0;
}
std::int64_t Step::tokens(int index) const {
  assert(index >= 0 && index < size());
  return state_->entry(index).tokens;
}
std::int64_t Step::rows() const {
  return state_ ? state_->rows : 0;
}

ViewRef Step::view(int index) const {
  assert(index >= 0 && index < size());
  const StepEntry& entry = state_->entry(index);
  return {entry.sequence.get(), entry.sequence->reserved_length()};
}

const Error* Step::failure(int index) const {
  assert(index >= 0 && index < size());
  const StepEntry& entry = state_->entry(index);
  return entry.failure ? &*entry.failure : nullptr;
}

Status Step::write(int layer, Rows k, Rows v, Stream stream) {
  if (!state_) return fail(ErrorCode::invalid_argument, "an empty step takes no rows");
  const CacheLayout& layout = state_->store->layout();
  if (layer < 0 || layer >= layout.layer_count()) {
    return fail(ErrorCode::invalid_argument, "layer {0} of a layout of {1} layers",
                {layer, layout.layer_count()});
  }
  const LayerLayout& target = layout.layer(layer);
  if (target.storage_layer != layer) {
    return fail(ErrorCode::invalid_argument,
                "layer {0} reads the pages of layer {1} and cannot be written",
                {layer, target.storage_layer});
  }
  if (k.data == nullptr || v.data == nullptr) {
    return fail(ErrorCode::invalid_argument, "null keys or values for layer {0}", {layer});
  }
  for (int index = 0; index < state_->count; ++index) {
    const StepEntry& entry = state_->entry(index);
    state_->spans[static_cast<std::size_t>(index)] = {
        .pages = entry.sequence->table(target.group).pages.data(),
        .position = entry.sequence->length,
        .tokens = entry.tokens};
  }
  const std::span spans(state_->spans.data(), static_cast<std::size_t>(state_->count));
  state_->store->backend().encode(state_->store->address(layer), spans, k, v, stream);
  for (int index = 0; index < state_->count; ++index) {
    const std::int64_t bad = spans[static_cast<std::size_t>(index)].bad_token;
    if (bad < 0 || state_->entry(index).failure) continue;
    state_->entry(index).failure.emplace(
        ErrorCode::not_finite,
        "layer {0}, sequence {1}, token {2}: a key or value is not finite in the page's format",
        std::initializer_list<std::int64_t>{layer, index, bad});
  }
  state_->written[static_cast<std::size_t>(layer)] = 1;
  return {};
}

Result<CommitResult> Step::commit() {
  return commit_rows(nullptr);
}

Result<CommitResult> Step::commit(std::span<const std::int64_t> counts) {
  if (state_) {
    if (auto ok = check_counts(*state_, counts); !ok) return tl::unexpected(ok.error());
  }
  return commit_rows(counts.data());
}

Result<CommitResult> Step::commit_rows(const std::int64_t* counts) {
  if (!state_) return fail(ErrorCode::invalid_argument, "an empty step has nothing to commit");
  if (auto ok = check_written(*state_); !ok) return tl::unexpected(ok.error());
  CommitResult result;
  for (int index = 0; index < state_->count; ++index) {
    ++(state_->entry(index).failure ? result.failed : result.committed);
  }
  const StepState& state = *state_;
  finish(std::move(state_), [&](int index) -> std::int64_t {
    const StepEntry& entry = state.entry(index);
    if (entry.failure) return 0;
    return counts == nullptr ? entry.tokens : counts[index];
  });
  return result;
}

void Step::drop() {
  if (state_) finish(std::move(state_), [](int) { return std::int64_t{0}; });
}

}  // namespace pagekv::inline v0
