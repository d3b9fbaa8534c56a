#include "pagekv/page_tier.h"

#include <utility>

#include "core/prefix/space.h"
#include "io/pages/page_fetch.h"
#include "io/pages/page_tier_state.h"

namespace pagekv::inline v0 {

using internal::guard_memory;
using internal::PageFetchState;
using internal::PageTierState;

namespace {

const Status& no_error() {
  static const Status ok;
  return ok;
}

}  // namespace

PageFetch::PageFetch() = default;
PageFetch::PageFetch(std::unique_ptr<PageFetchState> state) : state_(std::move(state)) {}
PageFetch::~PageFetch() = default;
PageFetch::PageFetch(PageFetch&&) noexcept = default;
PageFetch& PageFetch::operator=(PageFetch&&) noexcept = default;

bool PageFetch::poll() {
  return !state_ || state_->poll();
}

bool PageFetch::wait(std::chrono::steady_clock::time_point until) {
  return !state_ || state_->wait(until);
}

const Status& PageFetch::status() const {
  return state_ ? state_->status() : no_error();
}

std::int64_t PageFetch::tokens() const {
  return state_ ? state_->fetched_tokens() : 0;
}

Result<PageTier> PageTier::make(const Store& store, std::shared_ptr<Tier> tier,
                                PageTierOptions options) {
  if (!tier) return fail(ErrorCode::invalid_argument, "no tier to put pages in");
  if (options.batch_bytes <= 0) {
    return fail(ErrorCode::invalid_argument, "{0} bytes for a batch of pages; 1 at least",
                {options.batch_bytes});
  }
  return guard_memory([&]() -> Result<PageTier> {
    return PageTier(std::make_shared<PageTierState>(store.core(), std::move(tier), options));
  });
}

std::shared_ptr<PageSink> PageTier::sink() const {
  return std::make_shared<internal::TierSink>(state_);
}

Status PageTier::attach(const PrefixNamespace& space) {
  if (!space.valid()) return fail(ErrorCode::invalid_argument, "an empty namespace handle");
  return guard_memory([&] { return state_->names().attach(*space.state()); });
}

Result<PageFetch> PageTier::fetch(const PrefixIndex& index, const PrefixNamespace& space,
                                  std::span<const TokenId> tokens, FetchOptions options) {
  return guard_memory([&]() -> Result<PageFetch> {
    auto fetch = std::make_unique<PageFetchState>(state_, index, space, tokens, options);
    if (auto ok = fetch->begin(); !ok) return tl::unexpected(ok.error());
    return PageFetch(std::move(fetch));
  });
}

Result<std::int64_t> PageTier::store(const PrefixNamespace& space, std::span<const TokenId> tokens,
                                     ViewRef view) {
  if (!space.valid()) return fail(ErrorCode::invalid_argument, "an empty namespace handle");
  if (view.holder() == nullptr) return fail(ErrorCode::invalid_argument, "no view to store");
  if (view.holder()->store() != state_->core()) {
    return fail(ErrorCode::wrong_store, "the view is of another store");
  }
  if (static_cast<std::int64_t>(tokens.size()) < view.length()) {
    return fail(ErrorCode::invalid_argument, "{0} tokens for a view of {1}",
                {static_cast<std::int64_t>(tokens.size()), view.length()});
  }
  return guard_memory([&] {
    const auto computed = tokens.first(static_cast<std::size_t>(view.length()));
    return state_->store(*space.state(), computed, *view.holder());
  });
}

bool PageTier::flush(std::chrono::steady_clock::time_point until) {
  return state_->flush(until);
}

Tier& PageTier::tier() const {
  return state_->tier();
}

PageTierStats PageTier::stats() const {
  return state_->stats();
}

}  // namespace pagekv::inline v0
