#include "tools/cache_records.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "pagekv/page_tier.h"
#include "tools/cache_text.h"

namespace pagekv_tool {
namespace {

// A name has 16 bytes behind a head without a tag, which has 128 (docs/tier.md).
constexpr std::int64_t kNameBytes = 144;

CacheRecord describe(const pagekv::TierRecord& record) {
  CacheRecord described{
      .key = record.key, .bytes = record.bytes, .last_use_ns = record.last_use_ns};
  const auto page = pagekv::read_page_tag(record.tag);
  if (page) {
    described.kind = CacheRecord::Kind::page;
    described.space = page->space;
    described.group = page->group;
    described.tokens = static_cast<std::int64_t>(page->tokens.size());
  } else if (record.tag.empty() && record.bytes == kNameBytes) {
    described.kind = CacheRecord::Kind::name;
  }
  return described;
}

void find_names(std::vector<CacheRecord>& records) {
  std::map<pagekv::Digest, pagekv::Digest> spaces;  // by the keys of their names
  for (const CacheRecord& record : records) {
    if (record.space)
      spaces.try_emplace(pagekv::namespace_record_key(*record.space), *record.space);
  }
  for (CacheRecord& record : records) {
    if (record.kind != CacheRecord::Kind::name) continue;
    if (const auto at = spaces.find(record.key); at != spaces.end()) record.space = at->second;
  }
}

}  // namespace

const char* kind_name(CacheRecord::Kind kind) {
  return kind == CacheRecord::Kind::page   ? "page"
         : kind == CacheRecord::Kind::name ? "name"
                                           : "other";
}

std::int64_t CacheRecords::bytes() const {
  std::int64_t bytes = 0;
  for (const CacheRecord& record : all) bytes += record.bytes;
  return bytes;
}

std::int64_t CacheRecords::last_use_ns() const {
  return all.empty() ? 0 : all.back().last_use_ns;
}

std::vector<pagekv::Digest> CacheRecords::spaces() const {
  std::set<pagekv::Digest> spaces;
  for (const CacheRecord& record : all) {
    if (record.space) spaces.insert(*record.space);
  }
  return {spaces.begin(), spaces.end()};
}

pagekv::Result<CacheRecords> list_records(pagekv::Tier& tier) {
  const auto listed = tier.list(true);
  if (!listed) return tl::unexpected(listed.error());
  CacheRecords records;
  records.all.reserve(listed->size());
  for (const pagekv::TierRecord& record : *listed) records.all.push_back(describe(record));
  find_names(records.all);
  return records;
}

pagekv::Result<pagekv::Digest> find_digest(const std::vector<pagekv::Digest>& among,
                                           const std::string& digits, const char* what) {
  std::vector<pagekv::Digest> found;
  std::copy_if(among.begin(), among.end(), std::back_inserter(found),
               [&](const pagekv::Digest& digest) { return hex(digest).starts_with(digits); });
  if (found.size() == 1) return found.front();
  if (found.empty()) {
    return pagekv::fail(pagekv::ErrorCode::invalid_argument, "{s}", {},
                        std::string("there is no ") + what + " " + digits);
  }
  return pagekv::fail(
      pagekv::ErrorCode::invalid_argument, "{s}: give more digits", {},
      counted(static_cast<std::int64_t>(found.size()), what) + " begin with " + digits);
}

pagekv::Result<CacheRecord> find_record(const CacheRecords& records, const std::string& digits) {
  std::vector<pagekv::Digest> keys;
  for (const CacheRecord& record : records.all) keys.push_back(record.key);
  const auto key = find_digest(keys, digits, "record");
  if (!key) return tl::unexpected(key.error());
  return *std::find_if(records.all.begin(), records.all.end(),
                       [&](const CacheRecord& record) { return record.key == *key; });
}

}  // namespace pagekv_tool
