#include "io/tier/admission.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "io/tier/admission_session.h"
#include "io/tier/marker.h"
#include "io/tier/names.h"
#include "io/tier/record_file.h"

namespace pagekv::inline v0::internal {

namespace {

TierAnswer refused(int code) {
  if (code == EROFS || code == EACCES || code == EPERM) return {.outcome = TierOutcome::read_only};
  return {.outcome = TierOutcome::io_error, .system_error = code};
}

tl::unexpected<Error> cannot_list(int code) {
  return fail(ErrorCode::io_error, "cannot list the tier's folder: {s}", {code},
              std::generic_category().message(code));
}

}  // namespace

Status Admission::start(const std::string& path) {
  next_number_ = static_cast<std::uint64_t>(::getpid()) << 32;
  Session session(*this, true);
  if (session.error() == ENOTDIR || session.error() == ELOOP) {
    return fail(ErrorCode::invalid_argument,
                "{s}: something in it has the name of a sub-folder and is none", {}, path);
  }
  if (session.error() != 0) return cannot_list(session.error());
  if (auto marked = mark_tier_folder(folder_, path); !marked) return marked;
  make_room(session, cap_bytes_);
  return {};
}

TierAnswer Admission::admit(NewRecord& record) {
  if (record.bytes > cap_bytes_) return {.outcome = TierOutcome::too_large};
  Session session(*this, false);
  if (session.error() != 0) return refused(session.error());
  if (session.is_old()) session.list();
  if (!make_room(session, cap_bytes_ - record.bytes)) return {.outcome = TierOutcome::no_room};
  if (session.error() != 0) return refused(session.error());
  return create(session, record);
}

TierAnswer Admission::create(Session& session, NewRecord& record) {
  if (const int code = session.mark(); code != 0) return refused(code);
  int code = create_file(record);
  if (code != 0) return refused(code);
  session.usage.bytes += record.bytes;
  session.usage.added += record.bytes;
  const int file = record.file.get();
  if (::flock(file, LOCK_EX | LOCK_NB) == 0 && engine_.resize(file, record.bytes) == 0) {
    return {.outcome = TierOutcome::ok};
  }
  code = errno;
  discard(session, record);
  return refused(code);
}

// With its sub-folder, if that is missing. 0 or errno.
int Admission::create_file(NewRecord& record) {
  const std::string subfolder = record_path(record.key).substr(0, 2);
  for (;;) {
    record.path = temporary_path(record.key, next_number_++);
    const int file = engine_.create(folder_, record.path.c_str());
    if (file >= 0) {
      record.file = Descriptor(file);
      return 0;
    }
    const int code = errno;
    if (code == EEXIST) continue;  // left of a process that had the number of this one
    if (code != ENOENT) return code;
    if (::mkdirat(folder_, subfolder.c_str(), 0777) != 0) return errno;
  }
}

// Whether there are `to_bytes` at most now. What cannot be removed is passed over.
bool Admission::make_room(Session& session, std::int64_t to_bytes) {
  while (session.usage.bytes > to_bytes) {
    std::unique_lock lock(books_mutex_);
    if (const auto victim = books_.oldest()) {
      evict(session, *victim);
      continue;
    }
    lock.unlock();
    if (session.listed()) return false;
    session.list();  // others may have put what this process does not know of
    if (session.error() != 0) return false;
  }
  return true;
}

// REQUIRES: the books' mutex, so that what has been pinned by now stays.
void Admission::evict(Session& session, const KnownRecord& victim) {
  struct stat status{};
  int code = 0;
  if (look_at(folder_, victim.key, status, code) != NameUse::record) {
    books_.forget(victim.key);
    return;
  }
  if (use_of(status) > victim.last_use) {  // by another process
    books_.use(victim.key, use_of(status));
    return;
  }
  session.mark();
  const std::string path = record_path(victim.key);
  if (engine_.remove(folder_, path.c_str()) != 0) return books_.forget(victim.key);
  uncount(session, victim.key, status.st_size);
  ++evicted_;
  evicted_bytes_ += status.st_size;
}

// A record's file of this length is gone, or replaced. Where that is not the length that was known,
// somebody replaced it, and counted that, or lengthened it by hand: too high a count harms nobody,
// so the lesser is taken, and the folder listed next time. REQUIRES: the books' mutex.
void Admission::uncount(Session& session, const Digest& key, std::int64_t bytes) {
  const auto known = books_.find(key);
  session.usage.bytes -= known ? std::min(known->bytes, bytes) : bytes;
  if (known && known->bytes != bytes) session.distrust();
  books_.forget(key);
}

TierAnswer Admission::publish(NewRecord& record, bool replace) {
  Session session(*this, false);
  if (session.error() != 0) {
    drop_uncounted(record);
    return refused(session.error());
  }
  struct stat status{};
  int code = 0;
  const NameUse use = look_at(folder_, record.key, status, code);
  if (use == NameUse::other) {
    discard(session, record);
    return refused(code != 0 ? code : EEXIST);
  }
  if (use == NameUse::record && !replace && status.st_size == record.bytes) {
    discard(session, record);
    note_use(record.key, status.st_size);
    return {.outcome = TierOutcome::present};
  }
  return put_in_place(session, record, use == NameUse::record ? status.st_size : 0);
}

TierAnswer Admission::put_in_place(Session& session, NewRecord& record,
                                   std::int64_t replaced_bytes) {
  const std::string path = record_path(record.key);
  const int marked = replaced_bytes > 0 ? session.mark() : 0;
  const std::int64_t use = clock_.next();
  write_use(folder_, record.path, use);
  if (marked != 0 || engine_.rename(folder_, record.path.c_str(), path.c_str()) != 0) {
    const int code = marked != 0 ? marked : errno;
    discard(session, record);
    return refused(code);
  }
  record.file.close();
  session.usage.clock = use;
  const std::lock_guard lock(books_mutex_);
  if (replaced_bytes > 0) uncount(session, record.key, replaced_bytes);
  books_.set({.key = record.key, .bytes = record.bytes, .last_use = use});
  return {.outcome = TierOutcome::ok};
}

void Admission::discard(NewRecord& record) {
  Session session(*this, false);
  if (session.error() == 0) return discard(session, record);
  drop_uncounted(record);
}

// Stays counted until somebody counts anew.
void Admission::drop_uncounted(NewRecord& record) noexcept {
  engine_.remove(folder_, record.path.c_str());
  record.file.close();
}

void Admission::discard(Session& session, NewRecord& record) {
  session.mark();
  if (engine_.remove(folder_, record.path.c_str()) == 0) session.usage.bytes -= record.bytes;
  record.file.close();
}

TierAnswer Admission::remove(const Digest& key) {
  Session session(*this, false);
  if (session.error() != 0) return refused(session.error());
  struct stat status{};
  int code = 0;
  const NameUse use = look_at(folder_, key, status, code);
  if (code != 0) return refused(code);
  if (use != NameUse::record) return {.outcome = TierOutcome::absent};
  session.mark();
  if (engine_.remove(folder_, record_path(key).c_str()) != 0) return refused(errno);
  const std::lock_guard lock(books_mutex_);
  uncount(session, key, status.st_size);
  return {.outcome = TierOutcome::ok};
}

void Admission::remove_damaged(const Digest& key, const struct stat& status) {
  Session session(*this, false);
  if (session.error() != 0) return;
  struct stat now{};
  int code = 0;
  if (look_at(folder_, key, now, code) != NameUse::record) return;
  if (now.st_ino != status.st_ino || now.st_dev != status.st_dev) return;
  session.mark();
  if (engine_.remove(folder_, record_path(key).c_str()) != 0) return;
  const std::lock_guard lock(books_mutex_);
  if (books_.find(key)) return uncount(session, key, now.st_size);
  session.distrust();  // nobody knows what length was counted
}

Result<std::int64_t> Admission::prune(std::int64_t to_bytes) {
  Session session(*this, true);
  if (session.error() != 0) return cannot_list(session.error());
  const std::int64_t before = session.usage.bytes;
  make_room(session, to_bytes);
  return before - session.usage.bytes;
}

Result<std::vector<KnownRecord>> Admission::look() {
  const TierListing listing = list_folder(folder_, engine_, false);
  if (listing.error != 0) return cannot_list(listing.error);
  clock_.raise(listing.latest_use);
  bytes_ = listing.bytes;
  const std::lock_guard lock(books_mutex_);
  books_.replace(listing.records);
  return books_.all();
}

Result<std::vector<KnownRecord>> Admission::list() {
  const Session session(*this, true);
  if (session.error() != 0) return cannot_list(session.error());
  const std::lock_guard lock(books_mutex_);
  return books_.all();
}

std::int64_t Admission::note_use(const Digest& key, std::int64_t bytes) {
  const std::lock_guard lock(books_mutex_);
  const std::int64_t use = clock_.next();
  books_.set({.key = key, .bytes = bytes, .last_use = use});
  return use;
}

void Admission::pin(std::span<const Digest> keys) {
  const std::lock_guard lock(books_mutex_);
  std::size_t at = 0;
  try {
    for (; at < keys.size(); ++at) books_.pin(keys[at]);
  } catch (const std::bad_alloc&) {
    for (const Digest& key : keys.first(at)) books_.unpin(key);
    throw;
  }
}

void Admission::unpin(std::span<const Digest> keys) {
  const std::lock_guard lock(books_mutex_);
  for (const Digest& key : keys) books_.unpin(key);
}

void Admission::add_to(TierStats& stats) const {
  const std::lock_guard lock(books_mutex_);
  stats.records = books_.records();
  stats.bytes = bytes_;
  stats.pinned_keys = books_.pinned_keys();
  stats.evicted = evicted_;
  stats.evicted_bytes = evicted_bytes_;
}

}  // namespace pagekv::inline v0::internal
