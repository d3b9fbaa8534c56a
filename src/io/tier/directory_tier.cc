#include "io/tier/directory_tier.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "io/tier/marker.h"
#include "io/tier/names.h"
#include "io/tier/record.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr int kMaxThreads = 256;

template <typename Body>
auto guard_memory(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "the system refused memory for a tier");
  }
}

Status check(const DirectoryTierOptions& options) {
  if (options.cap_bytes < 1 && !options.read_only) {
    return fail(ErrorCode::invalid_argument, "cap_bytes is {0}, and must be 1 or more",
                {options.cap_bytes});
  }
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return fail(ErrorCode::invalid_argument, "threads is {0}, and must be 1 to {1}",
                {options.threads, kMaxThreads});
  }
  if (options.max_waiting_bytes < 0 || options.use_interval.count() < 0) {
    return fail(ErrorCode::invalid_argument,
                "max_waiting_bytes is {0} and use_interval {1} ms; neither may be negative",
                {options.max_waiting_bytes, options.use_interval.count()});
  }
  return {};
}

// The same bytes with an owner.
TierBytes owned(const TierBytes& from) {
  if (from.owner || from.bytes.empty()) return from;
  const std::shared_ptr<std::byte[]> copy(new std::byte[from.bytes.size()]);
  std::memcpy(copy.get(), from.bytes.data(), from.bytes.size());
  return {.bytes = {copy.get(), from.bytes.size()}, .owner = copy};
}

}  // namespace

std::int64_t system_time_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// --- opening -----------------------------------------------------------------------------------

DirectoryTier::DirectoryTier(const DirectoryTierOptions& options, DirectoryTierParts parts,
                             Descriptor folder, std::shared_ptr<TierChannel> channel)
    : options_(options),
      engine_(std::move(parts.engine)),
      folder_(std::move(folder)),
      channel_(std::move(channel)),
      read_only_(options.read_only),
      clock_(std::move(parts.system_ns)),
      admission_(folder_.get(), options.cap_bytes, *engine_, clock_),
      pool_([this](TierBatchState& batch, TierWork& work) { run(batch, work); }) {}

Result<std::unique_ptr<Tier>> DirectoryTier::open(const std::string& path,
                                                  const DirectoryTierOptions& options,
                                                  DirectoryTierParts parts) {
  return guard_memory([&]() -> Result<std::unique_ptr<Tier>> {
    if (auto ok = check(options); !ok) return tl::unexpected(ok.error());
    auto folder = open_tier_folder(path, options.read_only);
    if (!folder) return tl::unexpected(folder.error());
    auto channel = TierChannel::make();
    if (!channel) return tl::unexpected(channel.error());
    std::unique_ptr<DirectoryTier> tier(
        new DirectoryTier(options, std::move(parts), std::move(*folder), std::move(*channel)));
    if (auto ok = tier->start(path); !ok) return tl::unexpected(ok.error());
    return tier;
  });
}

Status DirectoryTier::start(const std::string& path) {
  if (!read_only_) {
    const int code = admission_.open_shared_files();
    if (code != 0 && code != EROFS && code != EACCES && code != EPERM) {
      return fail(ErrorCode::io_error, "{s}", {code},
                  "cannot lock " + path + ": " + std::generic_category().message(code));
    }
    read_only_ = code != 0;
  }
  if (read_only_) {
    if (auto marked = check_marked(folder_.get(), path); !marked) return marked;
    if (auto listed = admission_.look(); !listed) return tl::unexpected(listed.error());
  } else if (auto started = admission_.start(path); !started) {
    return started;
  }
  return pool_.start(options_.threads);
}

// --- batches -----------------------------------------------------------------------------------

Result<TierBatch> DirectoryTier::submit(TierOperation operation, std::vector<TierWork> works,
                                        const TierOptions& options) {
  std::shared_ptr<TierBatchState> batch;
  try {
    batch = std::make_shared<TierBatchState>(operation, std::move(works), options, channel_);
    for (std::size_t at = 0; at < batch->size(); ++at) count_waiting(batch->work(at));
    if (batch->size() == 0) {
      channel_->signal();
    } else {
      pool_.submit(batch);
    }
    return TierBatch(batch);
  } catch (const std::bad_alloc&) {
    if (batch) batch->give_up(TierOutcome::cancelled);
    throw;
  }
}

Result<TierBatch> DirectoryTier::submit_keys(TierOperation operation, std::span<const Digest> keys,
                                             const TierOptions& options) {
  return guard_memory([&] {
    std::vector<TierWork> works(keys.size());
    for (std::size_t at = 0; at < keys.size(); ++at) works[at].key = keys[at];
    return submit(operation, std::move(works), options);
  });
}

Result<TierBatch> DirectoryTier::exists(std::span<const Digest> keys, TierOptions options) {
  return submit_keys(TierOperation::exists, keys, options);
}

Result<TierBatch> DirectoryTier::get(std::span<const Digest> keys, TierOptions options) {
  return submit_keys(TierOperation::get, keys, options);
}

Result<TierBatch> DirectoryTier::remove(std::span<const Digest> keys, TierOptions options) {
  return submit_keys(TierOperation::remove, keys, options);
}

Result<TierBatch> DirectoryTier::put(std::span<const TierPut> records, TierOptions options) {
  return guard_memory([&]() -> Result<TierBatch> {
    std::vector<TierWork> works(records.size());
    for (std::size_t at = 0; at < records.size(); ++at) {
      const std::size_t tag_bytes = records[at].tag.bytes.size();
      if (tag_bytes > kMaxTierTagBytes) {
        return fail(ErrorCode::invalid_argument, "the tag of record {0} has {1} bytes, at most {2}",
                    {static_cast<std::int64_t>(at), static_cast<std::int64_t>(tag_bytes),
                     static_cast<std::int64_t>(kMaxTierTagBytes)});
      }
      works[at].key = records[at].key;
      works[at].value = owned(records[at].value);
      works[at].tag = owned(records[at].tag);
    }
    return submit(TierOperation::put, std::move(works), options);
  });
}

// One record may always wait, however large.
void DirectoryTier::count_waiting(TierWork& work) {
  const auto bytes = static_cast<std::int64_t>(work.value.bytes.size() + work.tag.bytes.size());
  const std::int64_t before = channel_->waiting_bytes.fetch_add(bytes);
  work.waiting_bytes = bytes;
  work.busy = before > 0 && before + bytes > options_.max_waiting_bytes;
  if (work.busy) channel_->waiting_bytes -= std::exchange(work.waiting_bytes, 0);
}

// --- on threads of the pool --------------------------------------------------------------------

void DirectoryTier::run(TierBatchState& batch, TierWork& work) noexcept {
  const std::int64_t put_bytes = batch.operation() == TierOperation::put
                                     ? record_bytes(work.tag.bytes.size(), work.value.bytes.size())
                                     : 0;
  try {
    work.answer = run(batch.operation(), batch.replace(), work);
  } catch (const std::bad_alloc&) {
    work.answer = {.outcome = TierOutcome::io_error, .system_error = ENOMEM};
  }
  const TierAnswer& answer = work.answer;
  count(batch.operation(), answer,
        put_bytes > 0 ? put_bytes : record_bytes(answer.tag.size(), answer.value.size()));
}

TierAnswer DirectoryTier::run(TierOperation operation, bool replace, TierWork& work) {
  switch (operation) {
    case TierOperation::exists: return exists(work.key);
    case TierOperation::get: return get(work);
    case TierOperation::put: return put(work, replace);
    case TierOperation::remove: break;
  }
  return read_only_ ? TierAnswer{.outcome = TierOutcome::read_only} : admission_.remove(work.key);
}

TierAnswer DirectoryTier::exists(const Digest& key) {
  struct stat status{};
  int code = 0;
  const NameUse use = look_at(folder_.get(), key, status, code);
  if (code != 0) return {.outcome = TierOutcome::io_error, .system_error = code};
  return {.outcome = use == NameUse::record ? TierOutcome::ok : TierOutcome::absent};
}

TierAnswer DirectoryTier::get(TierWork& work) {
  ReadRecord record = read_record(folder_.get(), *engine_, work.key, true);
  if (record.outcome == TierOutcome::corrupt && !read_only_) {
    admission_.remove_damaged(work.key, record.status);
  }
  if (record.outcome != TierOutcome::ok) {
    return {.outcome = record.outcome, .system_error = record.system_error};
  }
  touch(work.key, record.status);
  work.value_memory = std::move(record.value);
  work.tag_memory = std::move(record.tag);
  return {.outcome = TierOutcome::ok,
          .value = {work.value_memory.get(), static_cast<std::size_t>(record.value_bytes)},
          .tag = work.tag_memory};
}

TierAnswer DirectoryTier::put(TierWork& work, bool replace) {
  if (work.busy) return {.outcome = TierOutcome::busy};
  if (read_only_) return {.outcome = TierOutcome::read_only};
  NewRecord record{.key = work.key,
                   .bytes = record_bytes(work.tag.bytes.size(), work.value.bytes.size())};
  struct stat status{};
  int code = 0;
  const NameUse use = look_at(folder_.get(), work.key, status, code);
  // One of another length is not what is to be there: perhaps torn.
  if (!replace && use == NameUse::record && status.st_size == record.bytes) {
    touch(work.key, status);
    return {.outcome = TierOutcome::present};
  }
  const auto head = make_record_head(work.key, work.tag.bytes, work.value.bytes);
  try {
    const TierAnswer admitted = admission_.admit(record);
    if (admitted.outcome != TierOutcome::ok) return admitted;
    return write(record, head, work.value.bytes, replace);
  } catch (const std::bad_alloc&) {
    if (record.file.valid()) admission_.drop_uncounted(record);
    throw;
  }
}

TierAnswer DirectoryTier::write(NewRecord& record, std::span<const std::byte> head,
                                std::span<const std::byte> value, bool replace) {
  const int file = record.file.get();
  int code = write_all(*engine_, file, head, 0);
  if (code == 0) code = write_all(*engine_, file, value, static_cast<std::int64_t>(head.size()));
  if (code == 0 && options_.sync && engine_->sync(file) != 0) code = errno;
  if (code != 0) {
    admission_.discard(record);
    return {.outcome = TierOutcome::io_error, .system_error = code};
  }
  const TierAnswer published = admission_.publish(record, replace);
  if (published.outcome != TierOutcome::ok || !options_.sync) return published;
  code = sync_names(record.key);
  if (code == 0) return published;
  return {.outcome = TierOutcome::io_error, .system_error = code};
}

// The record's name in its sub-folder, and that of the sub-folder. 0 or errno.
int DirectoryTier::sync_names(const Digest& key) {
  const std::string name = record_path(key).substr(0, 2);
  const Descriptor subfolder(
      ::openat(folder_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!subfolder.valid()) return errno;
  if (engine_->sync(subfolder.get()) != 0 && errno != EINVAL) return errno;  // some cannot
  return engine_->sync(folder_.get()) == 0 || errno == EINVAL ? 0 : errno;
}

// While the system's clock is behind, times differ by nanoseconds and say nothing about intervals.
void DirectoryTier::touch(const Digest& key, const struct stat& status) {
  const std::int64_t use = admission_.note_use(key, status.st_size);
  const std::chrono::nanoseconds interval = options_.use_interval;
  if (read_only_) return;
  if (use - use_of(status) < interval.count() && !clock_.is_ahead()) return;
  write_use(folder_.get(), record_path(key), use);
}

// --- what is in it -----------------------------------------------------------------------------

void DirectoryTier::count(TierOperation operation, const TierAnswer& answer, std::int64_t bytes) {
  const std::lock_guard lock(stats_mutex_);
  switch (answer.outcome) {
    case TierOutcome::ok:
      if (operation == TierOperation::get) ++stats_.hits, stats_.read_bytes += bytes;
      if (operation == TierOperation::put) ++stats_.written, stats_.written_bytes += bytes;
      if (operation == TierOperation::remove) ++stats_.removed;
      break;
    case TierOutcome::present: ++stats_.present; break;
    case TierOutcome::absent:
      if (operation == TierOperation::get) ++stats_.misses;
      break;
    case TierOutcome::corrupt: ++stats_.corrupt; break;
    case TierOutcome::too_large:
    case TierOutcome::no_room:
    case TierOutcome::read_only:
    case TierOutcome::busy: ++stats_.refused; break;
    case TierOutcome::io_error: ++stats_.io_errors; break;
    case TierOutcome::expired:
    case TierOutcome::cancelled: break;  // counted where it happens
  }
}

TierStats DirectoryTier::stats() const {
  TierStats stats;
  {
    const std::lock_guard lock(stats_mutex_);
    stats = stats_;
  }
  stats.cap_bytes = options_.cap_bytes;
  stats.waiting_bytes = channel_->waiting_bytes;
  stats.expired = channel_->expired;
  stats.cancelled = channel_->cancelled;
  admission_.add_to(stats);
  return stats;
}

Status DirectoryTier::pin(std::span<const Digest> keys) {
  return guard_memory([&]() -> Status {
    admission_.pin(keys);
    return {};
  });
}

void DirectoryTier::unpin(std::span<const Digest> keys) {
  admission_.unpin(keys);
}

Result<std::vector<KnownRecord>> DirectoryTier::list_folder() {
  return read_only_ ? admission_.look() : admission_.list();
}

Result<std::vector<TierRecord>> DirectoryTier::list(bool tags) {
  return guard_memory([&]() -> Result<std::vector<TierRecord>> {
    const auto found = list_folder();
    if (!found) return tl::unexpected(found.error());
    std::vector<TierRecord> records;
    records.reserve(found->size());
    for (const KnownRecord& known : *found) {
      records.push_back({.key = known.key, .bytes = known.bytes, .last_use_ns = known.last_use});
      if (!tags) continue;
      ReadRecord read = read_record(folder_.get(), *engine_, known.key, false);
      if (read.outcome == TierOutcome::ok) records.back().tag = std::move(read.tag);
    }
    return records;
  });
}

Result<TierCheck> DirectoryTier::verify() {
  return guard_memory([&]() -> Result<TierCheck> {
    const auto found = list_folder();
    if (!found) return tl::unexpected(found.error());
    TierCheck check;
    for (const KnownRecord& known : *found) {
      const ReadRecord read = read_record(folder_.get(), *engine_, known.key, true);
      if (read.outcome == TierOutcome::absent) continue;  // gone meanwhile
      ++check.records;
      check.bytes += read.status.st_size;
      if (read.outcome == TierOutcome::corrupt) check.corrupt.push_back(known.key);
      if (read.outcome == TierOutcome::io_error) check.unreadable.push_back(known.key);
    }
    return check;
  });
}

Result<std::int64_t> DirectoryTier::prune(std::int64_t to_bytes) {
  return guard_memory([&]() -> Result<std::int64_t> {
    if (to_bytes < 0) {
      return fail(ErrorCode::invalid_argument, "cannot prune to {0} bytes", {to_bytes});
    }
    if (read_only_) return fail(ErrorCode::io_error, "the tier is read-only", {EROFS});
    return admission_.prune(to_bytes);
  });
}

}  // namespace pagekv::inline v0::internal
