// Hit is miss: attention over a sequence is, bit for bit, the same whether its tokens were computed
// in one piece, token by token, forked, taken from a view, or given up and appended again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/store_core.h"
#include "support/random_data.h"
#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

struct Setting {
  const char* name;
  const char* format;
  const char* overrides;
  std::int64_t page_tokens = 32;
};

constexpr int kLayers = 4;  // of which 1 has a window, and 3 reads layer 0
constexpr int kQueryHeads = 6;
constexpr int kKeyDim = 64, kValueDim = 32;
constexpr std::int64_t kTokens = 150;

LayoutSpec layout(const Setting& setting) {
  const Format base = *Format::parse(setting.format);
  const auto formats = parse_layer_formats(base, setting.overrides, kLayers);
  LayoutSpec spec = small_layout({0, 40, 0, 0}, base, setting.page_tokens, 60);
  for (std::size_t at = 0; at < spec.layers.size(); ++at) {
    spec.layers[at].format = formats->at(at);
    spec.layers[at].key_dim = kKeyDim;
    spec.layers[at].value_dim = kValueDim;
  }
  spec.layers[3].donor = 0;
  return spec;
}

class Reuse : public ::testing::TestWithParam<Setting> {
 protected:
  Reuse()
      : tokens_(test_.device, layout(GetParam()), {.cap_bytes = 32 << 20}),
        q_(DType::f32, kTokens, kQueryHeads, kKeyDim) {
    Random random(101);
    q_.fill_normal(random, 0.05f);  // elements of keys are up to 128
  }

  Store& store() { return tokens_.store(); }

  // Outputs and log-sum-exps of the last `rows` tokens, over all layers, in both arithmetics.
  std::vector<float> attend(ViewRef view, std::int64_t rows) {
    std::vector<float> results = attend(view, rows, Arithmetic::exact);
    const std::vector<float> fast = attend(view, rows, Arithmetic::fast);
    results.insert(results.end(), fast.begin(), fast.end());
    return results;
  }
  std::vector<float> attend(ViewRef view, std::int64_t rows, Arithmetic arithmetic) {
    std::vector<float> results;
    std::vector<float> donor;
    for (int layer = 0; layer < kLayers; ++layer) {
      const QueryRows query{.view = view, .rows = rows};
      Plan plan = *store().plan({&query, 1}, {.group = tokens_.layout().layer(layer).group,
                                              .query_heads = kQueryHeads,
                                              .arithmetic = arithmetic});
      std::vector<float> out(static_cast<std::size_t>(rows * kQueryHeads * kValueDim));
      std::vector<float> lse(static_cast<std::size_t>(rows * kQueryHeads));
      EXPECT_TRUE(plan.run(
          layer, {.q = q_.view(view.length() - rows),
                  .out = MutableRows::packed(out.data(), DType::f32, kQueryHeads, kValueDim),
                  .lse = lse.data()}));
      if (layer == 0) donor = out;
      if (layer == 3) {
        EXPECT_EQ(out, donor) << "layer 3 attends the pages of layer 0";
      }
      results.insert(results.end(), out.begin(), out.end());
      results.insert(results.end(), lse.begin(), lse.end());
    }
    EXPECT_TRUE(std::ranges::all_of(results, [](float value) { return std::isfinite(value); }));
    return results;
  }

  // A single row takes the nest for few queries, 40 the other one.
  void expect_same(ViewRef view, const char* what) {
    for (const std::int64_t rows : {1, 40}) {
      const std::vector<float> got = attend(view, rows);
      const std::vector<float>& want = rows == 1 ? one_row_ : many_rows_;
      ASSERT_EQ(got.size(), want.size());
      EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0)
          << what << ", " << rows << " rows";
    }
  }

  TestDevice test_;
  TokenCache tokens_;
  Tensor q_;
  std::vector<float> one_row_, many_rows_;
};

Tokens part(std::int64_t begin, std::int64_t end) {
  return count_up(static_cast<std::uint32_t>(begin), end - begin);
}

TEST_P(Reuse, EveryWayToASequenceGivesTheSameBits) {
  auto whole = *store().create_sequence();
  ASSERT_TRUE(tokens_.append(whole, part(0, kTokens)));
  one_row_ = attend(whole.ref(), 1);
  many_rows_ = attend(whole.ref(), 40);

  for (const std::int64_t chunk : {1, 7, 64}) {
    auto pieces = *store().create_sequence();
    for (std::int64_t at = 0; at < kTokens; at += chunk) {
      ASSERT_TRUE(tokens_.append(pieces, part(at, std::min(at + chunk, kTokens))));
    }
    expect_same(pieces.ref(), "computed in pieces");
  }

  auto longer = *store().create_sequence();
  ASSERT_TRUE(tokens_.append(longer, part(0, kTokens)));
  ASSERT_TRUE(tokens_.append(longer, part(700, 720)));
  auto child = *longer.fork();
  ASSERT_TRUE(child.truncate(kTokens));
  expect_same(child.ref(), "forked, and cut");
  ASSERT_TRUE(longer.truncate(kTokens - 25));
  ASSERT_TRUE(tokens_.append(longer, part(800, 830)));  // others, in the rows to be used again
  ASSERT_TRUE(longer.truncate(kTokens - 25));
  ASSERT_TRUE(tokens_.append(longer, part(kTokens - 25, kTokens)));
  expect_same(longer.ref(), "given up and appended again");
  expect_same(child.ref(), "whose parent went on");
  EXPECT_TRUE(store().check());
}

TEST_P(Reuse, ViewsAndStepsGiveTheSameBits) {
  auto whole = *store().create_sequence();
  ASSERT_TRUE(tokens_.append(whole, part(0, kTokens)));
  one_row_ = attend(whole.ref(), 1);
  many_rows_ = attend(whole.ref(), 40);

  const View view = *whole.publish();
  expect_same(view, "published");
  ASSERT_TRUE(tokens_.append(whole, part(900, 950)));
  expect_same(view, "whose sequence went on");

  auto first = *store().create_sequence();
  ASSERT_TRUE(tokens_.append(first, part(0, 101)));
  auto second = *store().create_sequence(*first.publish());
  const std::vector<Append> appends = {{&first, 9}, {&second, kTokens - 101 + 10}};
  Step step = *store().reserve(appends);  // the first writes in place, the second copies its tail
  Tokens rows = part(600, 609);
  const Tokens more = part(101, kTokens + 10);
  rows.insert(rows.end(), more.begin(), more.end());
  tokens_.write(step, rows);
  const std::vector<std::int64_t> counts = {9, kTokens - 101};
  ASSERT_TRUE(step.commit(counts));
  expect_same(second.ref(), "from a view, its last rows turned down");

  auto third = *store().create_sequence(view);
  ASSERT_TRUE(third.truncate(kTokens - 6));
  const Append append{&third, 6};
  Step last = *store().reserve({&append, 1});
  tokens_.write(last, part(kTokens - 6, kTokens));
  expect_same(last.view(0), "before it is committed");
  EXPECT_TRUE(store().check());
}

TEST_P(Reuse, FoundOrComputedGivesTheSameBits) {
  auto whole = *store().create_sequence();
  ASSERT_TRUE(tokens_.append(whole, part(0, kTokens)));
  one_row_ = attend(whole.ref(), 1);
  many_rows_ = attend(whole.ref(), 40);
  whole = Sequence();

  auto index = *PrefixIndex::make(store());
  const PrefixNamespace space = *index.open({});
  const auto serve = [&](const char* what) {  // returns what was found
    auto sequence = *index.match(space, ids(part(0, kTokens)));
    const std::int64_t found = sequence.length();
    EXPECT_TRUE(tokens_.append(sequence, part(found, kTokens)));
    expect_same(sequence.ref(), what);
    EXPECT_TRUE(index.insert(space, ids(part(0, kTokens)), sequence));
    return found;
  };
  EXPECT_EQ(serve("computed"), 0);
  EXPECT_EQ(serve("found"), kTokens - 1);

  Tokens other = part(0, 100);  // parts from it inside a page
  const Tokens end = part(700, 760);
  other.insert(other.end(), end.begin(), end.end());
  auto beside = *index.match(space, ids(other));
  EXPECT_EQ(beside.length(), 100);
  ASSERT_TRUE(tokens_.append(beside, end));
  ASSERT_TRUE(index.insert(space, ids(other), beside));
  beside = Sequence();
  EXPECT_EQ(serve("beside another"), kTokens - 1);

  const auto pages = static_cast<int>(index.stats().stored_pages);
  for (int gone = 1; gone <= pages; ++gone) {  // given up page by page, and filled again
    store().core()->reclaimer.lock()->reclaim(0, gone);
    EXPECT_LT(serve("in part given up"), kTokens);
  }
  index.clear();
  EXPECT_TRUE(store().check());
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Reuse,
    ::testing::Values(Setting{"bf16", "bf16", ""}, Setting{"small_pages", "bf16", "", 16},
                      Setting{"large_pages", "kv4", "", 64}, Setting{"kv8", "kv8", ""},
                      Setting{"kv3", "kv3", ""}, Setting{"k8v3", "k8v3", ""},
                      Setting{"k4v4", "k4v4", ""},
                      Setting{"rotated", "k=affine:4:rot,v=affine:6:32:rot", ""},
                      Setting{"codebooks", "k=codebook:5:head:rot,v=codebook:2:norm", ""},
                      Setting{"five", "k=affine:5:64,v=codebook:1:rot", ""},
                      Setting{"eight", "k=codebook:8,v=affine:8:f16:rot", ""},
                      Setting{"mixed", "k8v4", "1=bf16;2=k=f32,v=affine:2:16"}),
    [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace pagekv::testing
