// Damaged snapshots: every bit of the header, a sample of the data, every length. All are refused
// with a reason, before a page is touched.
#include <gtest/gtest.h>

#include <cstdio>

#include "core/test_backend.h"
#include "core/token_cache.h"
#include "pagekv/snapshot.h"
#include "support/files.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

class SnapshotDamage : public ::testing::Test {
 protected:
  SnapshotDamage() {
    Sequence sequence = *cache_.store().create_sequence();
    EXPECT_TRUE(cache_.append(sequence, tokens_));
    EXPECT_TRUE(
        save(cache_.store(), sequence.ref(), ids(tokens_), folder_.path("good"), {.sync = false}));
    good_ = read_file(folder_.path("good"));
    header_bytes_ = inspect(folder_.path("good"))->tensors[0].offset;
  }

  void expect_refused(const std::string& bytes, const std::string& what) {
    write_file(folder_.path("bad"), bytes);
    const auto loaded = load(cache_.store(), folder_.path("bad"));
    ASSERT_FALSE(loaded) << what;
    ASSERT_TRUE(loaded.error().code() == ErrorCode::corrupt_file ||
                loaded.error().code() == ErrorCode::unsupported)
        << what << ": " << loaded.error().message();
    ASSERT_EQ(cache_.store().stats().groups[0].referenced_pages, 0) << what;
  }

  TestDevice test_;
  TokenCache cache_{test_.device, small_layout({0}, *Format::parse("kv4")), {.cap_bytes = 1 << 20}};
  TemporaryFolder folder_;
  const Tokens tokens_ = count_up(0, 30);
  std::string good_;
  std::int64_t header_bytes_ = 0;
};

TEST_F(SnapshotDamage, EveryBitOfTheHeader) {
  const std::size_t step = kSanitized ? 37 : 1;
  for (std::size_t bit = 0; bit < static_cast<std::size_t>(header_bytes_) * 8; bit += step) {
    std::string bytes = good_;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    expect_refused(bytes, "bit " + std::to_string(bit));
    if (HasFatalFailure()) return;
  }
}

TEST_F(SnapshotDamage, ASampleOfTheDataAndItsPadding) {
  const std::size_t step = kSanitized ? 997 : 101;
  for (std::size_t bit = static_cast<std::size_t>(header_bytes_) * 8; bit < good_.size() * 8;
       bit += step) {
    std::string bytes = good_;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
    expect_refused(bytes, "bit " + std::to_string(bit));
    if (HasFatalFailure()) return;
  }
}

TEST_F(SnapshotDamage, EveryLength) {
  for (std::size_t length = 0; length < good_.size(); length += length < 5000 ? 13 : 997) {
    expect_refused(good_.substr(0, length), "cut to " + std::to_string(length));
    if (HasFatalFailure()) return;
  }
  expect_refused(good_ + '\0', "a byte too many");
}

TEST_F(SnapshotDamage, OtherFiles) {
  expect_refused("", "nothing");
  expect_refused(std::string(10000, '\0'), "zeros");
  expect_refused(std::string(10000, '\xff'), "ones");
  std::string deep = std::string(8, '\0') + std::string(100000, '[');
  deep[0] = static_cast<char>(0xa0), deep[1] = static_cast<char>(0x86), deep[2] = 1;
  expect_refused(deep, "deep nesting");
  const std::string other = R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  expect_refused(std::string(1, static_cast<char>(other.size())) + std::string(7, '\0') + other,
                 "a safetensors file of somebody else");
}

TEST_F(SnapshotDamage, AbsentFilesAndFolders) {
  const auto absent = load(cache_.store(), folder_.path("absent"));
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code(), ErrorCode::io_error);
  EXPECT_EQ(absent.error().number(0), ENOENT);
  EXPECT_FALSE(inspect(folder_.path("")));
}

TEST_F(SnapshotDamage, WithoutVerifyingTheHeaderIsStillProved) {
  std::string bytes = good_;
  bytes[static_cast<std::size_t>(header_bytes_) + 5000] ^= 1;
  write_file(folder_.path("bad"), bytes);
  EXPECT_TRUE(load(cache_.store(), folder_.path("bad"), {.verify = false}));
  EXPECT_TRUE(inspect(folder_.path("bad")));
  EXPECT_FALSE(inspect(folder_.path("bad"), true));
}

}  // namespace
}  // namespace pagekv::testing
