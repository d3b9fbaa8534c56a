#include "io/pages/space_names.h"

#include <cstring>
#include <random>
#include <utility>

#include "core/prefix/space.h"

namespace pagekv::inline v0::internal {

namespace {

Epoch random_epoch() {
  std::random_device device;
  Epoch epoch;
  for (std::byte& byte : epoch) byte = static_cast<std::byte>(device());
  return epoch;
}

Status no_answer(const TierAnswer& answer) {
  return fail(ErrorCode::io_error, "the tier did not answer: {s}", {answer.system_error},
              name(answer.outcome));
}

}  // namespace

SpaceNames::~SpaceNames() {
  for (const auto& [space, name] : names_) {
    const Digest key = epoch_key(space);
    tier_->unpin({&key, 1});
  }
}

// What another process stored first counts; a tier that cannot be written serves what it has.
Status SpaceNames::attach(const PrefixSpace& space) {
  if (find(space)) return {};
  if (auto ok = write_pending(space.digest()); !ok) return ok;
  auto stored = read(space.digest());
  if (!stored) return tl::unexpected(stored.error());
  if (!*stored) {
    if (auto ok = write(space.digest(), random_epoch(), false); !ok) return ok;
    stored = read(space.digest());
    if (!stored) return tl::unexpected(stored.error());
  }
  if (!*stored) return fail(ErrorCode::io_error, "the tier did not keep the namespace's name");
  return keep(space, **stored);
}

Status SpaceNames::keep(const PrefixSpace& space, const Epoch& epoch) {
  const Digest key = epoch_key(space.digest());
  if (auto ok = tier_->pin({&key, 1}); !ok) return ok;
  const std::lock_guard lock(mutex_);
  const bool fresh = names_.insert_or_assign(space.digest(), Name{&space, epoch}).second;
  if (!fresh) tier_->unpin({&key, 1});
  return {};
}

Status SpaceNames::write_pending(const Digest& space) {
  std::optional<Epoch> epoch;
  {
    const std::lock_guard lock(mutex_);
    const auto found = pending_.find(space);
    if (found == pending_.end()) return {};
    epoch = found->second;
  }
  if (auto ok = write(space, *epoch, true); !ok) return ok;
  const std::lock_guard lock(mutex_);
  pending_.erase(space);
  return {};
}

// None: there is no such record.
Result<std::optional<Epoch>> SpaceNames::read(const Digest& space) {
  const Digest key = epoch_key(space);
  auto get = tier_->get({&key, 1}, {.deadline = std::chrono::steady_clock::now() + patience_});
  if (!get) return tl::unexpected(get.error());
  get->wait();
  const TierAnswer& answer = get->answer(0);
  Epoch epoch;
  if (answer.outcome == TierOutcome::ok && answer.value.size() == epoch.size()) {
    std::memcpy(epoch.data(), answer.value.data(), epoch.size());
    return epoch;
  }
  const bool missing = answer.outcome == TierOutcome::absent ||
                       answer.outcome == TierOutcome::corrupt || answer.outcome == TierOutcome::ok;
  if (missing) return std::optional<Epoch>();
  return tl::unexpected(no_answer(answer).error());
}

Status SpaceNames::write(const Digest& space, const Epoch& epoch, bool replace) {
  const TierPut record{.key = epoch_key(space), .value = {.bytes = epoch}, .tag = {}};
  auto put = tier_->put(
      {&record, 1}, {.deadline = std::chrono::steady_clock::now() + patience_, .replace = replace});
  if (!put) return tl::unexpected(put.error());
  put->wait();
  const TierAnswer& answer = put->answer(0);
  const bool there =
      answer.outcome == TierOutcome::ok || (!replace && answer.outcome == TierOutcome::present);
  return there ? Status() : no_answer(answer);
}

std::optional<Epoch> SpaceNames::find(const Digest& space) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(space);
  if (found == names_.end()) return std::nullopt;
  return found->second.epoch;
}

std::optional<Epoch> SpaceNames::find(const PrefixSpace& space) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(space.digest());
  if (found == names_.end() || found->second.space != &space) return std::nullopt;
  return found->second.epoch;
}

void SpaceNames::rename(const PrefixSpace& space, const Epoch& epoch) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(space.digest());
  if (found != names_.end() && found->second.space == &space) found->second.epoch = epoch;
}

bool SpaceNames::invalidate(const Digest& space) {
  const Digest key = epoch_key(space);
  {
    const std::lock_guard lock(mutex_);
    pending_[space] = random_epoch();
    if (names_.erase(space) > 0) tier_->unpin({&key, 1});
  }
  return write_pending(space).has_value();
}

}  // namespace pagekv::inline v0::internal
