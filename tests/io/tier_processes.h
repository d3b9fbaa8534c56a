// Processes that work on one tier's folder: children of a test, which must have no threads when it
// makes them.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <span>
#include <string>
#include <vector>

#include "io/tier_client.h"

namespace pagekv::testing {

// Records of these processes: the tag says of which version the value is, so that every process can
// tell whether what it reads is right.
inline constexpr std::uint64_t kSharedNumbers = 60;

inline Blob shared_value(std::uint64_t number, unsigned version) {
  return random_bytes(number * 1000 + version, 300 + 70 * number + version % 3);
}
inline bool is_right(std::uint64_t number, std::span<const std::byte> value,
                     std::span<const std::byte> tag) {
  if (tag.size() != 1) return false;
  const Blob right = shared_value(number, std::to_integer<unsigned>(tag[0]));
  return std::equal(value.begin(), value.end(), right.begin(), right.end());
}

enum ChildResult { child_fine = 0, child_cannot_open, child_put_failed, child_read_wrong };

// Puts, reads and removes `rounds` times; for ever where that is negative.
inline ChildResult work_on_tier(const std::string& path, std::int64_t cap_bytes, unsigned seed,
                                int rounds) {
  auto tier = open_directory_tier(path, {.cap_bytes = cap_bytes, .threads = 2, .use_interval = {}});
  if (!tier) return child_cannot_open;
  std::mt19937 random(seed);
  for (int round = 0; round != rounds; ++round) {
    std::vector<std::uint64_t> numbers;
    std::vector<Digest> keys;
    std::vector<Blob> values, tags;
    std::vector<TierPut> records;
    for (std::size_t at = 0; at < 3; ++at) {
      const unsigned version = random() % 200;
      numbers.push_back(random() % kSharedNumbers);
      keys.push_back(key_of(numbers[at]));
      values.push_back(shared_value(numbers[at], version));
      tags.push_back({static_cast<std::byte>(version)});
    }
    for (std::size_t at = 0; at < 3; ++at) {
      records.push_back(
          {.key = keys[at], .value = {.bytes = values[at]}, .tag = {.bytes = tags[at]}});
    }
    const auto written = (*tier)->put(records, {.replace = random() % 2 == 0});
    const auto read = (*tier)->get(keys);
    if (random() % 16 == 0) (*tier)->remove(keys)->wait();
    written->wait();
    read->wait();
    for (std::size_t at = 0; at < 3; ++at) {
      const TierOutcome put = written->answer(at).outcome;
      // Files that are being written may fill the cap for a moment.
      if (put != TierOutcome::ok && put != TierOutcome::present && put != TierOutcome::no_room) {
        return child_put_failed;
      }
      const TierAnswer& got = read->answer(at);
      if (got.outcome == TierOutcome::absent) continue;
      if (got.outcome != TierOutcome::ok || !is_right(numbers[at], got.value, got.tag)) {
        return child_read_wrong;
      }
    }
  }
  return child_fine;
}

inline pid_t start_worker(const std::string& path, std::int64_t cap_bytes, unsigned seed,
                          int rounds) {
  const pid_t child = ::fork();
  EXPECT_GE(child, 0);
  if (child == 0) ::_exit(work_on_tier(path, cap_bytes, seed, rounds));
  return child;
}

// Bytes of all files while no process changes the folder.
inline std::int64_t bytes_while_locked(const std::string& path) {
  const int lock = ::open((path + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0) return 0;
  EXPECT_EQ(::flock(lock, LOCK_EX), 0);
  const std::int64_t bytes = bytes_on_disk(path);
  ::close(lock);
  return bytes;
}

}  // namespace pagekv::testing
