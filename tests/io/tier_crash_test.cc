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

// --- killed at one step ------------------------------------------------------------------------

// Ends its process before or after the `step`th call, counted from arm().
class KillingEngine : public IoEngine {
 public:
  KillingEngine(int step, bool after) : step_(step), after_(after) {}
  void arm() { armed_ = true; }

  ssize_t write(int file, std::span<const std::byte> from, std::int64_t offset) override {
    return around([&] { return IoEngine::write(file, from, offset); });
  }
  int create(int folder, const char* path) override {
    return around([&] { return IoEngine::create(folder, path); });
  }
  int resize(int file, std::int64_t bytes) override {
    return around([&] { return IoEngine::resize(file, bytes); });
  }
  int rename(int folder, const char* from, const char* to) override {
    return around([&] { return IoEngine::rename(folder, from, to); });
  }
  int remove(int folder, const char* path) override {
    return around([&] { return IoEngine::remove(folder, path); });
  }

 private:
  template <typename Call>
  auto around(Call call) -> decltype(call()) {
    const bool last = armed_ && step_-- == 0;
    if (last && !after_) ::kill(::getpid(), SIGKILL);
    const auto result = call();
    if (last) ::kill(::getpid(), SIGKILL);
    return result;
  }

  std::atomic<bool> armed_ = false;
  std::atomic<int> step_;
  const bool after_;
};

struct Kill {
  std::int64_t cap_bytes;
  int step;
  bool after;
};

// A process that puts five records of 1,128 bytes, waits to be told, and replaces key 1 by a longer
// one: it evicts where there is no room, creates, writes and renames. Killed on the way, or gone
// through.
void fill_and_replace(const std::string& path, const Kill& kill, int ready, int go) {
  const auto engine = std::make_shared<KillingEngine>(kill.step, kill.after);
  const auto tier =
      open_tier(path, {.cap_bytes = kill.cap_bytes, .threads = 1}, {.engine = engine});
  for (std::uint64_t number = 0; number < 5; ++number) {
    put(*tier, key_of(number), random_bytes(number, 1000));
  }
  char byte = 0;
  if (::write(ready, "r", 1) != 1 || ::read(go, &byte, 1) != 1) ::_exit(2);
  engine->arm();
  put(*tier, key_of(1), random_bytes(11, 2000));
  ::_exit(0);
}

// Returns whether the process went through.
bool kill_at(const Kill& kill) {
  const TemporaryFolder folder;
  const std::string path = folder.path("tier");
  int ready[2], go[2];
  EXPECT_TRUE(::pipe(ready) == 0 && ::pipe(go) == 0);
  const pid_t child = ::fork();
  if (child == 0) fill_and_replace(path, kill, ready[1], go[0]);
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  // A tier that is open all the while, and finds the folder as the other left it.
  const auto tier = open_tier(path, {.cap_bytes = kill.cap_bytes, .threads = 1});
  EXPECT_EQ(::write(go[1], "g", 1), 1);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  for (const int end : {ready[0], ready[1], go[0], go[1]}) ::close(end);

  EXPECT_LE(bytes_on_disk(path), kill.cap_bytes);
  EXPECT_EQ(put(*tier, key_of(4), random_bytes(14, 1000), {}, {.replace = true}).outcome,
            TierOutcome::ok);
  EXPECT_EQ(tier->stats().bytes, bytes_on_disk(path));
  EXPECT_LE(tier->stats().bytes, kill.cap_bytes);
  const Got one = get(*tier, key_of(1));
  if (one.outcome != TierOutcome::absent) {
    EXPECT_TRUE(one.value == random_bytes(1, 1000) || one.value == random_bytes(11, 2000));
  }
  EXPECT_EQ(get(*tier, key_of(4)).value, random_bytes(14, 1000));
  EXPECT_TRUE(tier->verify()->corrupt.empty());
  EXPECT_EQ(temporary_files(path), 0u);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(TierCrashSteps, KilledAtEachStepOfAPut) {
  struct {
    std::int64_t cap_bytes;
    int steps;
  } const cases[] = {
      {.cap_bytes = 20 * 1128, .steps = 5},  // created, resized, head, value, renamed
      {.cap_bytes = 5 * 1128, .steps = 7},   // and two evicted before
  };
  for (const auto& [cap_bytes, steps] : cases) {
    for (const bool after : {false, true}) {
      int step = 0;
      while (!kill_at({cap_bytes, step, after}) && step < 20) ++step;
      EXPECT_EQ(step, steps);
      ASSERT_FALSE(HasFailure()) << cap_bytes << (after ? ", after a step" : ", before a step");
    }
  }
}

}  // namespace
}  // namespace pagekv::testing
