// However work is cut, every row meets every chunk it sees exactly once, and merges know where the
// partial states are.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "core/plan.h"
#include "core/plan_mask.h"

namespace pagekv::testing {
namespace {

using namespace internal;  // NOLINT(google-build-using-namespace): a test of internals

constexpr AttendCut kCut{.chunk_tokens = 64, .rows_per_item = 8};

void add_spans(PlanState& plan, PlanSequence& sequence, std::mt19937& random) {
  std::vector<BidirectionalSpan> spans;
  for (std::int64_t at = random() % 50; at + 20 < sequence.length; at += 20 + random() % 300) {
    spans.push_back({at, at + 20, static_cast<int>(random() % 3) - 1});
  }
  add_mask(plan, sequence, {.view = {nullptr, sequence.length}, .spans = spans});
}

bool sees(const PlanState& plan, const PlanSequence& sequence, std::int64_t row,
          std::int64_t token) {
  if (sequence.is_masked()) {
    return (visible_word(plan, sequence, row, token / 64 * 64) >> (token % 64) & 1) != 0;
  }
  const TokenRange range = plan.visible(sequence, row);
  return range.begin <= token && token < range.end;
}

PlanState random_plan(std::mt19937& random) {
  PlanState plan;
  plan.spec.mask = random() % 4 == 0 ? Mask::none : random() % 4 == 0 ? Mask::local : Mask::causal;
  plan.window_tokens = plan.spec.mask != Mask::none && random() % 2 ? 1 + random() % 300 : 0;
  const int sequences = 1 + static_cast<int>(random() % 9);
  for (int index = 0; index < sequences; ++index) {
    const std::int64_t length = random() % 3 == 0 ? random() % 2000 : random() % 130;
    const std::int64_t rows = 1 + random() % 30;
    PlanSequence sequence{.length = length, .rows = rows, .first_row = plan.total_rows};
    if (plan.spec.mask == Mask::causal && random() % 3 == 0) add_spans(plan, sequence, random);
    plan.sequences.push_back(sequence);
    plan.total_rows += rows;
  }
  return plan;
}

void expect_exact_cover(const PlanState& plan) {
  std::map<std::tuple<int, std::int64_t, std::int64_t>, int> visits;  // sequence, row, chunk
  std::vector<int> slots(static_cast<std::size_t>(plan.partial_slots));
  for (const WorkItem& item : plan.items) {
    ASSERT_LE(item.rows, kCut.rows_per_item);
    for (int row = 0; row < item.rows; ++row) {
      for (std::int64_t chunk = 0; chunk < item.chunks; ++chunk) {
        ++visits[{item.sequence, item.first_row + row, item.first_chunk + chunk}];
      }
      if (item.partial >= 0) ++slots.at(static_cast<std::size_t>(item.partial + row));
    }
    if (item.partial >= 0) {
      ASSERT_EQ(item.chunks, 1);
    }
  }
  for (std::size_t index = 0; index < plan.sequences.size(); ++index) {
    for (std::int64_t row = 0; row < plan.sequences[index].rows; ++row) {
      for (std::int64_t token = 0; token < plan.sequences[index].length; ++token) {
        if (!sees(plan, plan.sequences[index], row, token)) continue;
        ASSERT_EQ((visits[{static_cast<int>(index), row, token / kCut.chunk_tokens}]), 1)
            << "sequence " << index << " row " << row << " token " << token;
      }
    }
  }
  for (const int uses : slots) ASSERT_EQ(uses, 1) << "each partial state is written once";
  for (const MergeItem& merge : plan.merges) {
    ASSERT_LE(merge.partial + merge.rows * merge.chunks, plan.partial_slots);
    ASSERT_GE(merge.chunks, 2);
  }
}

TEST(CutWork, CoversEveryVisibleTokenOnce) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    PlanState plan = random_plan(random);
    const int threads = 1 + static_cast<int>(random() % 8);
    cut_work(plan, kCut, threads, 1 + static_cast<int>(random() % 8));
    expect_exact_cover(plan);
    if (threads == 1) {
      EXPECT_TRUE(plan.merges.empty());
    }
  }
}

TEST(CutWork, OneLongSequenceIsSplitForAllThreads) {
  PlanState plan;
  plan.sequences.push_back({.length = 64 * 100, .rows = 1});
  cut_work(plan, kCut, 4, 1);
  EXPECT_EQ(plan.items.size(), 100u);
  EXPECT_EQ(plan.merges.size(), 1u);
}

TEST(CutWork, ALongSequenceAmongShortOnesIsSplitAlone) {
  PlanState plan;
  plan.sequences.push_back({.length = 64 * 100, .rows = 1});
  for (int index = 0; index < 20; ++index) plan.sequences.push_back({.length = 64, .rows = 1});
  cut_work(plan, kCut, 2, 2);
  EXPECT_EQ(plan.merges.size(), 1u);
  EXPECT_EQ(plan.items.size(), 120u);
}

}  // namespace
}  // namespace pagekv::testing
