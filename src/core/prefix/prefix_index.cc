#include "pagekv/prefix_index.h"

#include "core/prefix/index_state.h"

namespace pagekv::inline v0 {

using internal::guard_memory;
using internal::PrefixIndexState;
using internal::PrefixPinState;
using internal::PrefixRequestState;
using internal::PrefixSpace;

namespace {

Status check_space(const PrefixIndexState& index, const PrefixNamespace& space) {
  if (!space.valid()) return fail(ErrorCode::invalid_argument, "an empty namespace handle");
  if (space.state()->index() != &index) {
    return fail(ErrorCode::invalid_argument, "the namespace is one of another index");
  }
  return {};
}

// Runs `body` on the namespace, once it is known to be one of this index.
template <typename Body>
auto in_space(PrefixIndexState& index, const PrefixNamespace& space, Body body)
    -> decltype(body(*space.state())) {
  if (auto ok = check_space(index, space); !ok) return tl::unexpected(ok.error());
  return guard_memory([&] { return body(*space.state()); });
}

Result<std::span<const TokenId>> without_last(std::span<const TokenId> tokens,
                                              const MatchOptions& options) {
  const auto size = static_cast<std::int64_t>(tokens.size());
  if (options.leave_tokens < 0) {
    return fail(ErrorCode::invalid_argument, "cannot leave {0} tokens", {options.leave_tokens});
  }
  return tokens.first(
      static_cast<std::size_t>(std::max<std::int64_t>(0, size - options.leave_tokens)));
}

}  // namespace

PageSink::~PageSink() = default;

const Digest& PrefixNamespace::digest() const {
  return state_->digest();
}

PrefixPin::PrefixPin() = default;
PrefixPin::PrefixPin(std::unique_ptr<PrefixPinState> state) : state_(std::move(state)) {}
PrefixPin::~PrefixPin() = default;
PrefixPin::PrefixPin(PrefixPin&&) noexcept = default;
PrefixPin& PrefixPin::operator=(PrefixPin&&) noexcept = default;

std::int64_t PrefixPin::tokens() const {
  return state_ ? state_->tokens : 0;
}

PrefixRequest::PrefixRequest() = default;
PrefixRequest::PrefixRequest(std::unique_ptr<PrefixRequestState> state)
    : state_(std::move(state)) {}
PrefixRequest::~PrefixRequest() = default;
PrefixRequest::PrefixRequest(PrefixRequest&&) noexcept = default;
PrefixRequest& PrefixRequest::operator=(PrefixRequest&&) noexcept = default;

bool PrefixRequest::poll() {
  return !state_ || state_->index->poll(*state_);
}

Result<PrefixIndex> PrefixIndex::make(const Store& store, PrefixIndexOptions options) {
  if (options.max_events < 0) {
    return fail(ErrorCode::invalid_argument, "room for {0} events", {options.max_events});
  }
  return guard_memory([&]() -> Result<PrefixIndex> {
    auto state = std::make_shared<PrefixIndexState>(store.core(), std::move(options));
    Store(store).set_reclaimer(state);
    return PrefixIndex(std::move(state));
  });
}

Result<PrefixNamespace> PrefixIndex::open(const NamespaceSpec& spec) {
  return guard_memory(
      [&]() -> Result<PrefixNamespace> { return PrefixNamespace(state_->open(spec)); });
}

Result<Sequence> PrefixIndex::match(const PrefixNamespace& space, std::span<const TokenId> tokens,
                                    MatchOptions options) {
  const auto wanted = without_last(tokens, options);
  if (!wanted) return tl::unexpected(wanted.error());
  return in_space(*state_, space, [&](PrefixSpace& in) { return state_->match(in, *wanted); });
}

Result<std::int64_t> PrefixIndex::peek(const PrefixNamespace& space,
                                       std::span<const TokenId> tokens,
                                       MatchOptions options) const {
  const auto wanted = without_last(tokens, options);
  if (!wanted) return tl::unexpected(wanted.error());
  return in_space(*state_, space, [&](PrefixSpace& in) -> Result<std::int64_t> {
    return state_->peek(in, *wanted);
  });
}

Result<std::int64_t> PrefixIndex::insert(const PrefixNamespace& space,
                                         std::span<const TokenId> tokens, const Sequence& sequence,
                                         InsertOptions options) {
  if (options.priority < 0 || options.priority >= kPrefixPriorities) {
    return fail(ErrorCode::invalid_argument, "priority {0}; legal are 0 to {1}",
                {options.priority, kPrefixPriorities - 1});
  }
  return in_space(*state_, space, [&](PrefixSpace& in) {
    return state_->insert(in, tokens, sequence, options.priority);
  });
}

Result<PrefixPin> PrefixIndex::pin(const PrefixNamespace& space, std::span<const TokenId> tokens) {
  return in_space(*state_, space, [&](PrefixSpace& in) -> Result<PrefixPin> {
    return PrefixPin(state_->pin(in, tokens));
  });
}

Result<PrefixRequest> PrefixIndex::request(const PrefixNamespace& space,
                                           std::span<const TokenId> tokens) {
  return in_space(*state_, space, [&](PrefixSpace&) -> Result<PrefixRequest> {
    auto request = std::make_unique<PrefixRequestState>();
    request->index = state_;
    request->space = space.state();
    request->tokens.assign(tokens.begin(), tokens.end());
    return PrefixRequest(std::move(request));
  });
}

void PrefixIndex::invalidate(const PrefixNamespace& space) {
  if (check_space(*state_, space)) state_->invalidate(*space.state());
}

void PrefixIndex::clear() {
  state_->clear();
}

Result<std::vector<Digest>> PrefixIndex::digests(const PrefixNamespace& space,
                                                 std::span<const TokenId> tokens) const {
  return in_space(*state_, space, [&](PrefixSpace& in) -> Result<std::vector<Digest>> {
    return internal::page_digests(in.digest(), tokens, state_->page_tokens());
  });
}

PrefixStats PrefixIndex::stats() const {
  return state_->stats();
}

PrefixStats PrefixIndex::stats(const PrefixNamespace& space) const {
  return check_space(*state_, space) ? state_->stats(*space.state()) : PrefixStats{};
}

std::vector<PrefixEvent> PrefixIndex::take_events() {
  return state_->take_events();
}

Status PrefixIndex::check() const {
  return guard_memory([&] { return state_->check(); });
}

}  // namespace pagekv::inline v0
