#include "pagekv/store.h"

#include <mutex>

#include "core/make_plan.h"
#include "core/reserve_step.h"
#include "core/store_core.h"

namespace pagekv::inline v0 {

using internal::guard_memory;
using internal::SequenceState;
using internal::StoreCore;

namespace {

constexpr std::int64_t kMaxSequenceTokens = std::int64_t{1} << 31;

Status check_options(const CacheLayout& layout, const StoreOptions& options) {
  if (options.max_sequence_tokens < 1 || options.max_sequence_tokens > kMaxSequenceTokens) {
    return fail(ErrorCode::invalid_argument, "a longest sequence of {0} tokens; legal are 1 to {1}",
                {options.max_sequence_tokens, kMaxSequenceTokens});
  }
  std::int64_t least_bytes = 0;
  for (int group = 0; group < layout.group_count(); ++group) {
    least_bytes += layout.group(group).page_bytes;
  }
  if (options.cap_bytes < least_bytes) {
    return fail(ErrorCode::invalid_argument,
                "a cap of {0} bytes; one page of every group needs {1} bytes",
                {options.cap_bytes, least_bytes});
  }
  return {};
}

}  // namespace

Reclaimer::~Reclaimer() = default;

Result<Store> Store::make(CacheLayout layout, Device device, StoreOptions options) {
  if (auto ok = check_options(layout, options); !ok) return tl::unexpected(ok.error());
  if (auto ok = device.backend().supports(layout); !ok) return tl::unexpected(ok.error());
  return guard_memory([&]() -> Result<Store> {
    auto core = std::make_shared<StoreCore>(std::move(layout), std::move(device), options);
    if (auto ok = core->reserve_arenas(); !ok) return tl::unexpected(ok.error());
    return Store(std::move(core));
  });
}

const CacheLayout& Store::layout() const {
  return core_->layout();
}
Device& Store::device() const {
  return core_->device();
}

Result<Sequence> Store::create_sequence() {
  return guard_memory(
      [&]() -> Result<Sequence> { return Sequence(std::make_shared<SequenceState>(core_)); });
}

Result<Sequence> Store::create_sequence(const View& prefix) {
  if (!prefix.valid()) return create_sequence();
  if (prefix.state()->store() != core_) {
    return fail(ErrorCode::wrong_store, "the prefix is a view of another store");
  }
  return guard_memory([&]() -> Result<Sequence> {
    auto sequence = std::make_shared<SequenceState>(core_);
    const std::lock_guard lock(core_->mutex());
    core_->share_prefix(*prefix.state(), prefix.length(), *sequence);
    return Sequence(std::move(sequence));
  });
}

Result<Step> Store::reserve(std::span<const Append> appends) {
  return guard_memory([&]() -> Result<Step> {
    auto state = internal::reserve_step(core_, appends);
    if (!state) return tl::unexpected(state.error());
    return Step(std::move(*state));
  });
}

Result<Plan> Store::plan(std::span<const QueryRows> rows, const AttendSpec& spec) {
  Plan plan;
  if (auto ok = replan(plan, rows, spec); !ok) return tl::unexpected(ok.error());
  return plan;
}

Status Store::replan(Plan& plan, std::span<const QueryRows> rows, const AttendSpec& spec) {
  return guard_memory([&]() -> Status {
    if (!plan.valid()) plan = Plan(std::make_unique<internal::PlanState>());
    return internal::make_plan(core_, rows, spec, *plan.state());
  });
}

std::int64_t Store::first(ViewRef view, int group) const {
  if (view.holder() == nullptr) return 0;
  return view.holder()->first(group);
}

Status Store::gather(ViewRef view, int layer, MutableRows k, MutableRows v, Stream stream) const {
  if (view.holder() == nullptr) return fail(ErrorCode::invalid_argument, "gather from no view");
  if (view.holder()->store() != core_) {
    return fail(ErrorCode::wrong_store, "gather from a view of another store");
  }
  if (layer < 0 || layer >= layout().layer_count()) {
    return fail(ErrorCode::invalid_argument, "layer {0} of a layout of {1} layers",
                {layer, layout().layer_count()});
  }
  const internal::PageTable& table = view.holder()->table(layout().layer(layer).group);
  const internal::ReadSpan span{.pages = table.pages.data(),
                                .begin = view.holder()->first(layout().layer(layer).group),
                                .end = view.length()};
  if (span.begin >= span.end) return {};
  if (k.data == nullptr || v.data == nullptr) {
    return fail(ErrorCode::invalid_argument, "gather needs room for keys and values");
  }
  core_->backend().gather(core_->address(layer), span, k, v, stream);
  return {};
}

void Store::set_reclaimer(const std::shared_ptr<Reclaimer>& reclaimer) {
  const std::lock_guard lock(core_->mutex());
  core_->reclaimer = reclaimer;
}

StoreStats Store::stats() const {
  StoreStats stats;
  std::shared_ptr<Reclaimer> reclaimer;
  {
    const std::lock_guard lock(core_->mutex());
    stats = core_->stats();
    reclaimer = core_->reclaimer.lock();
  }
  if (reclaimer) {
    for (int group = 0; group < layout().group_count(); ++group) {
      stats.groups[static_cast<std::size_t>(group)].pinned_pages = reclaimer->pages(group).pinned;
    }
  }
  return stats;
}

Status Store::check() const {
  return guard_memory([&]() -> Status {
    const std::lock_guard lock(core_->mutex());
    return core_->check();
  });
}

}  // namespace pagekv::inline v0
