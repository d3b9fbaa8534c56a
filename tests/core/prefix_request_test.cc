// A prefix that many requests want at the same time is computed once.
#include <gtest/gtest.h>

#include <deque>

#include "prefix_cache.h"

namespace pagekv::testing {
namespace {

class PrefixRequests : public ::testing::Test {
 protected:
  PrefixRequest request(const Tokens& tokens) {
    return *cache_.index().request(cache_.space(), ids(tokens));
  }
  PrefixCache cache_{small_layout({0}, *Format::parse("bf16"))};
};

TEST_F(PrefixRequests, TheFirstComputesAndTheOthersWait) {
  const Tokens prompt = count_up(0, 64);
  std::deque<PrefixRequest> requests;
  for (std::uint32_t at = 0; at < 10; ++at) requests.push_back(request(join(prompt, {900 + at})));
  EXPECT_TRUE(requests[0].poll());
  for (int at = 1; at < 10; ++at) EXPECT_FALSE(requests[static_cast<std::size_t>(at)].poll());
  Sequence sequence = cache_.compute(count_up(0, 32));
  cache_.insert(count_up(0, 32), sequence);
  EXPECT_FALSE(requests[1].poll()) << "half of it is there";
  ASSERT_TRUE(cache_.tokens().append(sequence, count_up(32, 32)));
  cache_.insert(prompt, sequence);
  for (auto& waiting : requests) EXPECT_TRUE(waiting.poll());
  EXPECT_EQ(cache_.match(join(prompt, {905})).length(), 64);
}

TEST_F(PrefixRequests, ACancelledLeaderPromotesOneWaiter) {
  const Tokens prompt = count_up(0, 64);
  PrefixRequest leader = request(prompt), second = request(prompt), third = request(prompt);
  EXPECT_TRUE(leader.poll());
  EXPECT_FALSE(second.poll());
  EXPECT_FALSE(third.poll());
  leader = {};
  EXPECT_TRUE(second.poll());
  EXPECT_FALSE(third.poll());
  EXPECT_TRUE(second.poll()) << "once ready, it stays so";
}

TEST_F(PrefixRequests, OthersDoNotWait) {
  PrefixRequest leader = request(count_up(0, 64));
  EXPECT_TRUE(leader.poll());
  PrefixRequest other = request(count_up(500, 64));
  EXPECT_TRUE(other.poll());
  PrefixRequest little = request(join(count_up(0, 15), count_up(700, 40)));
  EXPECT_TRUE(little.poll()) << "less than a page is to be won";
  EXPECT_TRUE(PrefixRequest().poll());
  EXPECT_FALSE(PrefixRequest().valid());
}

TEST_F(PrefixRequests, WhatIsStoredIsNotWaitedFor) {
  const Tokens prompt = count_up(0, 64);
  cache_.serve(prompt);
  PrefixRequest one = request(join(prompt, count_up(100, 5)));
  PrefixRequest other = request(join(prompt, count_up(200, 5)));
  EXPECT_TRUE(one.poll());
  EXPECT_TRUE(other.poll());
}

TEST_F(PrefixRequests, AnAbandonedCrowdLeavesNothing) {
  for (int round = 0; round < 1000; ++round) {
    std::deque<PrefixRequest> crowd;
    for (int at = 0; at < 4; ++at) {
      crowd.push_back(request(count_up(0, 64)));
      EXPECT_EQ(crowd.back().poll(), at == 0);
    }
  }
  EXPECT_TRUE(request(count_up(0, 64)).poll());
}

}  // namespace
}  // namespace pagekv::testing
