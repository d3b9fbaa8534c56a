// Byte offsets have 64 bits everywhere: pages more than 4 GiB apart hold what was written to them.
// Only address space is that large; each sequence touches a few pages of memory.
#include <gtest/gtest.h>

#include <vector>

#include "pagekv/pagekv.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

constexpr int kHeads = 16, kDim = 576;
constexpr std::uint32_t kSequences = 64;

class AddressTest : public ::testing::TestWithParam<PageOrder> {};

TEST_P(AddressTest, PagesBeyondFourGibibytesAreTheirOwn) {
  LayoutSpec spec{.page_tokens = 1024, .order = GetParam()};
  for (int layer = 0; layer < 2; ++layer) {
    spec.layers.push_back(
        {.kv_heads = kHeads, .key_dim = kDim, .value_dim = kDim, .format = *Format::parse("f32")});
  }
  const std::int64_t page_bytes = CacheLayout::make(spec)->group(0).page_bytes;
  TokenCache cache(*make_cpu_device({.huge_pages = false}), spec,
                   {.cap_bytes = kSequences * page_bytes, .max_sequence_tokens = 8});
  ASSERT_GT(kSequences * page_bytes, std::int64_t{8} << 30);

  std::vector<Sequence> sequences;
  for (std::uint32_t token = 0; token < kSequences; ++token) {
    sequences.push_back(*cache.store().create_sequence());
    ASSERT_TRUE(cache.append(sequences.back(), {token}));
  }
  const std::vector<float> q(kHeads * kDim, 1.0f);
  for (std::uint32_t token = 0; token < kSequences; ++token) {
    ASSERT_TRUE(cache.holds(sequences[token], {token}));
    // One token: the output is its value, whatever the query.
    std::vector<float> out(kHeads * kDim), k(out.size()), v(out.size());
    const QueryRows query{.view = sequences[token].ref(), .rows = 1};
    Plan plan = *cache.store().plan({&query, 1}, {.query_heads = kHeads});
    ASSERT_TRUE(plan.run(1, {.q = Rows::packed(q.data(), DType::f32, kHeads, kDim),
                             .out = MutableRows::packed(out.data(), DType::f32, kHeads, kDim)}));
    ASSERT_TRUE(cache.store().gather(sequences[token].ref(), 1,
                                     MutableRows::packed(k.data(), DType::f32, kHeads, kDim),
                                     MutableRows::packed(v.data(), DType::f32, kHeads, kDim)));
    ASSERT_EQ(out, v) << token;
  }
}

INSTANTIATE_TEST_SUITE_P(Orders, AddressTest,
                         ::testing::Values(PageOrder::page_major, PageOrder::layer_major));

}  // namespace
}  // namespace pagekv::testing
