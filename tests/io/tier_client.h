// A tier as tests use it: one key at a time, with an answer when the call returns; keys and values
// made of numbers; an engine in which things fail.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "io/tier/directory_tier.h"
#include "io/tier/names.h"
#include "pagekv/tier.h"
#include "support/files.h"

namespace pagekv::testing {

using internal::DirectoryTier;
using internal::DirectoryTierParts;
using internal::IoEngine;
using Blob = std::vector<std::byte>;

inline Blob random_bytes(std::uint64_t seed, std::size_t bytes) {
  std::mt19937_64 random(seed);
  Blob blob(bytes);
  for (std::byte& byte : blob) byte = static_cast<std::byte>(random());
  return blob;
}

inline Digest key_of(std::uint64_t number) {
  Digest key;
  const Blob bytes = random_bytes(number + 1'000'000, key.size());
  std::copy(bytes.begin(), bytes.end(), key.begin());
  return key;
}

inline Blob tag_of(std::uint64_t number) {
  return random_bytes(number + 2'000'000, number % 100);
}

inline std::unique_ptr<Tier> open_tier(const std::string& path, const DirectoryTierOptions& options,
                                       DirectoryTierParts parts = {}) {
  auto tier = DirectoryTier::open(path, options, std::move(parts));
  EXPECT_TRUE(tier) << tier.error().message();
  return tier ? std::move(*tier) : nullptr;
}

inline TierAnswer answer_of(const Result<TierBatch>& batch) {
  EXPECT_TRUE(batch) << batch.error().message();
  batch->wait();
  TierAnswer answer = batch->answer(0);
  answer.value = answer.tag = {};  // they end with the batch
  return answer;
}

inline TierAnswer put(Tier& tier, const Digest& key, const Blob& value, const Blob& tag = {},
                      TierOptions options = {}) {
  const TierPut record{.key = key, .value = {.bytes = value}, .tag = {.bytes = tag}};
  return answer_of(tier.put({&record, 1}, options));
}
inline TierAnswer remove(Tier& tier, const Digest& key) {
  return answer_of(tier.remove({&key, 1}));
}
inline bool exists(Tier& tier, const Digest& key) {
  return answer_of(tier.exists({&key, 1})).outcome == TierOutcome::ok;
}

struct Got {
  TierOutcome outcome = TierOutcome::absent;
  int system_error = 0;
  Blob value, tag;
};
inline Got get(Tier& tier, const Digest& key) {
  const auto batch = tier.get({&key, 1});
  EXPECT_TRUE(batch);
  batch->wait();
  const TierAnswer& answer = batch->answer(0);
  return {.outcome = answer.outcome,
          .system_error = answer.system_error,
          .value = {answer.value.begin(), answer.value.end()},
          .tag = {answer.tag.begin(), answer.tag.end()}};
}

// Bytes of all files in the sub-folders of a tier, records or not.
inline std::int64_t bytes_on_disk(const std::string& path) {
  std::int64_t bytes = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.path().parent_path() == path || !entry.is_regular_file(gone)) continue;
    const auto size = entry.file_size(gone);
    if (!gone) bytes += static_cast<std::int64_t>(size);
  }
  return bytes;
}

inline std::size_t temporary_files(const std::string& path) {
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    files += internal::is_temporary_name(entry.path().filename().string()) ? 1 : 0;
  }
  return files;
}

// Fails, or moves less, as told. A hook gives what the call returns, or nothing: as always.
class FaultyEngine : public IoEngine {
 public:
  using Hook = std::function<std::optional<int>()>;  // errno, or 0 for half of the bytes
  Hook on_read, on_write, on_create, on_resize, on_sync, on_rename, on_remove;

  ssize_t read(int file, std::span<std::byte> to, std::int64_t offset) override {
    if (const auto fault = ask(on_read)) {
      if (*fault != 0) return failed(*fault);
      to = to.first((to.size() + 1) / 2);
    }
    return IoEngine::read(file, to, offset);
  }
  ssize_t write(int file, std::span<const std::byte> from, std::int64_t offset) override {
    if (const auto fault = ask(on_write)) {
      if (*fault != 0) return failed(*fault);
      from = from.first((from.size() + 1) / 2);
    }
    return IoEngine::write(file, from, offset);
  }
  int create(int folder, const char* path) override {
    const auto fault = ask(on_create);
    return fault ? failed(*fault) : IoEngine::create(folder, path);
  }
  int resize(int file, std::int64_t bytes) override {
    const auto fault = ask(on_resize);
    return fault ? failed(*fault) : IoEngine::resize(file, bytes);
  }
  int sync(int file) override {
    const auto fault = ask(on_sync);
    return fault ? failed(*fault) : IoEngine::sync(file);
  }
  int rename(int folder, const char* from, const char* to) override {
    const auto fault = ask(on_rename);
    return fault ? failed(*fault) : IoEngine::rename(folder, from, to);
  }
  int remove(int folder, const char* path) override {
    const auto fault = ask(on_remove);
    return fault ? failed(*fault) : IoEngine::remove(folder, path);
  }

 private:
  static std::optional<int> ask(const Hook& hook) { return hook ? hook() : std::nullopt; }
  static int failed(int code) {
    errno = code;
    return -1;
  }
};

}  // namespace pagekv::testing
