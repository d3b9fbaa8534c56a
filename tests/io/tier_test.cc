// Records of a directory tier: put, found, replaced, removed, evicted in order, pinned; and the
// same after it was closed and opened again.
#include "pagekv/tier.h"

#include <gtest/gtest.h>

#include "io/checksum.h"
#include "io/tier/record.h"
#include "io/tier_client.h"

namespace pagekv::testing {
namespace {

// Files of this many bytes, with a value of 1,000 and no tag.
constexpr std::int64_t kFileBytes = 1128;

class TierRecords : public ::testing::Test {
 protected:
  void open(std::int64_t cap_bytes) {
    tier_.reset();
    tier_ = open_tier(path(), {.cap_bytes = cap_bytes, .threads = 2, .use_interval = {}},
                      {.system_ns = [this] { return now_.load(); }});
  }
  TierOutcome put_number(std::uint64_t number, TierOptions options = {}) {
    now_ += 1000;
    return put(*tier_, key_of(number), random_bytes(number, 1000), {}, options).outcome;
  }
  bool get_number(std::uint64_t number) {
    now_ += 1000;
    const Got got = get(*tier_, key_of(number));
    if (got.outcome != TierOutcome::ok) return false;
    EXPECT_EQ(got.value, random_bytes(number, 1000));
    return true;
  }
  // Which of the numbers 0 to 9 are there.
  std::string there() {
    std::string numbers;
    for (std::uint64_t number = 0; number < 10; ++number) {
      if (exists(*tier_, key_of(number))) numbers += std::to_string(number);
    }
    return numbers;
  }
  std::string path() const { return folder_.path("tier"); }

  TemporaryFolder folder_;
  std::atomic<std::int64_t> now_ = std::int64_t{1'700'000'000} * 1'000'000'000;
  std::unique_ptr<Tier> tier_;
};

TEST_F(TierRecords, WhatWasPutIsFound) {
  open(64 << 20);
  for (const std::size_t bytes : {0, 1, 55, 56, 57, 63, 64, 65, 4095, 4096, 4097, 1 << 20}) {
    for (const std::size_t tag_bytes : {0, 1, 55, 56, 57, 120, 4096}) {
      const std::uint64_t number = bytes * 10000 + tag_bytes;
      const Blob value = random_bytes(number, bytes), tag = random_bytes(number + 1, tag_bytes);
      ASSERT_EQ(put(*tier_, key_of(number), value, tag).outcome, TierOutcome::ok);
      const Got got = get(*tier_, key_of(number));
      ASSERT_EQ(got.outcome, TierOutcome::ok) << bytes << " " << tag_bytes;
      EXPECT_EQ(got.value, value);
      EXPECT_EQ(got.tag, tag);
      const auto file = path() + "/" + internal::record_path(key_of(number));
      EXPECT_EQ(static_cast<std::int64_t>(std::filesystem::file_size(file)),
                internal::record_bytes(tag_bytes, bytes));
    }
  }
  const TierStats stats = tier_->stats();
  EXPECT_EQ(stats.bytes, bytes_on_disk(path()));
  EXPECT_EQ(stats.records, 12 * 7);
  EXPECT_EQ(stats.hits, 12 * 7);
  EXPECT_EQ(stats.written, 12 * 7);
  EXPECT_EQ(stats.written_bytes, stats.bytes);
  EXPECT_EQ(stats.read_bytes, stats.bytes);
  EXPECT_EQ(stats.waiting_bytes, 0);
}

TEST_F(TierRecords, ValuesOfAGetAreAligned) {
  open(1 << 20);
  put_number(0);
  const Digest key = key_of(0);
  const auto batch = tier_->get({&key, 1});
  ASSERT_TRUE(batch->wait());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(batch->answer(0).value.data()) % 64, 0u);
}

TEST_F(TierRecords, AbsentOnesAreMisses) {
  open(1 << 20);
  EXPECT_FALSE(get_number(0));
  EXPECT_FALSE(exists(*tier_, key_of(0)));
  EXPECT_EQ(remove(*tier_, key_of(0)).outcome, TierOutcome::absent);
  EXPECT_EQ(tier_->stats().misses, 1);
}

TEST_F(TierRecords, ARecordThatIsThereStaysUnlessReplaced) {
  open(1 << 20);
  const Digest key = key_of(1);
  EXPECT_EQ(put(*tier_, key, random_bytes(1, 500)).outcome, TierOutcome::ok);
  EXPECT_EQ(put(*tier_, key, random_bytes(2, 500)).outcome, TierOutcome::present);
  EXPECT_EQ(get(*tier_, key).value, random_bytes(1, 500));
  EXPECT_EQ(put(*tier_, key, random_bytes(2, 500), {}, {.replace = true}).outcome, TierOutcome::ok);
  EXPECT_EQ(get(*tier_, key).value, random_bytes(2, 500));
  // One of another length is not what is to be there.
  EXPECT_EQ(put(*tier_, key, random_bytes(3, 700)).outcome, TierOutcome::ok);
  EXPECT_EQ(get(*tier_, key).value, random_bytes(3, 700));
  EXPECT_EQ(tier_->stats().bytes, bytes_on_disk(path()));
  EXPECT_EQ(tier_->stats().records, 1);
}

TEST_F(TierRecords, RemovedOnesAreGone) {
  open(1 << 20);
  put_number(0);
  EXPECT_EQ(remove(*tier_, key_of(0)).outcome, TierOutcome::ok);
  EXPECT_FALSE(get_number(0));
  EXPECT_EQ(tier_->stats().bytes, 0);
  EXPECT_EQ(bytes_on_disk(path()), 0);
}

TEST_F(TierRecords, TheLeastRecentlyUsedGoFirst) {
  open(4 * kFileBytes);
  for (const int number : {0, 1, 2, 3}) EXPECT_EQ(put_number(number), TierOutcome::ok);
  EXPECT_EQ(tier_->stats().bytes, 4 * kFileBytes);
  EXPECT_TRUE(get_number(0));
  EXPECT_EQ(put_number(1), TierOutcome::present);  // counts as a use
  put_number(4);
  EXPECT_EQ(there(), "0134");
  put_number(5);
  EXPECT_EQ(there(), "0145");
  EXPECT_TRUE(exists(*tier_, key_of(0)));  // does not count
  put_number(6);
  EXPECT_EQ(there(), "1456");
  EXPECT_EQ(tier_->stats().evicted, 3);
  EXPECT_EQ(tier_->stats().evicted_bytes, 3 * kFileBytes);
  EXPECT_EQ(tier_->stats().bytes, 4 * kFileBytes);
}

TEST_F(TierRecords, TheOrderSurvivesARestart) {
  open(1 << 20);
  for (const int number : {0, 1, 2, 3, 4, 5}) put_number(number);
  get_number(0);
  get_number(3);
  open(1 << 20);
  get_number(1);
  open(4 * kFileBytes);  // 5, 0, 3, 1
  EXPECT_EQ(there(), "0135");
  EXPECT_EQ(tier_->stats().bytes, 4 * kFileBytes);
  EXPECT_EQ(bytes_on_disk(path()), 4 * kFileBytes);
  put_number(6);
  EXPECT_EQ(there(), "0136");
}

TEST_F(TierRecords, TheOrderSurvivesAClockThatGoesBack) {
  open(1 << 20);
  for (const int number : {0, 1, 2}) put_number(number);
  now_ -= std::int64_t{86'400} * 1'000'000'000;
  put_number(3);
  get_number(0);
  now_ -= std::int64_t{86'400} * 1'000'000'000;
  open(1 << 20);
  put_number(4);
  get_number(1);
  now_ = 0;
  open(5 * kFileBytes);  // 2, 3, 0, 4, 1
  put_number(5);
  EXPECT_EQ(there(), "01345");
  now_ = -5;
  open(3 * kFileBytes);
  EXPECT_EQ(there(), "145");
  const auto list = tier_->list(false);
  ASSERT_EQ(list->size(), 3u);
  EXPECT_EQ((*list)[0].key, key_of(4));
  EXPECT_EQ((*list)[1].key, key_of(1));
  EXPECT_EQ((*list)[2].key, key_of(5));
  EXPECT_LT((*list)[1].last_use_ns, (*list)[2].last_use_ns);
}

TEST_F(TierRecords, TheOrderHoldsWhenAClockGoesBackAndUsesAreWrittenRarely) {
  const auto reopen = [this](std::int64_t cap_bytes) {
    tier_.reset();
    tier_ = open_tier(path(), {.cap_bytes = cap_bytes, .use_interval = std::chrono::hours(1)},
                      {.system_ns = [this] { return now_.load(); }});
  };
  reopen(1 << 20);
  for (const int number : {0, 1, 2}) put_number(number);
  now_ -= std::int64_t{86'400} * 1'000'000'000;
  get_number(0);
  reopen(kFileBytes);
  EXPECT_EQ(there(), "0");
}

TEST_F(TierRecords, TimesOfFilesBeyondAllMeasure) {
  open(1 << 20);
  put_number(0);
  tier_.reset();
  std::filesystem::last_write_time(path() + "/" + internal::record_path(key_of(0)),
                                   std::filesystem::file_time_type::max());
  open(1 << 20);
  put_number(1);
  put_number(2);
  const auto list = tier_->list(false);
  ASSERT_EQ(list->size(), 3u);
  EXPECT_EQ((*list)[0].key, key_of(0));
  EXPECT_EQ((*list)[2].key, key_of(2));
}

TEST_F(TierRecords, UsesAreWrittenAtMostOnceAnInterval) {
  tier_ = open_tier(path(), {.cap_bytes = 1 << 20, .use_interval = std::chrono::seconds(10)},
                    {.system_ns = [this] { return now_.load(); }});
  put_number(0);
  const auto file = path() + "/" + internal::record_path(key_of(0));
  const auto written = std::filesystem::last_write_time(file);
  get_number(0);
  EXPECT_EQ(std::filesystem::last_write_time(file), written);
  now_ += std::int64_t{10} * 1'000'000'000;
  get_number(0);
  EXPECT_GT(std::filesystem::last_write_time(file), written);
}

TEST_F(TierRecords, PinnedOnesStay) {
  open(3 * kFileBytes);
  const Digest zero = key_of(0);
  ASSERT_TRUE(tier_->pin({&zero, 1}));  // before it is there
  for (const int number : {0, 1, 2, 3, 4}) put_number(number);
  EXPECT_EQ(there(), "034");
  const std::vector<Digest> keys = {key_of(3), key_of(4), zero};
  ASSERT_TRUE(tier_->pin(keys));
  EXPECT_EQ(tier_->stats().pinned_keys, 3);
  EXPECT_EQ(put_number(5), TierOutcome::no_room);
  EXPECT_EQ(*tier_->prune(0), 0);
  EXPECT_EQ(there(), "034");
  tier_->unpin(keys);
  EXPECT_EQ(put_number(5), TierOutcome::ok);
  EXPECT_EQ(there(), "045");  // zero is pinned once more
  EXPECT_EQ(remove(*tier_, zero).outcome, TierOutcome::ok);
  tier_->unpin({&zero, 1});
  tier_->unpin({&zero, 1});  // once too often
  put_number(0);
  EXPECT_EQ(*tier_->prune(0), 3 * kFileBytes);
  EXPECT_EQ(there(), "");
}

TEST_F(TierRecords, WhatIsLargerThanTheCapIsRefused) {
  open(kFileBytes);
  EXPECT_EQ(put_number(0), TierOutcome::ok);
  EXPECT_EQ(put(*tier_, key_of(1), random_bytes(1, 1001)).outcome, TierOutcome::too_large);
  EXPECT_EQ(there(), "0");
  // A record that is to be replaced makes room for the new one like any other.
  EXPECT_EQ(put_number(0, {.replace = true}), TierOutcome::ok);
  EXPECT_TRUE(get_number(0));
  EXPECT_EQ(tier_->stats().bytes, kFileBytes);
  EXPECT_EQ(tier_->stats().refused, 1);
}

TEST_F(TierRecords, TooLongATagIsAnError) {
  open(1 << 20);
  const Blob tag = random_bytes(1, kMaxTierTagBytes + 1);
  const TierPut records[] = {{.key = key_of(0)}, {.key = key_of(1), .tag = {.bytes = tag}}};
  const auto batch = tier_->put(records);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(batch.error().number(0), 1);
  EXPECT_EQ(there(), "");
}

TEST_F(TierRecords, ListedInOrderWithTheirTags) {
  open(1 << 20);
  for (const std::uint64_t number : {50, 3, 99}) {
    put(*tier_, key_of(number), random_bytes(number, 10 * number), tag_of(number));
  }
  const auto list = tier_->list(true);
  ASSERT_EQ(list->size(), 3u);
  const std::uint64_t order[] = {50, 3, 99};
  for (std::size_t at = 0; at < 3; ++at) {
    EXPECT_EQ((*list)[at].key, key_of(order[at]));
    EXPECT_EQ((*list)[at].tag, tag_of(order[at]));
    EXPECT_EQ((*list)[at].bytes, internal::record_bytes(order[at] % 100, 10 * order[at]));
  }
  EXPECT_TRUE((*tier_->list(false))[0].tag.empty());
}

TEST_F(TierRecords, PrunedDownToANumberOfBytes) {
  open(1 << 20);
  for (const int number : {0, 1, 2, 3, 4}) put_number(number);
  EXPECT_EQ(*tier_->prune(3 * kFileBytes + 1), 2 * kFileBytes);
  EXPECT_EQ(there(), "234");
  EXPECT_EQ(*tier_->prune(1 << 20), 0);
  EXPECT_FALSE(tier_->prune(-1));
  EXPECT_EQ(tier_->stats().evicted, 2);
}

TEST_F(TierRecords, AnEmptyAndALongBatch) {
  open(1 << 20);
  const auto none = tier_->get({});
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->poll());
  EXPECT_EQ(none->size(), 0u);
  std::vector<TierPut> records;
  std::vector<Digest> keys;
  for (std::uint64_t number = 0; number < 300; ++number) {
    keys.push_back(key_of(number));
    records.push_back({.key = keys.back(), .value = {.bytes = std::as_bytes(std::span("abc", 3))}});
  }
  const auto written = tier_->put(records);
  ASSERT_TRUE(written->wait());
  const auto read = tier_->get(keys);
  ASSERT_TRUE(read->wait());
  for (std::size_t at = 0; at < keys.size(); ++at) {
    ASSERT_EQ(written->answer(at).outcome, TierOutcome::ok);
    ASSERT_EQ(read->answer(at).outcome, TierOutcome::ok);
    ASSERT_EQ(read->answer(at).value.size(), 3u);
  }
}

// The table of docs/tier.md.
TEST_F(TierRecords, TheFileIsAsDocumented) {
  open(1 << 20);
  const Blob value = random_bytes(1, 300), tag = random_bytes(2, 70);
  put(*tier_, key_of(7), value, tag);
  const std::string file = read_file(path() + "/" + internal::record_path(key_of(7)));
  const auto number = [&file](std::size_t at, std::size_t bytes) {
    std::uint64_t sum = 0;
    for (std::size_t byte = bytes; byte-- > 0;) {
      sum = sum << 8 | static_cast<unsigned char>(file[at + byte]);
    }
    return sum;
  };
  ASSERT_EQ(file.size(), 192u + 300u);
  EXPECT_EQ(file.substr(0, 8), "pagekvR\n");
  EXPECT_EQ(number(8, 4), 1u);
  EXPECT_EQ(number(12, 4), 70u);
  EXPECT_EQ(number(16, 8), 300u);
  EXPECT_EQ(std::memcmp(file.data() + 24, key_of(7).data(), 32), 0);
  EXPECT_EQ(std::memcmp(file.data() + 72, tag.data(), 70), 0);
  EXPECT_EQ(file.substr(142, 50), std::string(50, '\0'));
  EXPECT_EQ(std::memcmp(file.data() + 192, value.data(), 300), 0);
  const auto* bytes = reinterpret_cast<const std::byte*>(file.data());
  Blob head(bytes, bytes + 192);
  std::fill_n(head.begin() + 64, 8, std::byte{0});
  EXPECT_EQ(number(64, 8), internal::checksum(head, 0));
  const auto seed = static_cast<std::int64_t>(internal::checksum(key_of(7), 300));
  EXPECT_EQ(number(56, 8), internal::checksum(value, seed));
  EXPECT_EQ(read_file(path() + "/format"), "pagekv tier, format 1\n");
}

}  // namespace
}  // namespace pagekv::testing
