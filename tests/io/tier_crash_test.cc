// Processes that are killed while they work on a tier, at random instants: by then and afterwards
// every record is whole or not there, the cap holds, and what was half done is cleared away.
// PAGEKV_TEST_SCALE multiplies the rounds.
#include <gtest/gtest.h>

#include <cstdio>

#include "io/tier_processes.h"
#include "support/random_history.h"

namespace pagekv::testing {
namespace {

constexpr std::int64_t kCapBytes = 60'000;

class TierCrash : public ::testing::Test {
 protected:
  void kill_one(pid_t child, unsigned most_us) {
    ::usleep(random_() % most_us);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "ended by itself: " << WEXITSTATUS(status);
  }
  void check_folder() {
    if (!std::filesystem::exists(path_)) return;  // killed before it had done anything
    ASSERT_LE(bytes_on_disk(path_), kCapBytes);
    left_overs_ += temporary_files(path_);
    marked_ += is_marked() ? 1 : 0;
    const auto tier = open_tier(path_, {.cap_bytes = kCapBytes, .threads = 1});
    ASSERT_TRUE(tier);
    ASSERT_EQ(temporary_files(path_), 0u);
    ASSERT_EQ(tier->stats().bytes, bytes_on_disk(path_));
    ASSERT_LE(tier->stats().bytes, kCapBytes);
    std::int64_t found = 0;
    for (std::uint64_t number = 0; number < kSharedNumbers; ++number) {
      const Got got = get(*tier, key_of(number));
      if (got.outcome == TierOutcome::absent) continue;
      ASSERT_EQ(got.outcome, TierOutcome::ok);
      ASSERT_TRUE(is_right(number, got.value, got.tag));
      ++found;
    }
    ASSERT_EQ(found, tier->stats().records);
  }
  bool is_marked() const {
    const std::string usage = read_file(path_ + "/usage");
    return !usage.empty() && usage[0] != 0;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path("tier");
  std::mt19937 random_{test_seed()};
  std::size_t left_overs_ = 0;
  int marked_ = 0;
};

TEST_F(TierCrash, KilledAtRandom) {
  const int rounds = 20 * test_scale();
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = start_worker(path_, kCapBytes, random_(), -1);
    // In every other round a second process goes on after the first is gone.
    const pid_t other = round % 2 ? start_worker(path_, kCapBytes, random_(), -1) : 0;
    kill_one(child, 30'000);
    if (other != 0) kill_one(other, 10'000);
    if (!HasFatalFailure()) check_folder();
    ASSERT_FALSE(HasFatalFailure()) << "round " << round;
  }
  std::printf("%d rounds, %zu left-over files, %d times in the middle of a change\n", rounds,
              left_overs_, marked_);
}

}  // namespace
}  // namespace pagekv::testing
