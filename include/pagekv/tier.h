// Tier: a place beyond RAM for records. A record is a value under a key of 32 bytes, with a small
// tag that can be read without the value. What keys and values mean is the caller's affair.
//
//   auto tier = open_directory_tier("cache", {.cap_bytes = 64ll << 30});
//   auto batch = (*tier)->get(keys, {.deadline = now + 50ms});
//   ...                                          // poll() in a loop, or wait()
//   if (batch->wait()) use(batch->answer(0).value);
//
// A tier may lose any record at any time and never gives a wrong one: whatever goes wrong while
// reading, the answer is one of those that mean "compute it yourself".
//
// exists(), get(), put() and remove() return at once, with a TierBatch; the work is done on threads
// of the tier. The keys of a batch are worked on in any order, as are batches. When a batch is
// finished, the tier's event_fd() becomes readable:
//
//   poll({tier->event_fd(), ...});
//   tier->clear_event();                         // first this, then look at the batches
//   for (TierBatch& batch : batches) if (batch.poll()) ...
//
// All functions of a tier may be called on any thread. A batch belongs to one thread at a time and
// may outlive its tier. A tier that goes away finishes what is in work, answers all else
// `cancelled`, and returns when none of its threads run.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pagekv/digest.h"
#include "pagekv/error.h"
#include "pagekv/export.h"

namespace pagekv::inline v0 {

namespace internal {
class TierBatchState;
}  // namespace internal

inline constexpr std::size_t kMaxTierTagBytes = 4096;
inline constexpr auto kNoDeadline = std::chrono::steady_clock::time_point::max();

// What became of one key of a batch. Values are never renumbered.
enum class TierOutcome : std::uint8_t {
  ok = 0,         // exists: it is there. get: here it is. put: written. remove: gone
  present = 1,    // put: it was there, and stays as it was
  absent = 2,     // exists, get, remove: it is not there
  corrupt = 3,    // get: it was not what had been put, and has been removed; a miss
  too_large = 4,  // put: larger than the cap
  no_room = 5,    // put: pinned records, and those being written, fill the cap
  read_only = 6,  // put, remove: the tier, or what it is on, cannot be written
  busy = 7,       // put: too many bytes wait to be written already
  io_error = 8,   // the system refused, with TierAnswer::system_error; of get a miss
  expired = 9,    // was not begun by the deadline
  cancelled = 10  // was not begun when the batch or the tier was dropped
};

// Short name of an outcome, for logs: "no_room". Never null.
PAGEKV_API const char* name(TierOutcome outcome);

struct TierAnswer {
  TierOutcome outcome = TierOutcome::cancelled;
  int system_error = 0;  // errno, of io_error
  // Of a get() that is ok, in memory of the batch: they live as long as it does. The value begins
  // at a multiple of 64 bytes.
  std::span<const std::byte> value = {};
  std::span<const std::byte> tag = {};
};

// Bytes to be written. The tier holds `owner` as long as it may read them: until the key has its
// answer, or it has been expired or cancelled. Without an owner it copies them before put()
// returns.
struct TierBytes {
  std::span<const std::byte> bytes = {};
  std::shared_ptr<const void> owner = {};
};

struct TierPut {
  Digest key = {};
  TierBytes value = {};
  TierBytes tag = {};  // kMaxTierTagBytes at most
};

struct TierOptions {
  // What is not begun by then is answered `expired`. What has been begun is finished.
  std::chrono::steady_clock::time_point deadline = kNoDeadline;
  bool replace = false;  // put: write also what is there already
};

// Work in progress on several keys, and its answers, in the order of the keys. Move-only. Dropping
// it cancels what is not begun, and never waits: memory that a thread of the tier still reads into
// lives until that thread is done with it.
class PAGEKV_API TierBatch {
 public:
  TierBatch();  // of no keys, finished
  explicit TierBatch(std::shared_ptr<internal::TierBatchState> state);
  ~TierBatch();
  TierBatch(TierBatch&&) noexcept;
  TierBatch& operator=(TierBatch&&) noexcept;

  std::size_t size() const;  // keys
  // Whether every key has its answer. Never waits. Once true it stays true.
  bool poll() const;
  // The same, after waiting for it until then at most.
  bool wait(std::chrono::steady_clock::time_point until = kNoDeadline) const;
  const TierAnswer& answer(std::size_t index) const;  // REQUIRES: poll() or wait() was true

  void cancel();  // what is not begun; poll() is true when the rest is finished
  void detach();  // lets it go on without this handle, which is empty afterwards

 private:
  std::shared_ptr<internal::TierBatchState> state_;
};

struct TierStats {
  // Now. Other processes that share the tier are seen when this one writes or lists.
  std::int64_t records = 0;
  std::int64_t bytes = 0;  // of all files, those being written included
  std::int64_t cap_bytes = 0;
  std::int64_t pinned_keys = 0;
  std::int64_t waiting_bytes = 0;  // of puts that are not written yet

  // Keys since this tier was opened.
  std::int64_t hits = 0;       // of get
  std::int64_t misses = 0;     // of get: absent
  std::int64_t corrupt = 0;    // of get
  std::int64_t written = 0;    // put: ok
  std::int64_t present = 0;    // put: there already
  std::int64_t refused = 0;    // put and remove: too_large, no_room, read_only, busy
  std::int64_t removed = 0;    // by remove()
  std::int64_t io_errors = 0;  // of all
  std::int64_t expired = 0;    // of all
  std::int64_t cancelled = 0;  // of all
  std::int64_t evicted = 0;    // records that made room, prune() included
  std::int64_t evicted_bytes = 0;
  std::int64_t read_bytes = 0;     // of records
  std::int64_t written_bytes = 0;  // of records
};

struct TierRecord {
  Digest key{};
  std::int64_t bytes = 0;  // of its file
  // When it was put or read last, in nanoseconds since 1970. Never goes back when the system's
  // clock does: it orders records, and tells the time only as far as that clock did.
  std::int64_t last_use_ns = 0;
  std::vector<std::byte> tag = {};  // where asked for, and whole
};

struct TierCheck {
  std::int64_t records = 0;  // read
  std::int64_t bytes = 0;
  std::vector<Digest> corrupt = {};     // not what had been put
  std::vector<Digest> unreadable = {};  // the system refused
};

class PAGEKV_API Tier {
 public:
  virtual ~Tier();
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // Errors: out_of_memory; of put also invalid_argument (a tag that is too long).
  virtual Result<TierBatch> exists(std::span<const Digest> keys, TierOptions options) = 0;
  // A record that is found counts as used.
  virtual Result<TierBatch> get(std::span<const Digest> keys, TierOptions options) = 0;
  // A record is there whole or not at all. One that is there already counts as used.
  virtual Result<TierBatch> put(std::span<const TierPut> records, TierOptions options) = 0;
  virtual Result<TierBatch> remove(std::span<const Digest> keys, TierOptions options) = 0;

  // Eviction by this tier leaves pinned keys, stored or not; remove() does not, nor do other
  // processes. A key pinned twice is unpinned twice. Errors of pin: out_of_memory.
  virtual Status pin(std::span<const Digest> keys) = 0;
  virtual void unpin(std::span<const Digest> keys) = 0;

  // Readable when a batch has finished since the last clear_event(). Closed with the last of the
  // tier and its batches; not to be read or closed by the caller.
  virtual int event_fd() const = 0;
  virtual void clear_event() = 0;

  virtual TierStats stats() const = 0;

  // What follows works on the calling thread, and may take as long as the disk does.

  // All records, least recently used first; with `tags`, their tags. Errors: io_error, unsupported
  // (a tier that cannot), out_of_memory.
  virtual Result<std::vector<TierRecord>> list(bool tags) = 0;
  // Reads all records and proves their checksums. Removes nothing. Errors: as list().
  virtual Result<TierCheck> verify() = 0;
  // Evicts until there are `to_bytes` at most, or only pinned records. Returns the bytes that went.
  // Errors: as list(), invalid_argument.
  virtual Result<std::int64_t> prune(std::int64_t to_bytes) = 0;

  Result<TierBatch> exists(std::span<const Digest> keys) { return exists(keys, {}); }
  Result<TierBatch> get(std::span<const Digest> keys) { return get(keys, {}); }
  Result<TierBatch> put(std::span<const TierPut> records) { return put(records, {}); }
  Result<TierBatch> remove(std::span<const Digest> keys) { return remove(keys, {}); }

 protected:
  Tier() = default;
};

struct DirectoryTierOptions {
  std::int64_t cap_bytes =
      0;            // of the files of all records; what they take up is rounded to blocks
  int threads = 4;  // that read and write
  // Puts are on the disk when they are answered. Not needed for correctness: what a power cut tears
  // or loses is found by its checksum and is a miss.
  bool sync = false;
  bool read_only = false;  // writes nothing, not even when a record was used; needs no cap
  std::int64_t max_waiting_bytes = std::int64_t{256} << 20;  // of puts; more are `busy`
  // A record's use is written to its file's time at most this often, to spare the disk; what was
  // used in between is forgotten when the tier is closed.
  std::chrono::milliseconds use_interval{1000};
};

// A tier of one file per record in a local folder, which is made where it is missing (its parent is
// not). Holds at most `cap_bytes`, evicting least recently used records, when it returns and from
// then on. Several processes may share a folder, each with its own cap over all that is in it
// (docs/tier.md). A folder that cannot be written is opened read-only.
// Errors: io_error, unsupported (a version that is not known), invalid_argument (options; a folder
// that holds something else, which is left alone), out_of_memory.
PAGEKV_API Result<std::unique_ptr<Tier>> open_directory_tier(const std::string& path,
                                                             const DirectoryTierOptions& options);

}  // namespace pagekv::inline v0
