// However work is cut, every row meets every chunk it sees exactly once, and merges know where the
// partial states are.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <tuple>

#include "core/plan.h"
#include "core/plan_mask.h"
#include "core/share_prefixes.h"

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

using Visits = std::map<std::tuple<int, std::int64_t, std::int64_t>, int>;  // sequence, row, chunk

// The sequence and row in it that a row of the call is.
std::pair<int, std::int64_t> find_row(const PlanState& plan, std::int64_t row) {
  int sequence = 0;
  while (plan.sequences[static_cast<std::size_t>(sequence)].first_row +
             plan.sequences[static_cast<std::size_t>(sequence)].rows <=
         row) {
    ++sequence;
  }
  return {sequence, row - plan.sequences[static_cast<std::size_t>(sequence)].first_row};
}

void visit_shared(const PlanState& plan, Visits& visits, std::vector<int>& slots) {
  for (const SharedItem& item : plan.shared_items) {
    const SharedPrefix& prefix = plan.prefixes[static_cast<std::size_t>(item.prefix)];
    ASSERT_LE(item.rows, kCut.rows_per_item);
    for (int row = 0; row < item.rows; ++row) {
      const auto [sequence, at] = find_row(
          plan,
          plan.shared_rows.at(static_cast<std::size_t>(prefix.first_row + item.first_row + row)));
      for (std::int64_t chunk = 0; chunk < item.chunks; ++chunk) {
        ++visits[{sequence, at, item.first_chunk + chunk}];
      }
      ++slots.at(static_cast<std::size_t>(item.partial + row));
      const PlanSequence& of = plan.sequences[static_cast<std::size_t>(sequence)];
      ASSERT_EQ(of.prefix, item.prefix);
      ASSERT_EQ(of.prefix_row + at, item.first_row + row);
      ASSERT_EQ(prefix.slot(of.prefix_row + at, item.first_chunk / item.chunks),
                item.partial + row);
    }
  }
}

void expect_exact_cover(const PlanState& plan) {
  Visits visits;
  std::vector<int> slots(static_cast<std::size_t>(plan.partial_slots));
  visit_shared(plan, visits, slots);
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

// Pages of a sequence: those of another one at first, then its own.
std::vector<PageId> pages_after(const std::vector<PageId>& parent, std::int64_t shared,
                                std::uint32_t name) {
  std::vector<PageId> pages(parent.begin(), parent.begin() + shared);
  for (std::uint32_t at = 0; pages.size() < 200; ++at) pages.push_back(PageId{1000 * name + at});
  return pages;
}

// Trees of sequences: what a prefix has is the same pages for all, seen whole by all rows.
void expect_prefixes_hold(const PlanState& plan, std::int64_t page_tokens) {
  for (const PlanSequence& sequence : plan.sequences) {
    if (sequence.prefix < 0) continue;
    const SharedPrefix& prefix = plan.prefixes[static_cast<std::size_t>(sequence.prefix)];
    const PlanSequence& leader = plan.sequences[static_cast<std::size_t>(prefix.sequence)];
    ASSERT_GE(prefix.chunks, 1);
    const std::int64_t tokens = prefix.chunks * kCut.chunk_tokens;
    for (std::int64_t token = 0; token < tokens; token += 16) {
      ASSERT_EQ(sequence.pages[token / page_tokens], leader.pages[token / page_tokens]);
    }
    for (std::int64_t row = 0; row < sequence.rows; ++row) {
      ASSERT_TRUE(sees(plan, sequence, row, 0) && sees(plan, sequence, row, tokens - 1));
      ASSERT_EQ(plan.visible(sequence, row).begin, 0);
    }
  }
}

TEST(SharePrefixes, SharesWhatAllRowsSeeWhole) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  std::size_t prefixes = 0;
  for (int round = 0; round < 300; ++round) {
    PlanState plan = random_plan(random);
    const std::int64_t page_tokens = std::int64_t{16} << (random() % 4);
    std::vector<std::vector<PageId>> tables;
    for (std::size_t at = 0; at < plan.sequences.size(); ++at) {
      const bool alone = at == 0 || random() % 4 == 0;
      tables.push_back(pages_after(alone ? std::vector<PageId>{} : tables[random() % at],
                                   alone ? 0 : random() % 100, static_cast<std::uint32_t>(at)));
    }
    for (std::size_t at = 0; at < tables.size(); ++at) plan.sequences[at].pages = tables[at].data();
    share_prefixes(plan, kCut, page_tokens);
    cut_work(plan, kCut, 1 + static_cast<int>(random() % 8), 1 + static_cast<int>(random() % 4));
    expect_prefixes_hold(plan, page_tokens);
    expect_exact_cover(plan);
    prefixes += plan.prefixes.size();
  }
  EXPECT_GT(prefixes, 50u);
}

TEST(SharePrefixes, OnlyWhereItSavesWork) {
  const std::vector<PageId> pages = pages_after({}, 0, 1);
  const auto shared = [&](std::vector<std::int64_t> rows, std::int64_t length,
                          const AttendSpec& spec = {}) {
    PlanState plan;
    plan.spec = spec;
    for (const std::int64_t each : rows) {
      plan.sequences.push_back({.pages = pages.data(), .length = length, .rows = each});
    }
    share_prefixes(plan, kCut, 16);
    return plan.shared_rows.size();
  };
  EXPECT_EQ(shared({1, 1}, 200), 2u);
  EXPECT_EQ(shared({1, 1}, 63), 0u) << "no whole chunk";
  EXPECT_EQ(shared({1}, 200), 0u) << "nobody to share with";
  EXPECT_EQ(shared({8, 8}, 200), 0u) << "full items gain nothing";
  EXPECT_EQ(shared({9, 3}, 200), 12u);
  EXPECT_EQ(shared({1, 1}, 200, {.cascade = false}), 0u);
  EXPECT_EQ(shared({1, 1}, 200, {.arm = ReadArm::gathered}), 0u);
}

// Many share little, and a few of them much: the few are not held back where they save more.
TEST(SharePrefixes, ThoseThatSaveMostGoTogether) {
  const std::vector<PageId> root = pages_after({}, 0, 1);
  const std::vector<PageId> little = pages_after(root, 4, 2);
  PlanState plan;
  for (const auto* pages : {&root, &root, &root, &little, &little}) {
    plan.sequences.push_back({.pages = pages->data(), .length = 1000, .rows = 1});
  }
  share_prefixes(plan, kCut, 16);
  ASSERT_EQ(plan.prefixes.size(), 2u);
  EXPECT_EQ(plan.prefixes[0].rows, 3);
  EXPECT_EQ(plan.prefixes[0].chunks, 1000 / 64);
  EXPECT_EQ(plan.prefixes[1].rows, 2);
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
