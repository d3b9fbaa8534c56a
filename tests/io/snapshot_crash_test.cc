// A process that is killed while it saves, at random instants: the file is what it was before, or
// the new one, whole; and what was half done goes with the next save. PAGEKV_TEST_SCALE multiplies
// the rounds.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "core/test_backend.h"
#include "core/token_cache.h"
#include "io/file.h"
#include "support/files.h"
#include "support/random_history.h"

namespace pagekv::testing {
namespace {

const Format kFormat = *Format::parse("kv8");

struct Side {
  TestDevice test{1};
  TokenCache cache{test.device, small_layout({0, 40}, kFormat), {.cap_bytes = 16 << 20}};

  Sequence compute(const Tokens& tokens) {
    Sequence sequence = *cache.store().create_sequence();
    EXPECT_TRUE(cache.append(sequence, tokens));
    return sequence;
  }
  void save_as(const std::string& path, const Tokens& tokens) {
    const Sequence sequence = compute(tokens);
    ASSERT_TRUE(save(cache.store(), sequence.ref(), ids(tokens), path, {.sync = false}));
  }
};

const Tokens kTexts[] = {count_up(1, 300), count_up(5000, 120)};

// Saves one text after the other until it is killed.
[[noreturn]] void save_for_ever(const std::string& path) {
  Side side;
  const Sequence sequences[] = {side.compute(kTexts[0]), side.compute(kTexts[1])};
  for (std::size_t round = 0;; ++round) {
    const std::size_t at = round % 2;
    const auto saved =
        save(side.cache.store(), sequences[at].ref(), ids(kTexts[at]), path, {.sync = false});
    if (!saved) _exit(1);
  }
}

TEST(SnapshotCrash, KilledAtRandom) {
  TemporaryFolder folder;
  const std::string path = folder.path("talk");
  std::mt19937 random(test_seed());
  Side side;
  int left_overs = 0;
  int absent = 0;
  const int rounds = 20 * test_scale();
  for (int round = 0; round < rounds; ++round) {
    if (random() % 4 == 0) std::filesystem::remove(path);
    const pid_t child = fork();
    if (child == 0) save_for_ever(path);
    ::usleep(random() % 15'000);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "ended by itself: " << WEXITSTATUS(status);
    const bool there = std::filesystem::exists(path);
    left_overs += static_cast<int>(folder.files()) - (there ? 1 : 0);
    absent += there ? 0 : 1;
    if (!there) continue;
    auto loaded = load(side.cache.store(), path);
    ASSERT_TRUE(loaded) << loaded.error().message();
    const Tokens& text = kTexts[loaded->tokens == ids(kTexts[0]) ? 0 : 1];
    ASSERT_EQ(loaded->tokens, ids(text));
    ASSERT_TRUE(side.cache.holds(loaded->sequence, text));
  }
  std::printf("%d rounds, %d left-over files, %d times no file\n", rounds, left_overs, absent);
  side.save_as(path, kTexts[0]);
  EXPECT_EQ(folder.files(), 1u) << "left-overs are gone";
}

// As on a full disk: the system takes the first bytes and refuses the others.
TEST(SnapshotCrash, WhatDoesNotFitLeavesTheFileAsItWas) {
  TemporaryFolder folder;
  const std::string path = folder.path("talk");
  Side before;
  before.save_as(path, kTexts[1]);
  const std::string bytes = read_file(path);
  const pid_t child = fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{.rlim_cur = 20'000, .rlim_max = 20'000};
    Side side;
    const Sequence sequence = side.compute(kTexts[0]);
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const auto saved = save(side.cache.store(), sequence.ref(), ids(kTexts[0]), path);
    const bool refused = !saved && saved.error().code() == ErrorCode::io_error &&
                         saved.error().number(0) == EFBIG && side.cache.store().check();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read_file(path), bytes);
  EXPECT_EQ(folder.files(), 1u);
}

TEST(SnapshotCrash, FilesThatAreBeingWrittenStay) {
  TemporaryFolder folder;
  Side side;
  const std::string path = folder.path("talk");
  write_file(path + ".saving.1.2", "left by a process that is gone");
  write_file(path + ".saving", "not ours");
  write_file(folder.path("other.saving.1.2"), "of another file");
  auto living = internal::OutputFile::create(path);
  ASSERT_TRUE(living);
  EXPECT_EQ(folder.files(), 3u);
  side.save_as(path, kTexts[1]);
  EXPECT_EQ(folder.files(), 4u) << "the living one is there, and the snapshot";
  ASSERT_TRUE(living->write(0, std::as_bytes(std::span("x", 1))));
  ASSERT_TRUE(living->finish(false));
  EXPECT_EQ(read_file(path), "x");
}

}  // namespace
}  // namespace pagekv::testing
