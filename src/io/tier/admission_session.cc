#include "io/tier/admission_session.h"

namespace pagekv::inline v0::internal {

namespace {

// Eviction takes the oldest record of all processes as of the last listing; an eighth of the cap
// that others have added since is when that becomes too old.
constexpr std::int64_t kOldShare = 8;

}  // namespace

Admission::Session::Lock::Lock(Admission& owner)
    : guard_(owner.folder_mutex_), shared_(owner.shared_), error_(owner.shared_.lock()) {}

Admission::Session::Lock::~Lock() {
  if (error_ == 0) shared_.unlock();
}

Admission::Session::Session(Admission& owner, bool recount)
    : owner_(owner), lock_(owner), error_(lock_.error()) {
  if (error_ != 0) return;
  const bool known = owner.shared_.read(usage);
  read_ = usage;
  const std::int64_t added = usage.added - owner.seen_added_;  // negative: lost, and tells nothing
  const bool old = added < 0 || added > owner.cap_bytes_ - owner.foreign_bytes_;
  owner.foreign_bytes_ = old ? owner.cap_bytes_ : owner.foreign_bytes_ + added;
  owner.clock_.raise(usage.clock);
  if (!known) marked_ = true;  // or as good as
  if (!known || recount) list();
}

Admission::Session::~Session() {
  if (lock_.error() != 0) return;
  owner_.seen_added_ = usage.added;
  owner_.bytes_ = usage.bytes;
  if (error_ == 0 && (marked_ || usage != read_)) owner_.shared_.write(usage, distrusted_);
}

void Admission::Session::list() {
  TierListing listing = list_folder(owner_.folder_, owner_.engine_, true);
  listed_ = true;
  error_ = listing.error;
  if (error_ != 0) return;
  usage.bytes = listing.bytes;
  distrusted_ = false;
  owner_.foreign_bytes_ = 0;
  owner_.clock_.raise(listing.latest_use);
  const std::lock_guard lock(owner_.books_mutex_);
  owner_.books_.replace(listing.records);
}

bool Admission::Session::is_old() const {
  return !listed_ && owner_.foreign_bytes_ > owner_.cap_bytes_ / kOldShare;
}

int Admission::Session::mark() {
  if (marked_) return 0;
  const int code = owner_.shared_.write(usage, true);
  marked_ = code == 0;
  return code;
}

}  // namespace pagekv::inline v0::internal
