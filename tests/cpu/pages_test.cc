// Encode, gather and copy_rows: bytes in pages and back, on every target.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "codec/arrangement.h"
#include "cpu/paged_cache.h"

namespace pagekv::testing {
namespace {

using internal::WriteSpan;

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};
constexpr TileArrangement kArrangements[] = {TileArrangement::row_major,
                                             TileArrangement::key_tile16};

Format dense(DType type) {
  return {VectorCodec::dense(type), VectorCodec::dense(type)};
}

// Every stored element is the input rounded once, where the layout says.
void expect_stored(const PagedCache& cache, std::int64_t position, const Tensor& k,
                   const Tensor& v) {
  for (const bool keys : {true, false}) {
    const Tensor& from = keys ? k : v;
    const DType type = cache.codec(keys).dtype();
    for (std::int64_t row = 0; row < from.rows(); ++row) {
      for (std::int64_t head = 0; head < from.heads(); ++head) {
        std::vector<std::byte> want(static_cast<std::size_t>(from.dim() * size_bytes(type)));
        for (std::int64_t dim = 0; dim < from.dim(); ++dim) {
          store_element(type, from.at(row, head, dim), want.data() + dim * size_bytes(type));
        }
        EXPECT_EQ(cache.stored(0, position + row, head, keys).planes[0], want) << row;
      }
    }
  }
}

class OnTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(OnTarget, EncodeAndGatherRoundTrip) {
  constexpr std::uint64_t kSeed = 21;
  Random random(kSeed);
  for (const DType storage : kTypes) {
    for (const TileArrangement arrangement : kArrangements) {
      for (const DType type : kTypes) {
        SCOPED_TRACE(::testing::Message() << "seed " << kSeed << ' ' << name(storage) << " from "
                                          << name(type) << ' ' << static_cast<int>(arrangement));
        const CacheShape shape{.kv_heads = 2,
                               .key_dim = 24,
                               .value_dim = 40,
                               .format = dense(storage),
                               .page_tokens = 32,
                               .arrangement = arrangement};
        PagedCache cache(make_device(GetParam(), 2), shape, {100}, kSeed);
        Tensor k(type, 77, 2, 24);
        Tensor v(type, 77, 2, 40);
        k.fill_normal(random);
        v.fill_normal(random);
        EXPECT_EQ(cache.write(0, 13, k, v), -1);
        expect_stored(cache, 13, k, v);

        // The same type comes back bit for bit; another one is rounded once.
        for (const DType out : kTypes) {
          Tensor k_back(out, 77, 2, 24);
          Tensor v_back(out, 77, 2, 40);
          cache.gather(0, 13, 90, k_back, v_back);
          Tensor stored(storage, 1, 1, 1);
          Tensor want(out, 1, 1, 1);
          std::int64_t wrong = 0;
          for (std::int64_t row = 0; row < 77; ++row) {
            for (std::int64_t dim = 0; dim < 24; ++dim) {
              stored.set(0, 0, 0, k.at(row, 1, dim));
              want.set(0, 0, 0, stored.at(0, 0, 0));
              wrong += k_back.at(row, 1, dim) != want.at(0, 0, 0);
              stored.set(0, 0, 0, v.at(row, 1, dim + 16));
              want.set(0, 0, 0, stored.at(0, 0, 0));
              wrong += v_back.at(row, 1, dim + 16) != want.at(0, 0, 0);
            }
          }
          EXPECT_EQ(wrong, 0) << "to " << name(out);
        }
      }
    }
  }
}

// Large enough to be spread over threads; the bytes are those of one thread and of one row at a
// time.
TEST_P(OnTarget, BytesDoNotDependOnThreadsOrChunks) {
  constexpr std::uint64_t kSeed = 22;
  Random random(kSeed);
  for (const TileArrangement arrangement : kArrangements) {
    const CacheShape shape{
        .kv_heads = 3, .key_dim = 64, .value_dim = 32, .arrangement = arrangement};
    constexpr std::int64_t kTokens = 500;
    Tensor k(DType::f32, kTokens, 3, 64);
    Tensor v(DType::f32, kTokens, 3, 32);
    k.fill_normal(random);
    v.fill_normal(random);
    PagedCache whole(make_device(GetParam(), 3), shape, {kTokens}, kSeed);
    PagedCache rows(make_device(GetParam(), 1), shape, {kTokens}, kSeed);
    EXPECT_EQ(whole.write(0, 0, k, v), -1);
    for (std::int64_t row = 0; row < kTokens; ++row) {
      WriteSpan span{.pages = rows.pages(0), .position = row, .tokens = 1};
      rows.backend().encode(rows.address(), {&span, 1}, k.view(row), v.view(row), {});
      EXPECT_EQ(span.bad_token, -1);
    }
    for (std::int64_t page = 0; page < whole.layout().pages_for(0, kTokens); ++page) {
      EXPECT_EQ(whole.page_bytes(whole.pages(0)[page]), rows.page_bytes(rows.pages(0)[page]));
    }
  }
}

TEST_P(OnTarget, BadTokensAreFoundPerSpan) {
  constexpr std::uint64_t kSeed = 23;
  Random random(kSeed);
  for (const DType storage : kTypes) {
    const CacheShape shape{.kv_heads = 2, .key_dim = 16, .value_dim = 8, .format = dense(storage)};
    const std::vector<std::int64_t> tokens = {40, 1, 900, 70};
    PagedCache cache(make_device(GetParam(), 2), shape, tokens, kSeed);
    std::vector<WriteSpan> spans;
    std::int64_t rows = 0;
    for (std::size_t index = 0; index < tokens.size(); ++index) {
      spans.push_back({.pages = cache.pages(index), .position = 0, .tokens = tokens[index]});
      rows += tokens[index];
    }
    Tensor k(DType::f32, rows, 2, 16);
    Tensor v(DType::f32, rows, 2, 8);
    k.fill_normal(random);
    v.fill_normal(random);
    k.set(40, 1, 3, std::numeric_limits<float>::quiet_NaN());         // span 1, token 0
    v.set(41 + 800, 0, 7, std::numeric_limits<float>::infinity());    // span 2, token 800
    k.set(41 + 333, 1, 15, -std::numeric_limits<float>::infinity());  // span 2, token 333
    v.set(941 + 69, 1, 0, 65520.0f);                                  // span 3: beyond f16 only
    cache.backend().encode(cache.address(), spans, k.view(), v.view(), {});
    EXPECT_EQ(spans[0].bad_token, -1);
    EXPECT_EQ(spans[1].bad_token, 0);
    EXPECT_EQ(spans[2].bad_token, 333);
    EXPECT_EQ(spans[3].bad_token, storage == DType::f16 ? 69 : -1) << name(storage);
  }
}

TEST_P(OnTarget, CopyRowsTakesTheFirstRowsAndNoMore) {
  constexpr std::uint64_t kSeed = 24;
  Random random(kSeed);
  for (const DType storage : kTypes) {
    for (const TileArrangement arrangement : kArrangements) {
      for (const std::int64_t rows : {0, 1, 15, 16, 17, 40, 48}) {
        SCOPED_TRACE(::testing::Message()
                     << "seed " << kSeed << ' ' << name(storage) << ' ' << rows);
        const CacheShape shape{.kv_heads = 2,
                               .key_dim = 8,
                               .value_dim = 16,
                               .format = dense(storage),
                               .page_tokens = 48,
                               .arrangement = arrangement};
        PagedCache cache(make_device(GetParam()), shape, {48, 48}, kSeed);
        Tensor k(storage, 48, 2, 8);
        Tensor v(storage, 48, 2, 16);
        k.fill_normal(random);
        v.fill_normal(random);
        ASSERT_EQ(cache.write(0, 0, k, v), -1);
        cache.backend().copy_rows(cache.address(), cache.pages(0)[0], cache.pages(1)[0], rows, {});
        Tensor k_back(storage, 48, 2, 8);
        Tensor v_back(storage, 48, 2, 16);
        cache.gather(1, 0, 48, k_back, v_back);
        for (std::int64_t row = 0; row < 48; ++row) {
          for (std::int64_t head = 0; head < 2; ++head) {
            if (row < rows) {
              EXPECT_EQ(k_back.at(row, head, 7), k.at(row, head, 7));
              EXPECT_EQ(v_back.at(row, head, 15), v.at(row, head, 15));
            } else {  // still what the page held
              EXPECT_TRUE(std::isnan(k_back.at(row, head, 7)));
              EXPECT_TRUE(std::isnan(v_back.at(row, head, 15)));
            }
          }
        }
      }
    }
  }
}

// Heads and tokens need not be packed.
TEST_P(OnTarget, StridesAreFollowed) {
  const CacheShape shape{.kv_heads = 2, .key_dim = 8, .value_dim = 8, .format = dense(DType::f32)};
  PagedCache cache(make_device(GetParam()), shape, {20}, 1);
  // [head][token][dim] with a gap after each row.
  std::vector<float> input(static_cast<std::size_t>(2 * 20 * 11));
  for (std::size_t at = 0; at < input.size(); ++at) input[at] = static_cast<float>(at);
  const Rows rows{input.data(), DType::f32, 11, 20 * 11};
  WriteSpan span{.pages = cache.pages(0), .position = 0, .tokens = 20};
  cache.backend().encode(cache.address(), {&span, 1}, rows, rows, {});
  std::vector<float> output(input.size(), -1.0f);
  const MutableRows back{output.data(), DType::f32, 11, 20 * 11};
  std::vector<float> values(input.size(), -1.0f);
  const MutableRows values_back{values.data(), DType::f32, 11, 20 * 11};
  cache.backend().gather(cache.address(), {.pages = cache.pages(0), .begin = 0, .end = 20}, back,
                         values_back, {});
  for (std::size_t at = 0; at < input.size(); ++at) {
    EXPECT_EQ(output[at], at % 11 < 8 ? input[at] : -1.0f);
  }
  EXPECT_EQ(values, output);
}

INSTANTIATE_TEST_SUITE_P(Targets, OnTarget, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace pagekv::testing
