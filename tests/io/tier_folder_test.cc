// The folder of a directory tier: which ones are opened and which refused, what foreign files and
// links do, a folder that cannot be written, and several tiers on one folder.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "io/tier_client.h"

namespace pagekv::testing {
namespace {

namespace fs = std::filesystem;

class TierFolder : public ::testing::Test {
 protected:
  ErrorCode code_of_open(const DirectoryTierOptions& options = {.cap_bytes = 1 << 20}) {
    const auto tier = open_directory_tier(path(), options);
    EXPECT_FALSE(tier);
    return tier ? ErrorCode::books_broken : tier.error().code();
  }
  void put_some(Tier& tier, std::uint64_t numbers) {
    for (std::uint64_t number = 0; number < numbers; ++number) {
      EXPECT_EQ(put(tier, key_of(number), random_bytes(number, 1000)).outcome, TierOutcome::ok);
    }
  }
  std::string record(std::uint64_t number) const {
    return path() + "/" + internal::record_path(key_of(number));
  }
  std::string path() const { return folder_.path("tier"); }

  TemporaryFolder folder_;
};

TEST_F(TierFolder, OptionsThatMakeNoSense) {
  EXPECT_EQ(code_of_open({}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of_open({.cap_bytes = -1}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of_open({.cap_bytes = 1, .threads = 0}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of_open({.cap_bytes = 1, .threads = 100000}), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of_open({.cap_bytes = 1, .max_waiting_bytes = -1}), ErrorCode::invalid_argument);
  EXPECT_FALSE(fs::exists(path()));
}

TEST_F(TierFolder, FoldersThatCannotBe) {
  const auto orphan = open_directory_tier(folder_.path("a/b"), {.cap_bytes = 1});
  ASSERT_FALSE(orphan);
  EXPECT_EQ(orphan.error().code(), ErrorCode::io_error);
  EXPECT_EQ(orphan.error().number(0), ENOENT);
  write_file(path(), "a file");
  EXPECT_EQ(code_of_open(), ErrorCode::io_error);
  EXPECT_EQ(read_file(path()), "a file");
}

TEST_F(TierFolder, AFolderOfSomethingElseIsLeftAlone) {
  fs::create_directory(path());
  write_file(path() + "/thesis.tex", "years of work");
  const auto tier = open_directory_tier(path(), {.cap_bytes = 1 << 20});
  ASSERT_FALSE(tier);
  EXPECT_EQ(tier.error().code(), ErrorCode::invalid_argument);
  EXPECT_NE(tier.error().message().find("thesis.tex"), std::string::npos);
  EXPECT_EQ(std::distance(fs::directory_iterator(path()), {}), 1);
  write_file(path() + "/format", "of another program");
  EXPECT_EQ(code_of_open(), ErrorCode::invalid_argument);
  EXPECT_EQ(std::distance(fs::directory_iterator(path()), {}), 2);
}

TEST_F(TierFolder, AnotherVersionIsUnsupported) {
  open_tier(path(), {.cap_bytes = 1 << 20});
  write_file(path() + "/format", "pagekv tier, format 2\n");
  EXPECT_EQ(code_of_open(), ErrorCode::unsupported);
  EXPECT_EQ(code_of_open({.read_only = true}), ErrorCode::unsupported);
}

TEST_F(TierFolder, MadeAgainWhereTheMakingWasCutShort) {
  fs::create_directory(path());
  for (const char* name : {"/lock", "/usage", "/format.new"}) write_file(path() + name, "");
  const auto tier = open_tier(path(), {.cap_bytes = 1 << 20});
  ASSERT_TRUE(tier);
  put_some(*tier, 1);
}

TEST_F(TierFolder, ASubfolderThatIsALinkIsRefused) {
  open_tier(path(), {.cap_bytes = 1 << 20});
  fs::create_directory(folder_.path("elsewhere"));
  fs::create_directory_symlink(folder_.path("elsewhere"), path() + "/ab");
  EXPECT_EQ(code_of_open(), ErrorCode::invalid_argument);
}

TEST_F(TierFolder, ForeignFilesAreNeitherCountedNorRemoved) {
  auto tier = open_tier(path(), {.cap_bytes = 1 << 20});
  put_some(*tier, 3);
  tier.reset();
  const std::string subfolder = fs::path(record(0)).parent_path();
  const std::string name = fs::path(record(0)).filename();
  const std::string other = (name[0] == '0' ? "1" : "0") + name.substr(1);
  std::string upper = name;
  upper[3] = 'F';
  const std::vector<std::string> foreign = {path() + "/notes.txt",
                                            subfolder + "/notes.txt",
                                            subfolder + "/" + other,
                                            subfolder + "/" + upper,
                                            subfolder + "/" + name + ".new.x",
                                            subfolder + "/" + name + "0",
                                            subfolder + "/" + name + ".new.",
                                            subfolder + "/" + name + ".bak"};
  for (const std::string& file : foreign) write_file(file, "mine");
  tier = open_tier(path(), {.cap_bytes = 1});
  EXPECT_EQ(tier->stats().bytes, 0);
  for (const std::string& file : foreign) EXPECT_EQ(read_file(file), "mine") << file;
}

TEST_F(TierFolder, NamesThatAreTakenAreMissesAndStay) {
  auto tier = open_tier(path(), {.cap_bytes = 1 << 20});
  put_some(*tier, 4);
  for (const std::uint64_t number : {0, 1, 2}) fs::remove(record(number));
  write_file(folder_.path("secret"), "not a record");
  fs::create_symlink(folder_.path("secret"), record(0));
  fs::create_directory(record(1));
  ASSERT_EQ(::mkfifo(record(2).c_str(), 0600), 0);
  for (const std::uint64_t number : {0, 1, 2}) {
    EXPECT_FALSE(exists(*tier, key_of(number)));
    EXPECT_EQ(get(*tier, key_of(number)).outcome, TierOutcome::absent);
    EXPECT_EQ(remove(*tier, key_of(number)).outcome, TierOutcome::absent);
    const TierAnswer answer = put(*tier, key_of(number), {}, {}, {.replace = true});
    EXPECT_EQ(answer.outcome, TierOutcome::io_error);
    EXPECT_EQ(answer.system_error, EEXIST);
  }
  tier = open_tier(path(), {.cap_bytes = 1});
  EXPECT_EQ(read_file(folder_.path("secret")), "not a record");
  EXPECT_TRUE(fs::is_symlink(record(0)));
  EXPECT_TRUE(fs::is_directory(record(1)));
  EXPECT_TRUE(fs::is_fifo(record(2)));
  EXPECT_FALSE(fs::exists(record(3)));
  EXPECT_EQ(temporary_files(path()), 0u);
}

TEST_F(TierFolder, WhatDeadWritersLeftIsRemovedAndWhatLivingOnesWriteIsNot) {
  auto tier = open_tier(path(), {.cap_bytes = 1 << 20});
  put_some(*tier, 1);
  tier.reset();
  const std::string dead = record(0) + ".new.123", living = record(0) + ".new.456";
  write_file(dead, std::string(5000, 'x'));
  write_file(living, std::string(3000, 'x'));
  const int lock = ::open(living.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(lock, LOCK_EX), 0);
  tier = open_tier(path(), {.cap_bytes = 1 << 20});
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(living));
  EXPECT_EQ(tier->stats().bytes, 1128 + 3000);
  ::close(lock);
  tier = open_tier(path(), {.cap_bytes = 1 << 20});
  EXPECT_FALSE(fs::exists(living));
  EXPECT_EQ(tier->stats().bytes, 1128);
}

TEST_F(TierFolder, ADamagedCountIsMadeAnew) {
  auto tier = open_tier(path(), {.cap_bytes = 3 * 1128});
  put_some(*tier, 2);
  for (const std::string& bytes : {std::string(), std::string(40, '\0'), std::string(40, '\xff')}) {
    write_file(path() + "/usage", bytes);
    put_some(*tier, 0);
    EXPECT_EQ(put(*tier, key_of(7), random_bytes(7, 1000), {}, {.replace = true}).outcome,
              TierOutcome::ok);
    EXPECT_EQ(tier->stats().bytes, bytes_on_disk(path()));
    EXPECT_LE(tier->stats().bytes, 3 * 1128);
  }
}

TEST_F(TierFolder, TwoTiersShareRecordsAndTheCap) {
  auto one = open_tier(path(), {.cap_bytes = 10 * 1128, .use_interval = {}});
  auto two = open_tier(path(), {.cap_bytes = 10 * 1128, .use_interval = {}});
  put_some(*one, 10);
  EXPECT_EQ(get(*two, key_of(3)).value, random_bytes(3, 1000));
  EXPECT_EQ(put(*two, key_of(0), random_bytes(0, 1000)).outcome, TierOutcome::present);
  // Two knows next to nothing of what there is, and still evicts in everybody's order.
  for (std::uint64_t number = 100; number < 108; ++number) {
    EXPECT_EQ(put(*two, key_of(number), random_bytes(number, 1000)).outcome, TierOutcome::ok);
    EXPECT_LE(bytes_on_disk(path()), 10 * 1128);
  }
  EXPECT_TRUE(exists(*one, key_of(0)));
  EXPECT_TRUE(exists(*one, key_of(3)));
  EXPECT_EQ(get(*one, key_of(1)).outcome, TierOutcome::absent);
  EXPECT_EQ(get(*one, key_of(107)).value, random_bytes(107, 1000));
  EXPECT_EQ(one->list(false)->size(), 10u);
  EXPECT_EQ(one->stats().bytes, 10 * 1128);
}

TEST_F(TierFolder, UsesByOtherTiersCount) {
  auto one = open_tier(path(), {.cap_bytes = 5 * 1128, .use_interval = {}});
  put_some(*one, 5);
  auto two = open_tier(path(), {.cap_bytes = 5 * 1128, .use_interval = {}});
  get(*two, key_of(0));
  EXPECT_EQ(put(*one, key_of(5), random_bytes(5, 1000)).outcome, TierOutcome::ok);
  EXPECT_TRUE(exists(*one, key_of(0)));
  EXPECT_FALSE(exists(*one, key_of(1)));
}

TEST_F(TierFolder, ClocksThatDifferDoNotMixUpPuts) {
  const std::int64_t now = internal::system_time_ns();
  auto early = open_tier(path(), {.cap_bytes = 1 << 20}, {.system_ns = [] { return 5; }});
  auto late = open_tier(path(), {.cap_bytes = 1 << 20}, {.system_ns = [now] { return now; }});
  for (std::uint64_t number = 0; number < 6; ++number) {
    put(number % 2 ? *early : *late, key_of(number), {});
  }
  const auto list = early->list(false);
  ASSERT_EQ(list->size(), 6u);
  for (std::uint64_t at = 0; at < 6; ++at) EXPECT_EQ((*list)[at].key, key_of(at));
}

TEST_F(TierFolder, RecordsThatOthersReplaceByLongerOnesAreCountedRight) {
  auto one = open_tier(path(), {.cap_bytes = 1 << 20});
  put_some(*one, 6);
  auto two = open_tier(path(), {.cap_bytes = 1 << 20});
  for (std::uint64_t number = 0; number < 6; ++number) {
    put(*two, key_of(number), random_bytes(number, 3000), {}, {.replace = true});
  }
  EXPECT_EQ(remove(*one, key_of(0)).outcome, TierOutcome::ok);
  EXPECT_EQ(put(*one, key_of(1), random_bytes(1, 10), {}, {.replace = true}).outcome,
            TierOutcome::ok);
  EXPECT_EQ(remove(*one, key_of(2)).outcome, TierOutcome::ok);
  EXPECT_EQ(put(*one, key_of(9), random_bytes(9, 10)).outcome, TierOutcome::ok);
  EXPECT_EQ(one->stats().bytes, bytes_on_disk(path()));
}

TEST_F(TierFolder, OfTwoThatPutTheSameTheFirstStays) {
  auto other = open_tier(path(), {.cap_bytes = 1 << 20});
  const auto engine = std::make_shared<FaultyEngine>();
  auto tier = open_tier(path(), {.cap_bytes = 1 << 20}, {.engine = engine});
  std::atomic<int> calls = 0;
  engine->on_write = [&]() -> std::optional<int> {
    if (calls++ == 0) put(*other, key_of(0), random_bytes(1, 1000));
    return std::nullopt;
  };
  EXPECT_EQ(put(*tier, key_of(0), random_bytes(0, 1000)).outcome, TierOutcome::present);
  EXPECT_EQ(get(*tier, key_of(0)).value, random_bytes(1, 1000));
  EXPECT_EQ(tier->stats().bytes, bytes_on_disk(path()));
  EXPECT_EQ(temporary_files(path()), 0u);
}

TEST_F(TierFolder, TheSmallerCapHoldsForAllWhenItsTierWrites) {
  auto large = open_tier(path(), {.cap_bytes = 20 * 1128});
  auto small = open_tier(path(), {.cap_bytes = 5 * 1128});
  put_some(*large, 20);
  EXPECT_EQ(put(*small, key_of(50), random_bytes(50, 1000)).outcome, TierOutcome::ok);
  EXPECT_EQ(bytes_on_disk(path()), 5 * 1128);
}

TEST_F(TierFolder, OpenedReadOnlyNothingIsWritten) {
  EXPECT_EQ(code_of_open({.read_only = true}), ErrorCode::io_error);
  EXPECT_FALSE(fs::exists(path()));
  fs::create_directory(path());
  EXPECT_EQ(code_of_open({.read_only = true}), ErrorCode::invalid_argument);
  put_some(*open_tier(path(), {.cap_bytes = 1 << 20}), 2);
  write_file(record(1), "damaged");
  write_file(record(0) + ".new.1", "left over");
  const auto time = fs::last_write_time(record(0));
  const auto tier = open_tier(path(), {.read_only = true, .use_interval = {}});
  ASSERT_TRUE(tier);
  EXPECT_EQ(get(*tier, key_of(0)).value, random_bytes(0, 1000));
  EXPECT_EQ(get(*tier, key_of(1)).outcome, TierOutcome::corrupt);
  EXPECT_EQ(put(*tier, key_of(5), {}).outcome, TierOutcome::read_only);
  EXPECT_EQ(remove(*tier, key_of(0)).outcome, TierOutcome::read_only);
  EXPECT_FALSE(tier->prune(0));
  EXPECT_EQ(tier->list(true)->size(), 2u);
  EXPECT_EQ(tier->verify()->corrupt.size(), 1u);
  EXPECT_EQ(fs::last_write_time(record(0)), time);
  EXPECT_EQ(read_file(record(1)), "damaged");
  EXPECT_EQ(temporary_files(path()), 1u);
}

// Mounts over `path` in a mount namespace of this process. False: the system does not let us.
bool mount_over(const std::string& from, const std::string& path, const char* kind,
                const char* options) {
  static const bool own_namespace =
      ::unshare(CLONE_NEWNS) == 0 &&
      ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  if (!own_namespace) return false;
  if (kind != nullptr) return ::mount(from.c_str(), path.c_str(), kind, 0, options) == 0;
  return ::mount(from.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
         ::mount("none", path.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) == 0;
}

TEST_F(TierFolder, AFolderThatCannotBeWritten) {
  put_some(*open_tier(path(), {.cap_bytes = 1 << 20}), 2);
  if (!mount_over(path(), path(), nullptr, nullptr)) GTEST_SKIP() << "mount() is not permitted";
  {
    const auto tier = open_tier(path(), {.cap_bytes = 1, .use_interval = {}});
    ASSERT_TRUE(tier);
    EXPECT_EQ(get(*tier, key_of(0)).value, random_bytes(0, 1000));
    EXPECT_TRUE(exists(*tier, key_of(1)));
    EXPECT_EQ(put(*tier, key_of(5), {}).outcome, TierOutcome::read_only);
    EXPECT_EQ(remove(*tier, key_of(0)).outcome, TierOutcome::read_only);
    EXPECT_EQ(tier->stats().records, 2);
    EXPECT_EQ(tier->stats().refused, 2);
  }
  EXPECT_EQ(::umount2(path().c_str(), MNT_DETACH), 0);
}

TEST_F(TierFolder, ADiskThatIsFull) {
  fs::create_directory(path());
  if (!mount_over("none", path(), "tmpfs", "size=256k")) {
    GTEST_SKIP() << "mount() is not permitted";
  }
  {
    auto tier = open_tier(path(), {.cap_bytes = 1 << 20});
    ASSERT_TRUE(tier);
    std::uint64_t number = 0;
    TierAnswer answer;
    for (; answer.outcome != TierOutcome::io_error && number < 100; ++number) {
      answer = put(*tier, key_of(number), random_bytes(number, 10000));
    }
    EXPECT_EQ(answer.outcome, TierOutcome::io_error);
    EXPECT_EQ(answer.system_error, ENOSPC);
    EXPECT_GT(number, 10u);
    EXPECT_EQ(temporary_files(path()), 0u);
    EXPECT_EQ(tier->stats().bytes, bytes_on_disk(path()));
    for (std::uint64_t at = 0; at + 1 < number; ++at) {
      EXPECT_EQ(get(*tier, key_of(at)).value, random_bytes(at, 10000));
    }
    EXPECT_GT(*tier->prune(100'000), 0);
    EXPECT_EQ(put(*tier, key_of(number), random_bytes(number, 10000)).outcome, TierOutcome::ok);
    EXPECT_EQ(tier->stats().io_errors, 1);
    EXPECT_TRUE(tier->verify()->corrupt.empty());
  }
  EXPECT_EQ(::umount2(path().c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace pagekv::testing
