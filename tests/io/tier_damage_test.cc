// Damaged records: every bit of the head, a sample of the value's, every length. All are misses,
// and gone afterwards. And a system that fails: errors, short reads and writes, full disks.
#include <gtest/gtest.h>

#include "io/tier_client.h"

namespace pagekv::testing {
namespace {

namespace fs = std::filesystem;

class TierDamage : public ::testing::Test {
 protected:
  TierDamage() {
    EXPECT_EQ(put(*tier_, key_of(0), random_bytes(0, 3000), random_bytes(1, 50)).outcome,
              TierOutcome::ok);
    good_ = read_file(file_);
  }
  void expect_miss(const std::string& bytes, const std::string& what) {
    write_file(file_, bytes);
    const TierCheck check = *tier_->verify();
    ASSERT_EQ(check.corrupt, std::vector<Digest>{key_of(0)}) << what;
    ASSERT_EQ(get(*tier_, key_of(0)).outcome, TierOutcome::corrupt) << what;
    ASSERT_FALSE(fs::exists(file_)) << what;
    ASSERT_EQ(get(*tier_, key_of(0)).outcome, TierOutcome::absent) << what;
    ASSERT_EQ(tier_->stats().bytes, 0) << what;
  }
  void flip(std::size_t bit) {
    std::string bytes = good_;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    expect_miss(bytes, "bit " + std::to_string(bit));
  }

  TemporaryFolder folder_;
  std::unique_ptr<Tier> tier_ = open_tier(folder_.path("tier"), {.cap_bytes = 1 << 20});
  const std::string file_ = folder_.path("tier/" + internal::record_path(key_of(0)));
  std::string good_;
};

TEST_F(TierDamage, EveryBitOfTheHead) {
  for (std::size_t bit = 0; bit < 128 * 8 && !HasFatalFailure(); ++bit) flip(bit);
  EXPECT_EQ(tier_->stats().corrupt, 128 * 8);
  write_file(file_, good_);
  EXPECT_EQ(get(*tier_, key_of(0)).value, random_bytes(0, 3000));
}

TEST_F(TierDamage, ASampleOfTheValue) {
  for (std::size_t bit = 128 * 8; bit < good_.size() * 8 && !HasFatalFailure(); bit += 37) {
    flip(bit);
  }
}

TEST_F(TierDamage, EveryLength) {
  for (std::size_t length = 0; length < good_.size() && !HasFatalFailure();
       length += length < 300 ? 1 : 7) {
    expect_miss(good_.substr(0, length), "cut to " + std::to_string(length));
  }
  expect_miss(good_ + '\0', "a byte too many");
  expect_miss(good_ + good_, "twice");
}

TEST_F(TierDamage, OtherContents) {
  expect_miss(std::string(good_.size(), '\0'), "zeros, as a power cut may leave");
  expect_miss(good_.substr(0, 4096 < good_.size() ? 4096 : 2048) + std::string(1080, '\0'),
              "a torn end");
  put(*tier_, key_of(1), random_bytes(5, 3000), random_bytes(1, 50));
  const std::string other = read_file(folder_.path("tier/" + internal::record_path(key_of(1))));
  remove(*tier_, key_of(1));
  expect_miss(other, "a whole record of another key");
  expect_miss(good_.substr(0, 128) + other.substr(128), "the value of another");
}

TEST_F(TierDamage, AHugeFileIsNotRead) {
  fs::resize_file(file_, std::uintmax_t{1} << 42);
  EXPECT_EQ(get(*tier_, key_of(0)).outcome, TierOutcome::corrupt);
  EXPECT_FALSE(fs::exists(file_));
}

TEST_F(TierDamage, ALengthenedFileDoesNotMakeTheCountTooLow) {
  put(*tier_, key_of(1), random_bytes(1, 1000));
  write_file(file_, good_ + std::string(100'000, 'x'));
  EXPECT_EQ(remove(*tier_, key_of(0)).outcome, TierOutcome::ok);
  EXPECT_EQ(tier_->stats().bytes, 1128);
}

TEST_F(TierDamage, ADamagedRecordIsPutAgain) {
  write_file(file_, good_.substr(0, 1000));
  EXPECT_EQ(put(*tier_, key_of(0), random_bytes(0, 3000), random_bytes(1, 50)).outcome,
            TierOutcome::ok);
  EXPECT_EQ(read_file(file_), good_);
}

TEST_F(TierDamage, AGoodRecordThatCameMeanwhileStays) {
  const auto engine = std::make_shared<FaultyEngine>();
  const auto reader = open_tier(folder_.path("tier"), {.cap_bytes = 1 << 20}, {.engine = engine});
  std::string damaged = good_;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  write_file(file_, damaged);
  std::atomic<int> calls = 0;
  engine->on_read = [&]() -> std::optional<int> {
    if (calls++ == 1) {  // head read, value not yet
      write_file(folder_.path("good"), good_);
      fs::rename(folder_.path("good"), file_);
    }
    return std::nullopt;
  };
  EXPECT_EQ(get(*reader, key_of(0)).outcome, TierOutcome::corrupt);
  EXPECT_EQ(get(*reader, key_of(0)).value, random_bytes(0, 3000));
}

// --- a system that fails -----------------------------------------------------------------------

class TierFaults : public ::testing::Test {
 protected:
  // Fails once, at the call of that number.
  FaultyEngine::Hook once(int call, int code) {
    auto calls = std::make_shared<std::atomic<int>>(0);
    return [calls, call, code]() -> std::optional<int> {
      if (calls->fetch_add(1) == call) return code;
      return std::nullopt;
    };
  }
  TierAnswer put_zero() { return put(*tier_, key_of(0), random_bytes(0, 3000)); }
  void expect_nothing_left() {
    EXPECT_EQ(tier_->stats().bytes, 0);
    EXPECT_EQ(bytes_on_disk(folder_.path("tier")), 0);
    EXPECT_FALSE(exists(*tier_, key_of(0)));
  }

  TemporaryFolder folder_;
  std::shared_ptr<FaultyEngine> engine_ = std::make_shared<FaultyEngine>();
  std::unique_ptr<Tier> tier_ =
      open_tier(folder_.path("tier"), {.cap_bytes = 10'000, .sync = true}, {.engine = engine_});
};

TEST_F(TierFaults, ReadsThatFailAreMisses) {
  put_zero();
  for (const int call : {0, 1}) {
    engine_->on_read = once(call, EIO);
    const Got got = get(*tier_, key_of(0));
    EXPECT_EQ(got.outcome, TierOutcome::io_error);
    EXPECT_EQ(got.system_error, EIO);
    EXPECT_TRUE(got.value.empty());
    EXPECT_EQ(get(*tier_, key_of(0)).value, random_bytes(0, 3000));  // the next one does not
  }
  engine_->on_read = [] { return EIO; };
  EXPECT_EQ(tier_->verify()->unreadable.size(), 1u);
  EXPECT_EQ(tier_->stats().io_errors, 2);
}

TEST_F(TierFaults, ShortReadsAndWritesGoOn) {
  engine_->on_read = engine_->on_write = [] { return 0; };
  EXPECT_EQ(put_zero().outcome, TierOutcome::ok);
  EXPECT_EQ(get(*tier_, key_of(0)).value, random_bytes(0, 3000));
  std::atomic<int> calls = 0;
  engine_->on_read = [&calls]() -> std::optional<int> { return ++calls % 2 ? EINTR : 0; };
  EXPECT_EQ(get(*tier_, key_of(0)).value, random_bytes(0, 3000));
}

TEST_F(TierFaults, AFullDiskRefusesAndLeavesNothing) {
  for (const int call : {0, 1}) {
    engine_->on_write = once(call, ENOSPC);
    const TierAnswer answer = put_zero();
    EXPECT_EQ(answer.outcome, TierOutcome::io_error);
    EXPECT_EQ(answer.system_error, ENOSPC);
    expect_nothing_left();
  }
  EXPECT_EQ(put_zero().outcome, TierOutcome::ok);
}

TEST_F(TierFaults, EveryStepOfAPutMayFail) {
  FaultyEngine::Hook* const hooks[] = {&engine_->on_create, &engine_->on_resize, &engine_->on_write,
                                       &engine_->on_sync, &engine_->on_rename};
  for (FaultyEngine::Hook* hook : hooks) {
    *hook = once(0, EIO);
    const TierAnswer answer = put_zero();
    EXPECT_EQ(answer.outcome, TierOutcome::io_error);
    EXPECT_EQ(answer.system_error, EIO);
    expect_nothing_left();
    *hook = {};
  }
  engine_->on_create = once(0, EROFS);
  EXPECT_EQ(put_zero().outcome, TierOutcome::read_only);
  expect_nothing_left();
}

TEST_F(TierFaults, AFolderThatCannotBeSynced) {
  engine_->on_sync = once(1, EIO);
  EXPECT_EQ(put_zero().outcome, TierOutcome::io_error);
  EXPECT_EQ(get(*tier_, key_of(0)).value, random_bytes(0, 3000));  // there, if not for ever
  engine_->on_sync = once(1, EINVAL);  // a system that has no such thing
  EXPECT_EQ(put(*tier_, key_of(1), {}).outcome, TierOutcome::ok);
}

TEST_F(TierFaults, WhatCannotBeRemovedIsCounted) {
  put_zero();
  engine_->on_remove = [] { return EIO; };
  EXPECT_EQ(remove(*tier_, key_of(0)).outcome, TierOutcome::io_error);
  EXPECT_EQ(put(*tier_, key_of(1), random_bytes(1, 9000)).outcome, TierOutcome::no_room);
  EXPECT_EQ(tier_->stats().bytes, bytes_on_disk(folder_.path("tier")));
  EXPECT_EQ(tier_->stats().bytes, 3128);
  // Nor can the rest of a put that failed: it counts until somebody can.
  engine_->on_write = once(0, ENOSPC);
  EXPECT_EQ(put(*tier_, key_of(2), random_bytes(1, 1000)).outcome, TierOutcome::io_error);
  EXPECT_EQ(tier_->stats().bytes, bytes_on_disk(folder_.path("tier")));
  engine_->on_remove = {};
  EXPECT_EQ(put(*tier_, key_of(1), random_bytes(1, 9000)).outcome, TierOutcome::ok);
  EXPECT_EQ(bytes_on_disk(folder_.path("tier")), 9128);
}

}  // namespace
}  // namespace pagekv::testing
