// A steady decode loop allocates nothing: reserve, write, plan, run and commit reuse what they
// have.
#include <gtest/gtest.h>

#include <vector>

#include "core/plan.h"
#include "count_allocations.h"
#include "pagekv/pagekv.h"

namespace pagekv {
namespace {

constexpr int kKvHeads = 2, kQueryHeads = 4, kDim = 32, kSequences = 5;

class DecodeLoop {
 public:
  // Sequences that begin with the same `shared` tokens, or with none.
  DecodeLoop(Store& store, std::int64_t shared) : store_(store) {
    sequences_.push_back(*store.create_sequence());
    write(shared);
    while (sequences_.size() < kSequences) sequences_.push_back(*sequences_.front().fork());
    for (Sequence& sequence : sequences_) appends_.push_back({&sequence, 1});
    queries_.resize(kSequences);
    plans_.resize(static_cast<std::size_t>(store.layout().group_count()));
    in_.assign(kSequences * kQueryHeads * kDim, 0.25f);
    out_.resize(in_.size());
  }

  bool shares() const { return !plans_.front().state()->prefixes.empty(); }

  void step() {
    Step step = *store_.reserve(appends_);
    for (int index = 0; index < kSequences; ++index) {
      queries_[static_cast<std::size_t>(index)] = {.view = step.view(index), .rows = 1};
    }
    for (int group = 0; group < store_.layout().group_count(); ++group) {
      ASSERT_TRUE(store_.replan(plans_[static_cast<std::size_t>(group)], queries_,
                                {.group = group, .query_heads = kQueryHeads}));
    }
    const Rows rows = Rows::packed(in_.data(), DType::f32, kKvHeads, kDim);
    for (int layer = 0; layer < store_.layout().layer_count(); ++layer) {
      ASSERT_TRUE(step.write(layer, rows, rows));
      const auto group = static_cast<std::size_t>(store_.layout().layer(layer).group);
      ASSERT_TRUE(plans_[group].run(
          layer, {.q = Rows::packed(in_.data(), DType::f32, kQueryHeads, kDim),
                  .out = MutableRows::packed(out_.data(), DType::f32, kQueryHeads, kDim)}));
    }
    ASSERT_TRUE(step.commit());
  }

 private:
  void write(std::int64_t tokens) {
    if (tokens == 0) return;
    const Append append{&sequences_.front(), tokens};
    Step step = *store_.reserve({&append, 1});
    const std::vector<float> data(static_cast<std::size_t>(tokens * kKvHeads * kDim), 0.25f);
    const Rows rows = Rows::packed(data.data(), DType::f32, kKvHeads, kDim);
    for (int layer = 0; layer < store_.layout().layer_count(); ++layer) {
      ASSERT_TRUE(step.write(layer, rows, rows));
    }
    ASSERT_TRUE(step.commit());
  }

  Store& store_;
  std::vector<Sequence> sequences_;
  std::vector<Append> appends_;
  std::vector<QueryRows> queries_;
  std::vector<Plan> plans_;
  std::vector<float> in_, out_;
};

class Allocation : public ::testing::TestWithParam<const char*> {};

void expect_steady(const char* format, std::int64_t shared, int steps) {
  LayoutSpec spec{.page_tokens = 16, .window_slack_tokens = 8};
  for (const std::int64_t window : {0, 0, 48}) {
    spec.layers.push_back({.kv_heads = kKvHeads,
                           .key_dim = kDim,
                           .value_dim = kDim,
                           .format = *Format::parse(format),
                           .window_tokens = window});
  }
  // Small enough that one extent per group is committed long before the counted steps.
  Store store = *Store::make(*CacheLayout::make(spec), *make_cpu_device({.threads = 2}),
                             {.cap_bytes = 8 << 20, .max_sequence_tokens = 1200});
  DecodeLoop loop(store, shared);
  for (int at = 0; at < steps; ++at) loop.step();
  EXPECT_EQ(loop.shares(), shared > 0);
  const std::int64_t before = testing::allocations();
  std::int64_t growth_steps = 0;
  for (int at = 0; at < 300; ++at) {
    const std::int64_t committed = store.stats().committed_bytes;
    const std::int64_t at_start = testing::allocations();
    loop.step();
    const std::int64_t made = testing::allocations() - at_start;
    if (store.stats().committed_bytes != committed) {
      ++growth_steps;  // committing new memory may grow the pool's own books
    } else {
      ASSERT_EQ(made, 0) << "step " << at;
    }
  }
  EXPECT_GT(testing::allocations(), before) << "stats() allocates, so the counter works";
  EXPECT_LT(growth_steps, 40);
}

TEST_P(Allocation, SteadyDecodeAllocatesNothing) {
  expect_steady(GetParam(), 0, 700);  // past a chunk edge, so plans have been split
}

TEST_P(Allocation, SteadyDecodeOverASharedPrefixAllocatesNothing) {
  expect_steady(GetParam(), 530, 40);
}

INSTANTIATE_TEST_SUITE_P(Formats, Allocation,
                         ::testing::Values("bf16", "k8v3", "k=codebook:4:rot,v=affine:5:rot"),
                         [](const auto& format) {
                           return "format" + std::to_string(format.index);
                         });

}  // namespace
}  // namespace pagekv
