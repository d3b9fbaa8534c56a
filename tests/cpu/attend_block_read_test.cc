// Block reads, bit for bit: a block that is not stored reads as one that is, and neither company
// nor cuts, threads or pages change its results.
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/paged_cache.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

constexpr int kKvHeads = 2;
constexpr int kKeyDim = 64;
constexpr int kValueDim = 96;
constexpr std::uint64_t kSeed = 71;

// Views and blocks around what the kernels care about: tiles, spans, chunks.
struct Sizes {
  std::int64_t prefix;
  std::int64_t rows;
};
const std::vector<Sizes> kSizes = {{0, 1}, {5, 3}, {127, 2}, {128, 130}, {511, 40}, {700, 33}};

struct Block {
  CacheShape shape;
  Tensor k;  // of the view, then of the block
  Tensor v;
  Tensor q;  // of the block
  AttendSpec spec;
  Sizes sizes;

  Block(const CacheShape& cache_shape, Sizes at, DType type, int query_heads)
      : shape(cache_shape),
        k(type, at.prefix + at.rows, kKvHeads, kKeyDim),
        v(type, at.prefix + at.rows, kKvHeads, kValueDim),
        q(DType::f32, at.rows, query_heads, kKeyDim),
        sizes(at) {
    Random random(kSeed);
    k.fill_normal(random);
    v.fill_normal(random);
    q.fill_normal(random);
    spec.query_heads = query_heads;
    spec.window_tokens = 0;
  }

  PagedCache pages(const CacheShape& of, const std::string& target, int threads,
                   std::int64_t stored) const {
    PagedCache cache(make_device(target, threads), of, {k.rows()}, kSeed);
    if (stored == 0) return cache;
    internal::WriteSpan span{.pages = cache.pages(0), .position = 0, .tokens = stored};
    cache.backend().encode(cache.address(), {&span, 1}, k.view(), v.view(), {});
    EXPECT_EQ(span.bad_token, -1);
    return cache;
  }

  // Only the view is stored.
  AttendResult unstored(const PagedCache& cache, Cut cut = Cut::as_planned) const {
    AttendSpec block = spec;
    block.mask = Mask::block;
    return attend(cache, {.queries = {{.sequence = 0, .length = sizes.prefix, .rows = sizes.rows}},
                          .spec = block,
                          .q = &q,
                          .cut = cut,
                          .block_k = k.view(sizes.prefix),
                          .block_v = v.view(sizes.prefix)});
  }

  // All is.
  AttendResult stored(const PagedCache& cache) const {
    AttendSpec all = spec;
    all.mask = Mask::none;
    return attend(
        cache,
        {.queries = {{.sequence = 0, .length = sizes.prefix + sizes.rows, .rows = sizes.rows}},
         .spec = all,
         .q = &q});
  }
};

CacheShape shape_of(const std::string& format) {
  return {.kv_heads = kKvHeads,
          .key_dim = kKeyDim,
          .value_dim = kValueDim,
          .format = format_of(format)};
}

class OnTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(OnTarget, ABlockReadsAsIfItWereStoredInDensePages) {
  for (const auto& [format, type] : {std::pair{"f32", DType::f32},
                                     {"f16", DType::f16},
                                     {"bf16", DType::bf16},
                                     {"f32:rot", DType::f32}}) {
    for (const Sizes& sizes : kSizes) {
      for (const int query_heads : {2, 10}) {
        for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::fast}) {
          SCOPED_TRACE(::testing::Message() << format << ", " << sizes.rows << " rows after "
                                            << sizes.prefix << ", heads " << query_heads);
          Block block(shape_of(format), sizes, type, query_heads);
          block.spec.arithmetic = arithmetic;
          const std::int64_t all = sizes.prefix + sizes.rows;
          EXPECT_TRUE(block.unstored(block.pages(block.shape, GetParam(), 1, sizes.prefix)) ==
                      block.stored(block.pages(block.shape, GetParam(), 1, all)));
        }
      }
    }
  }
}

// In `exact`, quantized pages and the block beside them read as f32 pages of their elements.
TEST_P(OnTarget, ABlockBesideQuantizedPagesKeepsItsElements) {
  for (const char* format :
       {"kv8", "kv3", "k=codebook:5,v=affine:2:16", "k=f16,v=codebook:1:head"}) {
    for (const Sizes& sizes : kSizes) {
      SCOPED_TRACE(::testing::Message()
                   << format << ", " << sizes.rows << " rows after " << sizes.prefix);
      Block block(shape_of(format), sizes, DType::f32, 4);
      const PagedCache cache = block.pages(block.shape, GetParam(), 1, sizes.prefix);
      const AttendResult got = block.unstored(cache);
      if (sizes.prefix > 0) cache.gather(0, 0, sizes.prefix, block.k, block.v);
      const PagedCache dense =
          block.pages(shape_of("f32"), GetParam(), 1, sizes.prefix + sizes.rows);
      EXPECT_TRUE(got == block.stored(dense));
    }
  }
}

TEST_P(OnTarget, CutsThreadsAndPagesKeepBits) {
  for (const char* format : {"bf16", "k8v3", "kv4", "k=affine:3:16:rot,v=codebook:2:head:rot"}) {
    for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::fast}) {
      for (const Sizes& sizes : {Sizes{700, 150}, Sizes{1100, 5}}) {
        SCOPED_TRACE(::testing::Message() << format << ", " << sizes.rows << " rows");
        Block block(shape_of(format), sizes, DType::bf16, 6);
        block.spec.arithmetic = arithmetic;
        const AttendResult whole =
            block.unstored(block.pages(block.shape, GetParam(), 1, sizes.prefix));
        for (const int threads : {1, 2, 4}) {
          CacheShape other = block.shape;
          other.page_tokens = threads == 1 ? 16 : 256;
          other.arrangement = TileArrangement::row_major;
          for (const Cut cut : {Cut::as_planned, Cut::always_split}) {
            EXPECT_TRUE(
                block.unstored(block.pages(other, GetParam(), threads, sizes.prefix), cut) == whole)
                << threads << " threads, cut " << static_cast<int>(cut);
          }
        }
        if (kSanitized) break;
      }
    }
  }
}

// Blocks of several sequences in one call, and each alone.
TEST_P(OnTarget, CompanyKeepsBits) {
  const std::vector<std::int64_t> prefixes = {600, 0, 33, 1029};
  const std::vector<std::int64_t> rows = {8, 40, 1, 20};
  for (const char* format : {"bf16", "kv4", "k4v4"}) {
    const CacheShape shape = shape_of(format);
    PagedCache cache(make_device(GetParam(), 2), shape, prefixes, kSeed);
    Random random(kSeed);
    std::vector<Query> queries;
    std::int64_t total = 0;
    for (std::size_t at = 0; at < prefixes.size(); ++at) {
      Tensor k(DType::f32, prefixes[at], kKvHeads, kKeyDim);
      Tensor v(DType::f32, prefixes[at], kKvHeads, kValueDim);
      k.fill_normal(random);
      v.fill_normal(random);
      if (prefixes[at] > 0) {
        ASSERT_EQ(cache.write(at, 0, k, v), -1);
      }
      queries.push_back({.sequence = at, .length = prefixes[at], .rows = rows[at]});
      total += rows[at];
    }
    constexpr int kHeads = 4;
    Tensor q(DType::f32, total, kHeads, kKeyDim);
    Tensor k(DType::f16, total, kKvHeads, kKeyDim);
    Tensor v(DType::bf16, total, kKvHeads, kValueDim);
    for (Tensor* tensor : {&q, &k, &v}) tensor->fill_normal(random);
    AttendSpec spec;
    spec.query_heads = kHeads;
    spec.mask = Mask::block;
    spec.arithmetic = Arithmetic::fast;
    const AttendResult together = attend(
        cache,
        {.queries = queries, .spec = spec, .q = &q, .block_k = k.view(), .block_v = v.view()});
    std::int64_t row = 0;
    for (const Query& query : queries) {
      const AttendResult alone = attend(cache, {.queries = {query},
                                                .spec = spec,
                                                .q = &q,
                                                .first_row = row,
                                                .block_k = k.view(row),
                                                .block_v = v.view(row)});
      const auto out = together.out.begin() + row * kHeads * kValueDim;
      EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), out)) << format;
      EXPECT_TRUE(
          std::equal(alone.lse.begin(), alone.lse.end(), together.lse.begin() + row * kHeads));
      row += query.rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, OnTarget, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace pagekv::testing
