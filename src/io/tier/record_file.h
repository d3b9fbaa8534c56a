// Records in a tier's folder: reading one, and the time of its last use. No locks: a file is whole
// when it has its name, and what has been opened stays readable when somebody removes it.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <vector>

#include "io/tier/batch.h"
#include "io/tier/descriptor.h"
#include "io/tier/io_engine.h"
#include "pagekv/tier.h"

namespace pagekv::inline v0::internal {

struct ReadRecord {
  TierOutcome outcome = TierOutcome::absent;  // ok, absent, corrupt, io_error
  int system_error = 0;
  Descriptor file = {};     // where it could be opened
  struct stat status = {};  // of the open file
  std::vector<std::byte> tag = {};
  AlignedBytes value = {};
  std::int64_t value_bytes = 0;
};

// With `value`, all of it, proved; otherwise the head and tag, proved. Throws std::bad_alloc only.
ReadRecord read_record(int folder, IoEngine& engine, const Digest& key, bool value);

// What has a record's name: nothing, a record's file, or something that is none.
enum class NameUse { free, record, other };
// errno in `system_error` where the system does not say; then `other`.
NameUse look_at(int folder, const Digest& key, struct stat& status, int& system_error);

// Sets the file's time. Failures are of no matter: the record counts as used longer ago.
void write_use(int folder, const std::string& path, std::int64_t last_use);

}  // namespace pagekv::inline v0::internal
