// What a plan refuses, and that a refused plan cannot be run.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

class PlanTest : public ::testing::Test {
 protected:
  PlanTest()
      : tokens_(test_.device, small_layout({0, 32}, *Format::parse("f32")),
                {.cap_bytes = 8 << 20, .max_sequence_tokens = 512}),
        sequence_(*tokens_.store().create_sequence()) {
    EXPECT_TRUE(tokens_.append(sequence_, count_up(0, 200)));
  }

  Result<Plan> plan(std::int64_t rows, AttendSpec spec) {
    return plan({.view = sequence_.ref(), .rows = rows}, spec);
  }
  Result<Plan> plan(const QueryRows& query, AttendSpec spec) {
    spec.query_heads = 4;
    return tokens_.store().plan({&query, 1}, spec);
  }
  // What a plan with these spans over the 200 tokens is told.
  std::string refusal(const std::vector<BidirectionalSpan>& spans, AttendSpec spec = {}) {
    const auto made = plan({.view = sequence_.ref(), .rows = 50, .spans = spans}, spec);
    return made ? "accepted" : made.error().message();
  }
  Status run(Plan& plan, int layer) {
    const std::vector<float> q(static_cast<std::size_t>(512 * 4 * 16), 0.5f);
    out_.assign(512 * 4 * 8, -7.0f);
    return plan.run(layer, {.q = Rows::packed(q.data(), DType::f32, 4, 16),
                            .out = MutableRows::packed(out_.data(), DType::f32, 4, 8)});
  }

  TestDevice test_;
  TokenCache tokens_;
  Sequence sequence_;
  std::vector<float> out_;
};

TEST_F(PlanTest, RowsThatReachBehindAWindowAreRefused) {
  // Pages of group 1 start at token 160; the row of token 190 sees 159..190.
  ASSERT_EQ(sequence_.first(1), 160);
  EXPECT_TRUE(plan(9, {.group = 1}));
  EXPECT_EQ(plan(10, {.group = 1}).error().message(),
            "entry 0 of the plan sees tokens from 159 on, its pages start at token 160");
  EXPECT_TRUE(plan(9, {.group = 1, .window_tokens = 16}));
  EXPECT_EQ(plan(1, {.group = 1, .window_tokens = 0}).error().code(), ErrorCode::window_lost);
  EXPECT_EQ(plan(1, {.group = 1, .mask = Mask::none}).error().code(), ErrorCode::window_lost);
  // Rows before the first token see nothing, those behind it see what is gone.
  EXPECT_EQ(plan(201, {.group = 1}).error().code(), ErrorCode::window_lost);
}

TEST_F(PlanTest, RowsBeforeTheFirstTokenAreEmpty) {
  Plan padded = *plan(203, {.group = 0});
  ASSERT_TRUE(run(padded, 0));
  for (std::size_t at = 0; at < 3 * 4 * 8; ++at) EXPECT_EQ(out_[at], 0.0f);
  EXPECT_NE(out_[3 * 4 * 8], 0.0f);
}

TEST_F(PlanTest, NamesWhatIsWrong) {
  EXPECT_EQ(plan(0, {}).error().message(), "entry 0 of the plan has 0 rows; legal are 1 to 512");
  EXPECT_EQ(plan(std::int64_t{1} << 40, {}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(plan(1, {.group = 2}).error().message(), "group 2 of a layout of 2 groups");
  EXPECT_EQ(plan(1, {.window_tokens = -2}).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(plan(1, {.mask = Mask::none, .window_tokens = 4}).error().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(plan(1, {.scale = std::numeric_limits<float>::infinity()}).error().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(plan(1, {.logit_softcap = -1.0f}).error().code(), ErrorCode::invalid_argument);
  const QueryRows nothing{};
  EXPECT_EQ(tokens_.store().plan({&nothing, 1}, {.query_heads = 4}).error().message(),
            "entry 0 of the plan has no view");
  EXPECT_EQ(tokens_.store().plan({}, {}).error().message(), "0 query heads; at least 1 is legal");
}

TEST_F(PlanTest, SpansAscendWithinTheView) {
  EXPECT_EQ(refusal({{0, 10}, {10, 11, 0}, {150, 200, 0}}), "accepted");
  EXPECT_EQ(refusal({{190, 201}}),
            "entry 0 of the plan has a span of tokens [190, 201); legal are such as are not empty, "
            "within its 200 tokens");
  EXPECT_NE(refusal({{-1, 5}}), "accepted");
  EXPECT_NE(refusal({{7, 7}}), "accepted");
  EXPECT_EQ(
      refusal({{0, 10}, {9, 12}}),
      "entry 0 of the plan has a span that begins at token 9 behind one that ends at token 10; "
      "spans ascend and share no token");
  EXPECT_EQ(refusal({{0, 10, -2}}),
            "entry 0 of the plan has a span of set -2; legal are 0 and more, -1 for alone");
  for (const Mask mask : {Mask::none, Mask::local, Mask::matrix, Mask::block}) {
    EXPECT_NE(refusal({{0, 10}}, {.mask = mask}), "accepted");
  }
}

TEST_F(PlanTest, AMatrixGoesWithItsMask) {
  const std::vector<std::uint8_t> all(200, 1);
  QueryRows query{.view = sequence_.ref(), .rows = 3};
  EXPECT_EQ(plan(query, {.mask = Mask::matrix}).error().message(),
            "entry 0 of the plan has no matrix");
  query.matrix = {all.data(), 0};
  EXPECT_TRUE(plan(query, {.mask = Mask::matrix}));
  EXPECT_EQ(plan(query, {}).error().message(),
            "entry 0 of the plan has a matrix, which needs the mask `matrix`");
  EXPECT_EQ(plan(query, {.mask = Mask::matrix, .window_tokens = 5}).error().code(),
            ErrorCode::invalid_argument);
  query.matrix.row_stride = -200;
  EXPECT_EQ(plan(query, {.mask = Mask::matrix}).error().code(), ErrorCode::invalid_argument);
}

// What a mask hides may be gone; what it shows may not.
TEST_F(PlanTest, MasksReachBehindAWindowOnlyWhereTheySee) {
  std::vector<std::uint8_t> matrix(200, 0);
  QueryRows query{.view = sequence_.ref(), .rows = 1, .matrix = {matrix.data(), 200}};
  matrix[160] = matrix[199] = 1;
  EXPECT_TRUE(plan(query, {.group = 1, .mask = Mask::matrix}));
  matrix[159] = 1;
  EXPECT_EQ(plan(query, {.group = 1, .mask = Mask::matrix}).error().code(), ErrorCode::window_lost);

  EXPECT_TRUE(plan(9, {.group = 1, .mask = Mask::local}));
  EXPECT_FALSE(plan(10, {.group = 1, .mask = Mask::local}));

  const std::vector<BidirectionalSpan> spans = {{100, 110, 0}, {198, 199, 0}};
  EXPECT_TRUE(plan({.view = sequence_.ref(), .rows = 1, .spans = spans}, {.group = 1}));
  EXPECT_EQ(
      plan({.view = sequence_.ref(), .rows = 2, .spans = spans}, {.group = 1}).error().message(),
      "entry 0 of the plan sees tokens from 100 on, its pages start at token 160");
}

// Both are copied.
TEST_F(PlanTest, MasksMayGoOnceThePlanIsMade) {
  std::vector<std::uint8_t> matrix(200, 1);
  std::vector<BidirectionalSpan> spans = {{150, 200}};
  Plan hidden = *plan({.view = sequence_.ref(), .rows = 1, .matrix = {matrix.data(), 200}},
                      {.mask = Mask::matrix});
  ASSERT_TRUE(run(hidden, 0));
  const std::vector<float> seen = out_;
  matrix.assign(200, 0);
  ASSERT_TRUE(run(hidden, 0));
  EXPECT_EQ(out_, seen);
  Plan spanned = *plan({.view = sequence_.ref(), .rows = 50, .spans = spans}, {});
  ASSERT_TRUE(run(spanned, 0));
  const std::vector<float> both = out_;
  spans.assign(1, {0, 1});
  ASSERT_TRUE(run(spanned, 0));
  EXPECT_EQ(out_, both);
}

TEST_F(PlanTest, RunRefusesLayersAndHeadsThatDoNotFit) {
  Plan made = *plan(1, {.group = 0});
  EXPECT_EQ(run(made, 1).error().message(), "layer 1 is not in group 0, which the plan is for");
  EXPECT_EQ(run(made, 7).error().code(), ErrorCode::invalid_argument);
  EXPECT_EQ(made.run(0, {}).error().message(), "null queries or output for layer 0");
  const std::vector<float> rows(64, 0.5f);
  AttendArgs args{.q = Rows::packed(rows.data(), DType::f32, 4, 16),
                  .out = MutableRows::packed(out_.data(), DType::f32, 4, 8),
                  .block_k = Rows::packed(rows.data(), DType::f32, 2, 16)};
  EXPECT_EQ(made.run(0, args).error().message(),
            "rows of a block for layer 0; the plan is no block read");
  Plan block = *plan(1, {.group = 0, .mask = Mask::block});
  EXPECT_EQ(block.run(0, args).error().message(), "null keys or values of the block for layer 0");
  args.block_v = Rows::packed(rows.data(), DType::f32, 2, 8);
  EXPECT_TRUE(block.run(0, args));
  EXPECT_EQ(plan(1, {.group = 1, .mask = Mask::block}).error().code(), ErrorCode::window_lost);
  const QueryRows query{.view = sequence_.ref(), .rows = 1};
  Plan odd = *tokens_.store().plan({&query, 1}, {.query_heads = 3});
  EXPECT_EQ(run(odd, 0).error().message(),
            "3 query heads cannot share the 2 KV heads of layer 0 evenly");
}

TEST_F(PlanTest, APlanThatCouldNotBeMadeAnewCannotBeRun) {
  Plan made = *plan(1, {.group = 0});
  ASSERT_TRUE(run(made, 0));
  const QueryRows bad{.view = sequence_.ref(), .rows = 0};
  ASSERT_FALSE(tokens_.store().replan(made, {&bad, 1}, {.query_heads = 4}));
  EXPECT_EQ(run(made, 0).error().message(), "this plan was never made, or making it failed");
  EXPECT_EQ(made.rows(), 0);
}

// No pair of formats is read by unpacking the sequence first: the room that the direct arm takes
// does not grow with it. Only those who ask for the gathered arm get that.
TEST(PlanMemory, NoPairOfFormatsIsUnpacked) {
  constexpr std::int64_t kTokens = 1000;
  constexpr std::int64_t kUnpacked = kTokens * (16 + 8);  // floats of a head
  const std::vector<std::string> sides = {
      "f32", "bf16", "affine:8", "affine:3:rot", "affine:4:8:f16", "codebook:4:rot", "codebook:1"};
  for (const std::string& k : sides) {
    for (const std::string& v : sides) {
      const auto format = Format::parse("k=" + k + ",v=" + v);
      ASSERT_TRUE(format) << format.error().message();
      TestDevice test;
      TokenCache tokens(test.device, small_layout({0}, *format),
                        {.cap_bytes = 1 << 20, .max_sequence_tokens = 2 * kTokens});
      Sequence sequence = *tokens.store().create_sequence();
      ASSERT_TRUE(tokens.append(sequence, count_up(0, 2 * kTokens)));
      const View half = *sequence.publish(kTokens);
      for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::fast}) {
        const auto floats = [&](ViewRef view, ReadArm arm) {
          const QueryRows query{.view = view, .rows = 1};
          const Plan plan = *tokens.store().plan(
              {&query, 1}, {.query_heads = 4, .arithmetic = arithmetic, .arm = arm});
          return test.backend->workspace_floats(tokens.layout(), *plan.state());
        };
        const auto growth = [&](ReadArm arm) {
          return floats(sequence.ref(), arm) - floats(half.ref(), arm);
        };
        EXPECT_LT(growth(ReadArm::direct), kUnpacked / 100) << k << ' ' << v;
        EXPECT_GE(growth(ReadArm::gathered), kUnpacked) << k << ' ' << v;
      }
    }
  }
}

TEST_F(PlanTest, APlanOfNothingRuns) {
  Plan none = *tokens_.store().plan({}, {.query_heads = 4});
  EXPECT_TRUE(run(none, 0));
  EXPECT_EQ(out_[0], -7.0f);
}

}  // namespace
}  // namespace pagekv::testing
