// Keeps a tier's folder within its cap: everything by which files appear in it or disappear from
// it.
//
// A record comes in two stages. admit() makes room, evicting if need be, and creates the new file
// with its full length, which counts from then on; the caller writes it without any lock; publish()
// gives it its name. Whoever counts the files at any moment finds at most the cap. A writer holds a
// flock() on its file, so that what a killed one leaves can be told from what is being written.
//
// Thread-safe. Orders of locks: the mutex of this process, the folder's lock, then the books'
// mutex, which is not held while one waits for another process.
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "io/tier/books.h"
#include "io/tier/descriptor.h"
#include "io/tier/io_engine.h"
#include "io/tier/scan.h"
#include "io/tier/usage.h"
#include "io/tier/use_clock.h"
#include "pagekv/error.h"
#include "pagekv/tier.h"

namespace pagekv::inline v0::internal {

// A file that is to become a record.
struct NewRecord {
  Digest key{};
  std::int64_t bytes = 0;  // of the file
  std::string path = {};
  Descriptor file = {};  // valid: it exists
};

class Admission {
 public:
  Admission(int folder, std::int64_t cap_bytes, IoEngine& engine, UseClock& clock)
      : folder_(folder), cap_bytes_(cap_bytes), engine_(engine), clock_(clock) {}

  // Opens the shared files. 0 or errno.
  int open_shared_files() { return shared_.open(folder_); }
  // Marks the folder, lists it, removes what dead writers left, and evicts down to the cap. `path`
  // is for messages.
  Status start(const std::string& path);

  // ok with a file to write, or why not.
  TierAnswer admit(NewRecord& record);
  // ok, present (unless `replace`), io_error. The new file is gone or has become the record.
  TierAnswer publish(NewRecord& record, bool replace);
  void discard(NewRecord& record);
  void drop_uncounted(NewRecord& record) noexcept;  // where memory is refused

  TierAnswer remove(const Digest& key);
  // Unless another file has the name by now than the one that `status` is of.
  void remove_damaged(const Digest& key, const struct stat& status);
  Result<std::int64_t> prune(std::int64_t to_bytes);
  // Lists the folder: least recently used first.
  Result<std::vector<KnownRecord>> list();
  Result<std::vector<KnownRecord>> look();  // the same, of a folder that is not ours to change

  // A record was read, or was there already: `bytes` long, and used now. Returns the time.
  std::int64_t note_use(const Digest& key, std::int64_t bytes);
  void pin(std::span<const Digest> keys);
  void unpin(std::span<const Digest> keys);
  // Adds what it knows.
  void add_to(TierStats& stats) const;

 private:
  class Session;

  TierAnswer create(Session& session, NewRecord& record);
  int create_file(NewRecord& record);
  bool make_room(Session& session, std::int64_t to_bytes);
  void evict(Session& session, const KnownRecord& victim);
  void uncount(Session& session, const Digest& key, std::int64_t bytes);
  void discard(Session& session, NewRecord& record);
  TierAnswer put_in_place(Session& session, NewRecord& record, std::int64_t replaced_bytes);

  const int folder_;
  const std::int64_t cap_bytes_;
  IoEngine& engine_;
  UseClock& clock_;
  UsageFile shared_;

  std::mutex folder_mutex_;         // with the folder's lock: below
  std::int64_t seen_added_ = 0;     // TierUsage::added when last looked at
  std::int64_t foreign_bytes_ = 0;  // admitted by others since the folder was listed
  std::uint64_t next_number_ = 0;   // of new files

  std::atomic<std::int64_t> bytes_ = 0;  // TierUsage::bytes when last looked at

  mutable std::mutex books_mutex_;  // below
  TierBooks books_;
  std::int64_t evicted_ = 0;
  std::int64_t evicted_bytes_ = 0;
};

}  // namespace pagekv::inline v0::internal
