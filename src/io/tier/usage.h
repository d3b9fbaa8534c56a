// What the processes that share a tier's folder agree about: who may change it now, and how many
// bytes are in it. Two files: `lock`, which is locked while files appear, disappear or are counted,
// and `usage`, which is marked while it is being changed. A process that is killed meanwhile leaves
// the mark, and the next one counts anew.
//
// flock() keeps out other processes, and other tiers of this one; the threads of one tier keep each
// other out by a mutex.
#pragma once

#include <cstdint>

#include "io/tier/descriptor.h"

namespace pagekv::inline v0::internal {

struct TierUsage {
  std::int64_t bytes = 0;  // of all records and of the files that become records
  std::int64_t added = 0;  // bytes that were ever admitted, by all: tells how old a listing is
  std::int64_t clock = 0;  // the last time given to a record that was put

  bool operator==(const TierUsage&) const = default;
};

class UsageFile {
 public:
  // Both files are made where they are missing. 0 or errno.
  int open(int folder);
  int lock() const;  // waits. 0 or errno
  void unlock() const;

  // REQUIRES: locked. False: `bytes` must be counted.
  bool read(TierUsage& usage) const;
  // `changing`: files are about to change, so that the numbers will not hold. 0 or errno.
  int write(const TierUsage& usage, bool changing) const;

 private:
  Descriptor lock_;
  Descriptor usage_;
};

}  // namespace pagekv::inline v0::internal
