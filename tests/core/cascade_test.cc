// Cascade through the store: sequences that fork, append, give up and append again share what they
// still have in common, and a plan that makes use of it gives the bits of one that does not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "core/plan.h"
#include "support/random_data.h"
#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

constexpr int kLayers = 3;  // of which 1 has a window, and 2 reads layer 0
constexpr int kQueryHeads = 8;
constexpr std::int64_t kMostRows = 40;

LayoutSpec layout(const Format& format) {
  LayoutSpec spec = small_layout({0, 600, 0}, format, 32, 512);
  spec.layers[2].donor = 0;
  return spec;
}

class Cascade : public ::testing::TestWithParam<const char*> {
 protected:
  Cascade()
      : test_(2),
        tokens_(test_.device, layout(*Format::parse(GetParam())), {.cap_bytes = 32 << 20}) {}

  Sequence& grow(Sequence& sequence, std::int64_t tokens) {
    const Status ok = tokens_.append(sequence, count_up(next_token_, tokens));
    EXPECT_TRUE(ok) << ok.error().message();
    next_token_ += static_cast<std::uint32_t>(tokens);
    return sequence;
  }

  // Outputs and log-sum-exps of all layers; and how many prefixes each group's plan shares.
  std::vector<float> attend(const std::vector<QueryRows>& queries, AttendSpec spec,
                            std::vector<std::size_t>* prefixes = nullptr) {
    std::int64_t rows = 0;
    for (const QueryRows& query : queries) rows += query.rows;
    Tensor q(DType::f32, rows, kQueryHeads, 16);
    Random random(3);
    q.fill_normal(random, 0.05f);  // elements of keys are up to 128
    std::vector<float> results;
    for (int layer = 0; layer < kLayers; ++layer) {
      spec.group = tokens_.layout().layer(layer).group;
      spec.query_heads = kQueryHeads;
      Plan plan = *tokens_.store().plan(queries, spec);
      std::vector<float> out(static_cast<std::size_t>(rows * kQueryHeads * 8));
      std::vector<float> lse(static_cast<std::size_t>(rows * kQueryHeads));
      EXPECT_TRUE(
          plan.run(layer, {.q = q.view(),
                           .out = MutableRows::packed(out.data(), DType::f32, kQueryHeads, 8),
                           .lse = lse.data()}));
      results.insert(results.end(), out.begin(), out.end());
      results.insert(results.end(), lse.begin(), lse.end());
      if (prefixes != nullptr) prefixes->push_back(plan.state()->prefixes.size());
    }
    return results;
  }

  void expect_same(const std::vector<QueryRows>& queries,
                   const std::vector<std::size_t>& prefixes) {
    for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::fast}) {
      std::vector<std::size_t> found;
      const auto together = attend(queries, {.arithmetic = arithmetic}, &found);
      const auto apart = attend(queries, {.arithmetic = arithmetic, .cascade = false});
      EXPECT_EQ(found, prefixes);
      EXPECT_EQ(std::memcmp(together.data(), apart.data(), apart.size() * sizeof(float)), 0);
    }
  }

  TestDevice test_;
  TokenCache tokens_;
  std::uint32_t next_token_ = 1;
};

TEST_P(Cascade, ForksShareWhatTheyHaveInCommon) {
  Sequence root = *tokens_.store().create_sequence();
  grow(root, 1100);
  Sequence same = *root.fork();
  Sequence longer = *root.fork();
  grow(longer, 300);  // a copy of the tail page, then its own
  Sequence earlier = *root.fork();
  ASSERT_TRUE(earlier.truncate(700));
  grow(earlier, 450);
  Sequence stranger = *tokens_.store().create_sequence();
  grow(stranger, 1200);
  const View view = *root.publish();
  grow(root, 20);

  expect_same({{.view = same.ref()}, {.view = stranger.ref()}, {.view = longer.ref(), .rows = 5}},
              {1, 0, 1});
  expect_same({{.view = earlier.ref(), .rows = 9},
               {.view = root.ref(), .rows = kMostRows},
               {.view = stranger.ref()},
               {.view = view.ref()},
               {.view = same.ref(), .rows = 2}},
              {1, 0, 1});
  // The same pages again, beyond which nothing is left for a row of its own.
  expect_same({{.view = view.ref()}, {.view = same.ref()}}, {1, 0, 1});
  expect_same({{.view = stranger.ref()}, {.view = root.ref()}}, {0, 0, 0});
}

// While a window is not yet full its group is shared as well.
TEST_P(Cascade, AWindowThatCutsNothingIsShared) {
  Sequence root = *tokens_.store().create_sequence();
  grow(root, 560);
  Sequence child = *root.fork();
  grow(child, 30);
  expect_same({{.view = root.ref()}, {.view = child.ref()}}, {1, 1, 1});
  grow(child, 40);
  expect_same({{.view = root.ref()}, {.view = child.ref()}}, {1, 0, 1});
}

// A block read: all sequences see all of what they share.
TEST_P(Cascade, BlocksOverOnePromptShareIt) {
  Sequence root = *tokens_.store().create_sequence();
  grow(root, 550);
  const Sequence child = *root.fork();
  const std::vector<QueryRows> queries = {{.view = root.ref(), .rows = 8},
                                          {.view = child.ref(), .rows = 12}};
  Random random(4);
  Tensor q(DType::f32, 20, kQueryHeads, 16);
  Tensor k(DType::bf16, 20, 2, 16);
  Tensor v(DType::bf16, 20, 2, 8);
  for (Tensor* tensor : {&q, &k, &v}) tensor->fill_normal(random, 0.05f);
  std::vector<float> results[2];
  for (const bool cascade : {false, true}) {
    Plan plan = *tokens_.store().plan(
        queries, {.query_heads = kQueryHeads, .mask = Mask::block, .cascade = cascade});
    EXPECT_EQ(plan.state()->prefixes.size(), cascade ? 1u : 0u);
    for (const int layer : {0, 2}) {  // 2 reads the pages of 0
      std::vector<float> out(20 * kQueryHeads * 8);
      ASSERT_TRUE(
          plan.run(layer, {.q = q.view(),
                           .out = MutableRows::packed(out.data(), DType::f32, kQueryHeads, 8),
                           .block_k = k.view(),
                           .block_v = v.view()}));
      if (results[cascade].empty()) results[cascade] = out;
      EXPECT_EQ(out, results[cascade]);
    }
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(root.length(), 550) << "nothing is stored";
}

INSTANTIATE_TEST_SUITE_P(Formats, Cascade,
                         ::testing::Values("bf16", "f32", "kv8", "kv4", "k8v3", "k4v4",
                                           "k=codebook:2:rot,v=affine:8:8"),
                         [](const auto& format) {
                           return "format" + std::to_string(format.index);
                         });

}  // namespace
}  // namespace pagekv::testing
