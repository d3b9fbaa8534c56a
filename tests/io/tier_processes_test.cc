// Several processes at one folder: what they read is right, and together they stay within the cap.
#include "io/tier_processes.h"

#include <gtest/gtest.h>

#include "support/random_history.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

constexpr std::int64_t kCapBytes = 60'000;  // of about 144,000 that would be there without

TEST(TierProcesses, ShareOneFolder) {
  const unsigned seed = test_seed();
  const TemporaryFolder folder;
  const std::string path = folder.path("tier");
  const int rounds = (kSanitized ? 150 : 500) * test_scale();
  std::vector<pid_t> children;
  for (unsigned child = 0; child < 3; ++child) {
    children.push_back(start_worker(path, kCapBytes, seed + child, rounds));
  }
  std::int64_t most = 0;
  while (!children.empty()) {
    most = std::max(most, bytes_while_locked(path));
    int status = 0;
    const pid_t child = ::waitpid(-1, &status, WNOHANG);
    if (child > 0) {
      EXPECT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), child_fine);
      std::erase(children, child);
    }
    ::usleep(1000);
  }
  EXPECT_LE(most, kCapBytes);
  EXPECT_GT(most, kCapBytes / 2);
  EXPECT_EQ(temporary_files(path), 0u);
  const auto tier = open_tier(path, {.cap_bytes = kCapBytes});
  EXPECT_TRUE(tier->verify()->corrupt.empty());
  EXPECT_EQ(tier->stats().bytes, bytes_on_disk(path));
}

// What one has put, the other finds; what the other evicts is a miss for the first.
TEST(TierProcesses, FindEachOthersRecords) {
  const TemporaryFolder folder;
  const std::string path = folder.path("tier");
  const pid_t child = ::fork();
  if (child == 0) {
    const auto tier = open_directory_tier(path, {.cap_bytes = 10'000});
    ::_exit(put(**tier, key_of(1), random_bytes(1, 3000)).outcome == TierOutcome::ok ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  pid_t evictor = 0;
  {
    int ready[2], go[2];
    ASSERT_EQ(::pipe(ready), 0);
    ASSERT_EQ(::pipe(go), 0);
    evictor = ::fork();
    if (evictor == 0) {
      const auto tier = open_directory_tier(path, {.cap_bytes = 10'000});
      char byte = 0;
      const bool told = ::write(ready[1], "r", 1) == 1 && ::read(go[0], &byte, 1) == 1;
      ::_exit(told && put(**tier, key_of(2), random_bytes(2, 9000)).outcome == TierOutcome::ok ? 0
                                                                                               : 1);
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    const auto tier = open_tier(path, {.cap_bytes = 10'000});
    EXPECT_EQ(get(*tier, key_of(1)).value, random_bytes(1, 3000));
    ASSERT_EQ(::write(go[1], "g", 1), 1);
    ASSERT_EQ(::waitpid(evictor, &status, 0), evictor);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(get(*tier, key_of(1)).outcome, TierOutcome::absent);
    EXPECT_EQ(get(*tier, key_of(2)).value, random_bytes(2, 9000));
    EXPECT_EQ(put(*tier, key_of(1), random_bytes(1, 3000)).outcome, TierOutcome::ok);
    EXPECT_EQ(get(*tier, key_of(2)).outcome, TierOutcome::absent);
    for (const int end : {ready[0], ready[1], go[0], go[1]}) ::close(end);
  }
}

}  // namespace
}  // namespace pagekv::testing
