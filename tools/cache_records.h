// The records of a tier as `pagekv cache` shows and selects them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pagekv/digest.h"
#include "pagekv/error.h"
#include "pagekv/tier.h"

namespace pagekv_tool {

struct CacheRecord {
  enum class Kind { page, name, other };
  pagekv::Digest key{};
  std::int64_t bytes = 0;
  std::int64_t last_use_ns = 0;
  Kind kind = Kind::other;                   // name: the secret one of a namespace
  std::optional<pagekv::Digest> space = {};  // its namespace, where known
  int group = 0;                             // of a page
  std::int64_t tokens = 0;                   // of a page; 0: not known
};

const char* kind_name(CacheRecord::Kind kind);

struct CacheRecords {
  std::vector<CacheRecord> all;  // least recently used first
  std::int64_t bytes() const;
  std::int64_t last_use_ns() const;            // 0: there is none
  std::vector<pagekv::Digest> spaces() const;  // of which there are records, in order
};

// Looks at the head of every record. Errors: as Tier::list().
pagekv::Result<CacheRecords> list_records(pagekv::Tier& tier);

// The one digest of `among` that begins with these digits. Errors: invalid_argument (none, or
// several); `what` names it: "record".
pagekv::Result<pagekv::Digest> find_digest(const std::vector<pagekv::Digest>& among,
                                           const std::string& digits, const char* what);
pagekv::Result<CacheRecord> find_record(const CacheRecords& records, const std::string& digits);

}  // namespace pagekv_tool
