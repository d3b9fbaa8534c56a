#include "pagekv/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace pagekv {
namespace {

std::vector<std::shared_ptr<Executor>> executors() {
  std::vector<std::shared_ptr<Executor>> list{make_serial_executor()};
  for (const int threads : {1, 2, 5}) list.push_back(*make_thread_executor(threads));
  if (auto tbb = make_tbb_executor(3)) {
    list.push_back(*tbb);
  } else {
    EXPECT_EQ(tbb.error().code(), ErrorCode::unsupported);
  }
  return list;
}

TEST(Executor, RunsEveryItemOnceAndNeverOneWorkerTwiceAtATime) {
  for (const auto& executor : executors()) {
    for (const std::int64_t items : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(items));
      std::vector<std::atomic<int>> inside(static_cast<std::size_t>(executor->threads()));
      std::atomic<int> clashes{0};
      executor->parallel_for(items, [&](int worker, std::int64_t item) {
        if (inside.at(static_cast<std::size_t>(worker)).fetch_add(1) != 0) ++clashes;
        ++runs.at(static_cast<std::size_t>(item));
        --inside.at(static_cast<std::size_t>(worker));
      });
      EXPECT_EQ(clashes, 0);
      for (const auto& count : runs) EXPECT_EQ(count, 1);
    }
  }
}

TEST(Executor, TakesCallsFromSeveralThreads) {
  for (const auto& executor : executors()) {
    std::atomic<std::int64_t> sum{0};
    std::vector<std::thread> callers;
    for (int caller = 0; caller < 3; ++caller) {
      callers.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          executor->parallel_for(20, [&](int, std::int64_t item) { sum += item; });
        }
      });
    }
    for (auto& caller : callers) caller.join();
    EXPECT_EQ(sum, 3 * 50 * 190);
  }
}

TEST(Executor, RefusesSillyThreadCounts) {
  for (const int threads : {0, -1, 5000}) {
    EXPECT_EQ(make_thread_executor(threads).error().code(), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace pagekv
