// Steps as transactions: all or nothing, commit by counts, drop, failures, exhaustion, the
// reclaimer.
#include "pagekv/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

class StepTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kPageBytes = 2 * 16 * (16 + 8) * 2 * 2;  // of two layers, bf16

  explicit StepTest(std::int64_t cap_pages = 64)
      : tokens_(test_.device, small_layout({0, 0}, *Format::parse("bf16")),
                {.cap_bytes = cap_pages * kPageBytes, .max_sequence_tokens = 512}) {}

  Store& store() { return tokens_.store(); }
  Sequence sequence(const Tokens& tokens = {}) {
    Sequence made = *store().create_sequence();
    if (!tokens.empty()) {
      EXPECT_TRUE(tokens_.append(made, tokens));
    }
    return made;
  }
  Result<Step> reserve(std::vector<Append> appends) { return store().reserve(appends); }

  TestDevice test_;
  TokenCache tokens_;
};

// Rule 12: until commit no one else sees a step's rows.
TEST_F(StepTest, RowsAreInvisibleUntilCommit) {
  auto one = sequence(count_up(0, 20)), two = sequence();
  Step step = *reserve({{&one, 3}, {&two, 5}});
  Tokens rows = {100, 101, 102};
  const Tokens of_two = count_up(200, 5);
  rows.insert(rows.end(), of_two.begin(), of_two.end());
  tokens_.write(step, rows);
  EXPECT_EQ(one.length(), 20);
  EXPECT_TRUE(tokens_.holds(*one.fork(), count_up(0, 20)));
  EXPECT_TRUE(tokens_.holds(*one.publish(), count_up(0, 20)));

  Tokens provisional = count_up(0, 20);
  provisional.insert(provisional.end(), {100, 101, 102});
  EXPECT_TRUE(tokens_.holds(step.view(0), provisional));
  EXPECT_TRUE(tokens_.holds(step.view(1), of_two));
  EXPECT_TRUE(store().check());

  const CommitResult result = *step.commit();
  EXPECT_EQ(result.committed, 2);
  EXPECT_FALSE(step.valid());
  EXPECT_TRUE(tokens_.holds(one, provisional));
  EXPECT_TRUE(tokens_.holds(two, of_two));
  EXPECT_TRUE(store().check());
}

TEST_F(StepTest, DroppedStepLeavesEverythingAsItWas) {
  auto one = sequence(count_up(0, 20));
  auto two = *one.fork();
  const StoreStats before = store().stats();
  {
    Step step = *reserve({{&one, 40}, {&two, 1}});
    EXPECT_GT(store().stats().groups[0].referenced_pages, before.groups[0].referenced_pages);
  }
  const StoreStats after = store().stats();
  EXPECT_EQ(after.groups[0].referenced_pages, before.groups[0].referenced_pages);
  EXPECT_EQ(after.groups[0].shared_pages, before.groups[0].shared_pages);
  EXPECT_EQ(after.live_steps, 0);
  EXPECT_TRUE(store().check());
  // The dropped claim is gone too: the next writer appends in place.
  const auto copies = test_.backend->copies.load();
  ASSERT_TRUE(tokens_.append(one, {7}));
  EXPECT_EQ(test_.backend->copies, copies);
}

// Rule 9, where the step copied the tail and a fork holds the copy.
TEST_F(StepTest, DroppedStepUnclaimsTheCopyItsForksHold) {
  auto parent = sequence(count_up(0, 20));
  auto child = *parent.fork();
  ASSERT_TRUE(tokens_.append(parent, {100}));
  Step step = *reserve({{&child, 3}});  // copies the tail page
  auto one = *child.fork();
  auto two = *child.fork();
  step.drop();
  const auto copies = test_.backend->copies.load();
  ASSERT_TRUE(tokens_.append(one, {300}));
  EXPECT_EQ(test_.backend->copies, copies) << "row 4 of the copy is nobody's";
  ASSERT_TRUE(tokens_.append(two, {400}));
  Tokens expected = count_up(0, 20);
  EXPECT_TRUE(tokens_.holds(child, expected));
  expected.push_back(300);
  EXPECT_TRUE(tokens_.holds(one, expected));
  EXPECT_TRUE(store().check());
}

TEST_F(StepTest, EmptyHandlesSaySo) {
  Step step;
  Plan plan;
  const View view;
  EXPECT_FALSE(step.valid() || plan.valid() || view.valid() || Sequence().valid());
  EXPECT_EQ(step.size(), 0);
  EXPECT_EQ(step.commit().error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(step.write(0, {}, {}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(plan.run(0, {}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(store().gather(view, 0, {}, {}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ((*store().create_sequence(view)).length(), 0);
}

TEST_F(StepTest, CommitCountsKeepAPrefixOfEachSequence) {
  auto one = sequence(count_up(0, 14)), two = sequence(count_up(50, 3)), three = sequence();
  Step step = *reserve({{&one, 4}, {&two, 4}, {&three, 40}});
  Tokens rows = count_up(100, 48);
  tokens_.write(step, rows);
  const std::vector<std::int64_t> counts = {3, 0, 17};
  ASSERT_TRUE(step.commit(counts));
  Tokens expected = count_up(0, 14);
  expected.insert(expected.end(), {100, 101, 102});
  EXPECT_TRUE(tokens_.holds(one, expected));
  EXPECT_TRUE(tokens_.holds(two, count_up(50, 3)));
  EXPECT_TRUE(tokens_.holds(three, count_up(108, 17)));
  EXPECT_EQ(store().stats().groups[0].referenced_pages, 2 + 1 + 2);
  EXPECT_TRUE(store().check());
  // Rejected rows are overwritten exactly.
  ASSERT_TRUE(tokens_.append(one, {400}));
  expected.push_back(400);
  EXPECT_TRUE(tokens_.holds(one, expected));
}

// Rule 9: partly committing a step lowers its own claim.
TEST_F(StepTest, RowsRejectedByACountAreUnclaimedAlsoWhereThePageIsShared) {
  auto one = sequence(count_up(0, 4));
  Step step = *reserve({{&one, 8}});
  tokens_.write(step, count_up(4, 8));
  const std::vector<std::int64_t> counts = {3};
  ASSERT_TRUE(step.commit(counts));
  const View shared = *one.publish();
  const auto copies = test_.backend->copies.load();
  ASSERT_TRUE(tokens_.append(one, count_up(7, 1)));
  EXPECT_EQ(test_.backend->copies, copies) << "row 7 was given back, so it is written in place";
  EXPECT_TRUE(tokens_.holds(one, count_up(0, 8)));
  EXPECT_TRUE(tokens_.holds(shared, count_up(0, 7)));
}

TEST_F(StepTest, CommitRefusesBadCountsAndUnwrittenLayersAndStaysLive) {
  auto one = sequence();
  Step step = *reserve({{&one, 4}});
  EXPECT_EQ(step.commit().error().message(), "layer 0 was not written in this step");
  EXPECT_EQ(step.commit().error().code(), ErrorCode::incomplete_step);
  tokens_.write(step, count_up(0, 4));
  const std::vector<std::int64_t> too_many = {5}, two = {1, 1}, negative = {-1}, none;
  EXPECT_EQ(step.commit(too_many).error().message(),
            "cannot commit 5 tokens of sequence 0; it has 4 in this step");
  EXPECT_EQ(step.commit(two).error().message(), "2 counts for a step of 1 sequences");
  EXPECT_EQ(step.commit(negative).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(step.commit(none).error().message(), "0 counts for a step of 1 sequences");
  ASSERT_TRUE(step.commit());
  EXPECT_TRUE(tokens_.holds(one, count_up(0, 4)));
  EXPECT_EQ(step.commit().error().code(), ErrorCode::invalid_argument);
}

TEST_F(StepTest, ASequenceIsInOneStepAtATime) {
  auto one = sequence(count_up(0, 5)), two = sequence();
  Step step = *reserve({{&one, 1}});
  EXPECT_EQ(reserve({{&two, 1}, {&one, 1}}).error().code(), ErrorCode::busy);
  EXPECT_EQ(reserve({{&two, 1}, {&two, 1}}).error().code(), ErrorCode::busy);
  EXPECT_EQ(one.truncate(0).error().code(), ErrorCode::busy);
  EXPECT_TRUE(reserve({{&two, 1}})) << "a refused reserve leaves the others free";
  EXPECT_EQ(one.length(), 5);
  EXPECT_TRUE(store().check());
}

TEST_F(StepTest, ReserveNamesWhatIsWrong) {
  auto one = sequence();
  EXPECT_EQ(store().reserve({}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(reserve({{nullptr, 1}}).error().message(), "append 0 names no sequence");
  EXPECT_EQ(reserve({{&one, 0}}).error().message(),
            "append 0 asks for 0 tokens; at least 1 is legal");
  EXPECT_EQ(reserve({{&one, 513}}).error().code(), ErrorCode::too_long);
  EXPECT_EQ(reserve({{&one, std::numeric_limits<std::int64_t>::max()}}).error().code(),
            ErrorCode::too_long);
  TokenCache other(test_.device, small_layout({0}, *Format::parse("f32")), {.cap_bytes = 1 << 20});
  auto foreign = *other.store().create_sequence();
  EXPECT_EQ(reserve({{&one, 1}, {&foreign, 1}}).error().code(), ErrorCode::wrong_store);
}

// Rule 12: a step holds stable state; moving or destroying handles is safe.
TEST_F(StepTest, HandlesMayMoveAndDieDuringAStep) {
  auto one = sequence(count_up(0, 20));
  auto two = std::make_unique<Sequence>(sequence(count_up(30, 20)));
  Step step = *reserve({{&one, 2}, {two.get(), 2}});
  Sequence moved = std::move(one);
  two.reset();
  Step carried = std::move(step);
  EXPECT_FALSE(step.valid());
  tokens_.write(carried, count_up(100, 4));
  EXPECT_EQ((*carried.commit()).committed, 2);
  Tokens expected = count_up(0, 20);
  expected.insert(expected.end(), {100, 101});
  EXPECT_TRUE(tokens_.holds(moved, expected));
  EXPECT_EQ(store().stats().sequences, 1);
  EXPECT_TRUE(store().check());
}

// Rule 6: the sequence fails, the others commit.
TEST_F(StepTest, AValueThatCannotBeStoredFailsItsSequenceAlone) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity(), 3.4e38f}) {
    auto good = sequence(count_up(0, 5)), ill = sequence(count_up(10, 5));
    Step step = *reserve({{&good, 2}, {&ill, 3}});
    tokens_.write(step, count_up(50, 5));
    std::vector<float> k(5 * 2 * 16, 1.0f), v(5 * 2 * 8, 1.0f);
    v[(2 + 1) * 2 * 8 + 3] = bad;  // second token of the second sequence
    ASSERT_TRUE(step.write(1, Rows::packed(k.data(), DType::f32, 2, 16),
                           Rows::packed(v.data(), DType::f32, 2, 8)));
    EXPECT_EQ(step.failure(0), nullptr);
    ASSERT_NE(step.failure(1), nullptr);
    EXPECT_EQ(step.failure(1)->message(),
              "layer 1, sequence 1, token 1: a key or value is not finite in the page's format");
    const CommitResult result = *step.commit();
    EXPECT_EQ(result.committed, 1);
    EXPECT_EQ(result.failed, 1);
    EXPECT_EQ(good.length(), 7);
    EXPECT_TRUE(tokens_.holds(ill, count_up(10, 5)));
    ASSERT_TRUE(tokens_.append(ill, {15})) << "it goes on from where it was";
    EXPECT_TRUE(tokens_.holds(ill, count_up(10, 6)));
    EXPECT_TRUE(store().check());
  }
}

TEST_F(StepTest, WriteRefusesWrongLayersAndNullData) {
  auto one = sequence();
  Step step = *reserve({{&one, 1}});
  EXPECT_EQ(step.write(2, {}, {}).error().message(), "layer 2 of a layout of 2 layers");
  EXPECT_EQ(step.write(-1, {}, {}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(step.write(0, {}, {}).error().message(), "null keys or values for layer 0");
}

class SmallCapTest : public StepTest {
 protected:
  SmallCapTest() : StepTest(3) {}
};

// Rule 14, and rule 12's all or nothing.
TEST_F(SmallCapTest, ExhaustionNamesTheNumbersAndChangesNothing) {
  auto one = sequence(count_up(0, 20));
  auto two = sequence();
  const auto refused = reserve({{&two, 10}, {&one, 40}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "the page pool of group 0 is full: 3 pages needed, 1 free, 0 reclaimable, 0 pinned, "
            "cap 3 pages");
  EXPECT_EQ(refused.error().number(1), 3);
  EXPECT_TRUE(tokens_.holds(one, count_up(0, 20)));
  EXPECT_EQ(store().stats().groups[0].referenced_pages, 2);
  EXPECT_TRUE(store().check());
  ASSERT_TRUE(tokens_.append(two, count_up(0, 16)));
  EXPECT_EQ(reserve({{&two, 1}}).error().code(), ErrorCode::pool_exhausted);
}

// Gives its views up, oldest first, as a prefix cache would.
class ViewReclaimer final : public Reclaimer {
 public:
  Pages pages(int) const noexcept override { return {static_cast<std::int64_t>(views.size()), 1}; }
  void reclaim(int, std::int64_t count) noexcept override {
    asked += count;
    if (also) also();
    for (count = std::min(count, most_at_once); count > 0 && !views.empty(); --count) {
      views.erase(views.begin());
    }
  }
  std::vector<View> views;
  std::int64_t asked = 0;
  std::int64_t most_at_once = 1000;
  std::function<void()> also;
};

TEST_F(SmallCapTest, ReclaimerIsAskedBeforeReserveFails) {
  auto reclaimer = std::make_shared<ViewReclaimer>();
  for (int page = 0; page < 3; ++page) {
    auto cached = sequence(count_up(static_cast<std::uint32_t>(page) * 16, 16));
    reclaimer->views.push_back(*cached.publish());
  }
  auto one = sequence();
  EXPECT_EQ(reserve({{&one, 1}}).error().code(), ErrorCode::pool_exhausted);
  store().set_reclaimer(reclaimer);
  EXPECT_EQ(store().stats().groups[0].pinned_pages, 1);
  ASSERT_TRUE(tokens_.append(one, count_up(0, 20)));
  EXPECT_EQ(reclaimer->asked, 2);
  EXPECT_EQ(reclaimer->views.size(), 1u);
  EXPECT_EQ(reserve({{&one, 100}}).error().number(3), 0) << "nothing is left to reclaim";
  EXPECT_EQ(reclaimer->views.size(), 0u);
  EXPECT_TRUE(store().check());
}

TEST_F(SmallCapTest, ReclaimerThatGivesLittleIsAskedAgain) {
  auto reclaimer = std::make_shared<ViewReclaimer>();
  reclaimer->most_at_once = 1;
  store().set_reclaimer(reclaimer);
  for (std::uint32_t page = 0; page < 3; ++page) {
    reclaimer->views.push_back(*sequence(count_up(page * 16, 16)).publish());
  }
  auto one = sequence(count_up(100, 48));
  EXPECT_TRUE(tokens_.holds(one, count_up(100, 48)));
  EXPECT_TRUE(reclaimer->views.empty());
}

// It may drop any handle, also that of a sequence in the very step.
TEST_F(SmallCapTest, ReclaimerMayDropASequenceOfTheStep) {
  auto reclaimer = std::make_shared<ViewReclaimer>();
  store().set_reclaimer(reclaimer);
  reclaimer->views.push_back(*sequence(count_up(0, 16)).publish());
  auto one = std::make_unique<Sequence>(sequence(count_up(50, 16)));
  auto two = sequence();
  reclaimer->also = [&] { one.reset(); };
  EXPECT_EQ(reserve({{&two, 1}, {one.get(), 48}}).error().code(), ErrorCode::pool_exhausted);
  EXPECT_EQ(store().stats().sequences, 1) << "the dropped one is gone when the step is";
  EXPECT_TRUE(reserve({{&two, 1}}));
  EXPECT_TRUE(store().check());
}

// What a reclaimer holds keeps the store alive, so the store must not keep the reclaimer.
TEST(StoreLife, StoreAndReclaimerDoNotKeepEachOther) {
  TestDevice test;
  std::weak_ptr<ViewReclaimer> watch;
  {
    TokenCache tokens(test.device, small_layout({0}, *Format::parse("f32")),
                      {.cap_bytes = 1 << 20});
    auto reclaimer = std::make_shared<ViewReclaimer>();
    watch = reclaimer;
    tokens.store().set_reclaimer(reclaimer);
    auto one = *tokens.store().create_sequence();
    ASSERT_TRUE(tokens.append(one, {1}));
    reclaimer->views.push_back(*one.publish());
  }
  EXPECT_TRUE(watch.expired());
}

// Memory refused by the system is out_of_memory, with the store intact.
TEST_F(StepTest, RefusedMemoryLeavesTheStoreIntact) {
  auto one = sequence(count_up(0, 16));
  test_.backend->commits_until_refusal = 1;
  const auto refused = reserve({{&one, 400}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::out_of_memory);
  EXPECT_TRUE(tokens_.holds(one, count_up(0, 16)));
  EXPECT_TRUE(store().check());
  test_.backend->commits_until_refusal = -1;
  ASSERT_TRUE(tokens_.append(one, count_up(16, 400)));
  EXPECT_TRUE(tokens_.holds(one, count_up(0, 416)));
}

// At whichever moment of a reservation that is: of the first sequence or the last, of either group,
// before or behind the copy of a shared tail page.
TEST(StepMemory, RefusedAtAnyMomentChangesNothing) {
  int refusals = 0;
  for (std::int64_t commits = 0;; ++commits) {
    TestDevice test;
    const LayoutSpec spec = small_layout({0, 40}, *Format::parse("kv8"));
    const std::int64_t page_bytes = CacheLayout::make(spec)->group(0).page_bytes;
    // Small enough for memory to come in small pieces.
    TokenCache tokens(test.device, spec,
                      {.cap_bytes = 200 * page_bytes, .max_sequence_tokens = 512});
    auto parent = *tokens.store().create_sequence();
    ASSERT_TRUE(tokens.append(parent, count_up(0, 20)));
    auto child = *parent.fork();
    auto fresh = *tokens.store().create_sequence();
    const View view = *parent.publish();
    const std::vector<Append> appends = {{&parent, 200}, {&child, 300}, {&fresh, 400}};
    test.backend->commits_until_refusal = commits;
    auto step = tokens.store().reserve(appends);
    ASSERT_TRUE(tokens.store().check()) << tokens.store().check().error().message();
    if (step) break;
    ++refusals;
    ASSERT_EQ(step.error().code(), ErrorCode::out_of_memory) << step.error().message();
    for (const GroupStats& group : tokens.store().stats().groups) {
      ASSERT_EQ(group.referenced_pages, 2) << commits << " commits";
      ASSERT_EQ(group.shared_pages, 2) << commits << " commits";
    }
    test.backend->commits_until_refusal = -1;
    ASSERT_TRUE(tokens.append(child, count_up(500, 30)));
    ASSERT_TRUE(tokens.append(parent, count_up(700, 30)));
    ASSERT_TRUE(tokens.holds(view, count_up(0, 20)));
    Tokens of_child = count_up(0, 20), of_parent = of_child;
    for (const std::uint32_t token : count_up(500, 30)) of_child.push_back(token);
    for (const std::uint32_t token : count_up(700, 30)) of_parent.push_back(token);
    ASSERT_TRUE(tokens.holds(child, of_child));
    ASSERT_TRUE(tokens.holds(parent, of_parent));
  }
  EXPECT_GT(refusals, 8);
}

// Rule 8: a page is recycled only after the streams that touch it have passed.
TEST_F(SmallCapTest, PagesRetireUntilTheirFencePasses) {
  auto one = sequence(count_up(0, 48));
  test_.backend->hold_fences = true;
  ASSERT_TRUE(one.truncate(16));
  EXPECT_EQ(store().stats().groups[0].retiring_pages, 2);
  EXPECT_EQ(store().stats().groups[0].free_pages, 0);
  EXPECT_TRUE(store().check());
  EXPECT_EQ(reserve({{&one, 1}}).error().code(), ErrorCode::pool_exhausted);
  test_.backend->pass_fences();
  ASSERT_TRUE(tokens_.append(one, {1}));
  EXPECT_EQ(store().stats().groups[0].retiring_pages, 0);
  EXPECT_TRUE(store().check());
}

// Memory that one group holds but does not use goes to the other, back and forth, also where their
// pages differ in size: what fits once fits again.
TEST(StepGroups, FreeMemoryMovesBetweenGroupsForEver) {
  TestDevice test;
  LayoutSpec spec = small_layout({0, 16, 16}, *Format::parse("f32"));
  spec.layers[0].key_dim = 88;
  TokenCache tokens(test.device, spec, {.cap_bytes = 1 << 20, .max_sequence_tokens = 4096});
  std::int64_t most = 0;
  for (int round = 0; round < 20; ++round) {
    auto lengthy = *tokens.store().create_sequence();
    std::int64_t length = 0;
    while (tokens.append(lengthy, count_up(0, 16))) length += 16;
    most = std::max(most, length);
    ASSERT_EQ(length, most) << "round " << round;
    lengthy = Sequence();
    std::vector<Sequence> brief;  // all in the window group, as much of it as there is room for
    for (;;) {
      brief.push_back(*tokens.store().create_sequence());
      if (!tokens.append(brief.back(), count_up(0, 3 + round))) break;
    }
    ASSERT_TRUE(tokens.store().check()) << tokens.store().check().error().message();
  }
  EXPECT_GT(most, 100);
}

TEST(StepGroups, FreeMemoryMovesBetweenGroups) {
  TestDevice test;
  TokenCache tokens(test.device, small_layout({0, 16}, *Format::parse("f32")),
                    {.cap_bytes = 40 * 16 * 24 * 2 * 4, .max_sequence_tokens = 2048});
  auto wide = *tokens.store().create_sequence();
  // One chunk fills both groups before the window lets go of its pages.
  ASSERT_TRUE(tokens.append(wide, count_up(0, 320)));
  EXPECT_EQ(tokens.store().stats().committed_bytes, tokens.store().stats().cap_bytes);
  for (std::uint32_t at = 320; at < 576; at += 16) {
    ASSERT_TRUE(tokens.append(wide, count_up(at, 16))) << at;
  }
  EXPECT_TRUE(tokens.holds(wide, count_up(0, 576)));
  EXPECT_TRUE(tokens.store().check());
}

// Rule 18: refused when the store is made, before there is anything to read slowly.
TEST(StoreMake, RefusesWhatTheDeviceCannotRead) {
  TestDevice test;
  test.backend->refuses_layouts = true;
  const auto layout = *CacheLayout::make(small_layout({0}, *Format::parse("k8v3")));
  const auto refused = Store::make(layout, test.device, {.cap_bytes = 1 << 20});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::unsupported);
  test.backend->refuses_layouts = false;
  EXPECT_TRUE(Store::make(layout, test.device, {.cap_bytes = 1 << 20}));
}

TEST(StoreMake, RefusesSillyOptions) {
  TestDevice test;
  auto layout = *CacheLayout::make(small_layout({0}, *Format::parse("bf16")));
  EXPECT_EQ(Store::make(layout, test.device, {.cap_bytes = 10}).error().message(),
            "a cap of 10 bytes; one page of every group needs 1536 bytes");
  EXPECT_EQ(Store::make(layout, test.device, {.cap_bytes = 1 << 20, .max_sequence_tokens = 0})
                .error()
                .code(),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace pagekv::testing
