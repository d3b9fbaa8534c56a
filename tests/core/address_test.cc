// Byte offsets have 64 bits everywhere: pages more than 4 GiB apart, and heads of one page that
// are, hold what was written to them. Only address space is that large; each sequence touches a few
// pages of memory.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "pagekv/pagekv.h"
#include "support/sanitized.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

constexpr int kDim = 576;
constexpr std::int64_t kFourGibibytes = std::int64_t{4} << 30;

// Two tokens attended with keys that score alike, so that the output is the mean of their values.
std::vector<float> attend_evenly(Store& store, const Sequence& sequence, int layer, int heads) {
  const std::vector<float> q(static_cast<std::size_t>(heads) * kDim, 0.0f);
  std::vector<float> out(q.size());
  const QueryRows query{.view = sequence.ref(), .rows = 1};
  Plan plan = *store.plan({&query, 1}, {.query_heads = heads});
  EXPECT_TRUE(plan.run(layer, {.q = Rows::packed(q.data(), DType::f32, heads, kDim),
                               .out = MutableRows::packed(out.data(), DType::f32, heads, kDim)}));
  return out;
}

// The values of a layer, [token][head][dim].
std::vector<float> values(Store& store, const Sequence& sequence, int layer, int heads) {
  const auto size = static_cast<std::size_t>(sequence.length() * heads * kDim);
  std::vector<float> k(size), v(size);
  EXPECT_TRUE(store.gather(sequence.ref(), layer,
                           MutableRows::packed(k.data(), DType::f32, heads, kDim),
                           MutableRows::packed(v.data(), DType::f32, heads, kDim)));
  return v;
}

struct Setting {
  const char* name;
  const char* format;
  PageOrder order;
  int heads;
  std::int64_t page_tokens;
};

class AddressTest : public ::testing::TestWithParam<Setting> {
 protected:
  static LayoutSpec layout(int layers) {
    LayoutSpec spec{.page_tokens = GetParam().page_tokens, .order = GetParam().order};
    for (int layer = 0; layer < layers; ++layer) {
      spec.layers.push_back({.kv_heads = GetParam().heads,
                             .key_dim = kDim,
                             .value_dim = kDim,
                             .format = *Format::parse(GetParam().format)});
    }
    return spec;
  }
  // Writes, copies, gathers and attends pages: `count` and half as many.
  static void use_pages(TokenCache& cache, std::uint32_t count) {
    const int last_layer = cache.layout().layer_count() - 1;
    std::vector<Sequence> sequences;
    for (std::uint32_t token = 0; token < count; ++token) {
      sequences.push_back(*cache.store().create_sequence());
      ASSERT_TRUE(cache.append(sequences.back(), {token}));
      Sequence copy = *sequences.back().fork();
      ASSERT_TRUE(cache.append(sequences.back(), {token + 1000}));
      ASSERT_TRUE(cache.append(copy, {token + 2000}));  // in a page of its own
      ASSERT_TRUE(cache.holds(copy, {token, token + 2000}));
      if (token % 2 == 1) sequences.push_back(std::move(copy));  // the others' pages are used again
    }
    for (Sequence& sequence : sequences) {
      const std::vector<float> v = values(cache.store(), sequence, last_layer, GetParam().heads);
      const std::vector<float> out =
          attend_evenly(cache.store(), sequence, last_layer, GetParam().heads);
      for (std::size_t at = 0; at < out.size(); ++at) {
        ASSERT_NEAR(out[at], (v[at] + v[at + out.size()]) / 2, 1e-3f) << at;
      }
    }
    for (std::uint32_t token = 0, at = 0; token < count; ++token) {
      ASSERT_TRUE(cache.holds(sequences[at++], {token, token + 1000}));
      if (token % 2 == 1) {
        ASSERT_TRUE(cache.holds(sequences[at++], {token, token + 2000}));
      }
    }
    ASSERT_TRUE(cache.store().check());
  }
};

class PagesApart : public AddressTest {};
class HeadsApart : public AddressTest {};

TEST_P(PagesApart, ArePagesOfTheirOwn) {
  constexpr std::uint32_t kSequences = 44, kPages = 66;  // every second one has a copy
  const LayoutSpec spec = layout(2);
  const std::int64_t page_bytes = CacheLayout::make(spec)->group(0).page_bytes;
  TokenCache cache(*make_cpu_device({.huge_pages = false}), spec,
                   {.cap_bytes = (kPages + 1) * page_bytes, .max_sequence_tokens = 8});
  ASSERT_GT(kPages * page_bytes, 2 * kFourGibibytes);
  use_pages(cache, kSequences);
}

TEST_P(HeadsApart, AreHeadsOfTheirOwn) {
  if (kSanitized) GTEST_SKIP() << "what a sanitizer notes about pages of this size is gigabytes";
  const LayoutSpec spec = layout(1);
  const CacheLayout made = *CacheLayout::make(spec);
  ASSERT_GT(made.layer(0).v[0].offset, kFourGibibytes) << "keys alone are larger";
  TokenCache cache(*make_cpu_device({.huge_pages = false}), spec,
                   {.cap_bytes = 3 * made.group(0).page_bytes, .max_sequence_tokens = 8});
  use_pages(cache, 2);
}

const auto kName = [](const auto& setting) { return std::string(setting.param.name); };
constexpr auto kPageMajor = PageOrder::page_major;
constexpr auto kLayerMajor = PageOrder::layer_major;

INSTANTIATE_TEST_SUITE_P(Formats, PagesApart,
                         ::testing::Values(Setting{"f32", "f32", kPageMajor, 16, 1024},
                                           Setting{"f32_layer_major", "f32", kLayerMajor, 16, 1024},
                                           Setting{"kv8", "kv8", kPageMajor, 4, 16384},
                                           Setting{"codebooks_layer_major",
                                                   "k=codebook:4:rot,v=codebook:3:rot", kLayerMajor,
                                                   4, 32768}),
                         kName);
INSTANTIATE_TEST_SUITE_P(Formats, HeadsApart,
                         ::testing::Values(Setting{"f32", "f32", kPageMajor, 64, 32768},
                                           Setting{"kv8", "kv8", kPageMajor, 128, 65536}),
                         kName);

}  // namespace
}  // namespace pagekv::testing
