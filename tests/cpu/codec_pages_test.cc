// Pages of every codec, on every target: the bytes are those of the reference, whatever way they
// came in, and what is gathered is what they stand for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "codec/limits.h"
#include "cpu/paged_cache.h"

namespace pagekv::testing {
namespace {

using internal::WriteSpan;

constexpr TileArrangement kArrangements[] = {TileArrangement::row_major,
                                             TileArrangement::key_tile16};
constexpr std::uint64_t kPages = 91;  // seed of the order of pages

struct Data {
  Tensor k;
  Tensor v;
};

Data random_data(Random& random, const CacheShape& shape, DType type, std::int64_t rows) {
  Data data{Tensor(type, rows, shape.kv_heads, shape.key_dim),
            Tensor(type, rows, shape.kv_heads, shape.value_dim)};
  data.k.fill_normal(random, 2.0f);
  data.v.fill_normal(random);
  return data;
}

std::vector<float> vector_of(const Tensor& tensor, std::int64_t row, std::int64_t head) {
  std::vector<float> values;
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) values.push_back(tensor.at(row, head, dim));
  return values;
}

// Stores rows [begin, end) of `data` at their positions. Returns WriteSpan::bad_token.
std::int64_t write(const PagedCache& cache, const Data& data, std::int64_t begin,
                   std::int64_t end) {
  WriteSpan span{.pages = cache.pages(0), .position = begin, .tokens = end - begin};
  cache.backend().encode(cache.address(), {&span, 1}, data.k.view(begin), data.v.view(begin), {});
  return span.bad_token;
}

// All pages of sequence 0, one after the other.
std::vector<std::byte> all_bytes(const PagedCache& cache, std::int64_t tokens) {
  std::vector<std::byte> bytes;
  for (std::int64_t page = 0; page * cache.shape().page_tokens < tokens; ++page) {
    const auto more = cache.page_bytes(cache.pages(0)[page]);
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

Data gathered(const PagedCache& cache, DType type, std::int64_t begin, std::int64_t end) {
  const CacheShape& shape = cache.shape();
  Data data{Tensor(type, end - begin, shape.kv_heads, shape.key_dim),
            Tensor(type, end - begin, shape.kv_heads, shape.value_dim)};
  cache.gather(0, begin, end, data.k, data.v);
  return data;
}

// A shape whose codecs are of the given kinds and widths, else random.
CacheShape shape_of(Random& random, int key_width, int value_width) {
  const std::vector<int> dims = {8, 24, 40, 64, 72, 80, 96, 128};
  CacheShape shape{
      .kv_heads = 2,
      .key_dim = pick_one(random, dims),
      .value_dim = pick_one(random, dims),
      .page_tokens = 32,
      .arrangement = kArrangements[pick(random, 0, 1)],
      .order = pick(random, 0, 1) == 0 ? PageOrder::page_major : PageOrder::layer_major};
  shape.format = {pick_codec(random, key_width, shape.key_dim),
                  pick_codec(random, value_width, shape.value_dim)};
  return shape;
}

std::string text(const CacheShape& shape) {
  return shape.format.name() + " dims " + std::to_string(shape.key_dim) + " and " +
         std::to_string(shape.value_dim) + " arrangement " +
         std::to_string(static_cast<int>(shape.arrangement));
}

class OnTarget : public ::testing::TestWithParam<std::string> {
 protected:
  // Each kind and width on both sides, in two pairings, with a seed of its own.
  template <typename Check>
  static void for_shapes(std::uint64_t seed, Check check) {
    for (int width = 0; width < kCodecWidths; ++width) {
      for (const int other : {width, (7 * width + 3) % kCodecWidths}) {
        Random random(seed + static_cast<std::uint64_t>(width));
        const CacheShape shape = shape_of(random, width, other);
        SCOPED_TRACE(::testing::Message()
                     << text(shape) << " seed " << seed + static_cast<std::uint64_t>(width));
        check(shape, random);
      }
    }
  }
};

TEST_P(OnTarget, PagesHoldTheBytesOfTheReference) {
  for_shapes(9100, [&](const CacheShape& shape, Random& random) {
    const Data data = random_data(random, shape, kAllDTypes[random() % 3], 40);
    const PagedCache cache(make_device(GetParam()), shape, {50}, kPages);
    ASSERT_EQ(write(cache, data, 0, 40), -1);
    for (const bool keys : {true, false}) {
      const Tensor& from = keys ? data.k : data.v;
      for (std::int64_t row = 0; row < 40; ++row) {
        for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
          const auto want = encode_alone(cache.codec(keys), vector_of(from, row, head));
          ASSERT_EQ(cache.stored(0, row, head, keys), want) << (keys ? "key " : "value ") << row;
        }
      }
    }
  });
}

// The first row with such an element is named, whatever type it is given in.
TEST_P(OnTarget, WhatIsNotFiniteIsFoundInEveryType) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for_shapes(9150, [&](const CacheShape& shape, Random& random) {
    for (const DType type : kAllDTypes) {
      for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (const bool keys : {true, false}) {
          Data data = random_data(random, shape, type, 20);
          Tensor& to = keys ? data.k : data.v;
          const std::int64_t row = pick(random, 0, 19);
          to.set(row, pick(random, 0, shape.kv_heads - 1),
                 pick(random, 0, static_cast<int>(to.dim()) - 1), bad);
          const PagedCache cache(make_device(GetParam()), shape, {32}, kPages);
          ASSERT_EQ(write(cache, data, 0, 20), row) << name(type) << ' ' << bad;
        }
      }
    }
  });
}

// Of gathered rows every element is that of its vector alone, rounded once.
TEST_P(OnTarget, GatherGivesWhatTheVectorsStandFor) {
  for_shapes(9200, [&](const CacheShape& shape, Random& random) {
    const Data data = random_data(random, shape, DType::f32, 33);
    const PagedCache cache(make_device(GetParam()), shape, {40}, kPages);
    ASSERT_EQ(write(cache, data, 0, 33), -1);
    for (const DType type : kAllDTypes) {
      const Data back = gathered(cache, type, 0, 33);
      for (const bool keys : {true, false}) {
        const Tensor& got = keys ? back.k : back.v;
        Tensor want(type, 33, shape.kv_heads, cache.dim(keys));
        for (std::int64_t row = 0; row < 33; ++row) {
          for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
            const auto values =
                through_codec(cache.codec(keys), vector_of(keys ? data.k : data.v, row, head));
            for (std::int64_t dim = 0; dim < want.dim(); ++dim) {
              want.set(row, head, dim, values[static_cast<std::size_t>(dim)]);
            }
          }
        }
        EXPECT_EQ(got.bytes(), want.bytes()) << (keys ? "keys" : "values") << " as " << name(type);
      }
    }
  });
}

// Rule 2: chunks, and the target too, for the bytes are compared with those of the first one.
TEST_P(OnTarget, ChunksAndTargetsKeepBytes) {
  constexpr std::int64_t kTokens = 150;
  for_shapes(9300, [&](const CacheShape& shape, Random& random) {
    const Data data = random_data(random, shape, DType::bf16, kTokens);
    const PagedCache whole(make_device(cpu_targets().front(), 3), shape, {kTokens}, kPages);
    ASSERT_EQ(write(whole, data, 0, kTokens), -1);
    const std::vector<std::byte> want = all_bytes(whole, kTokens);
    for (const std::int64_t chunk : {1, 3, 16, 17, 64}) {
      const PagedCache cache(make_device(GetParam()), shape, {kTokens}, kPages);
      for (std::int64_t row = 0; row < kTokens; row += chunk) {
        ASSERT_EQ(write(cache, data, row, std::min(row + chunk, kTokens)), -1);
      }
      EXPECT_EQ(all_bytes(cache, kTokens), want) << "chunks of " << chunk;
    }
  });
}

// Rows given up and written again, after others had been there, leave no trace.
TEST_P(OnTarget, RowsWrittenAgainHaveTheSameBytes) {
  constexpr std::int64_t kTokens = 70;
  for_shapes(9400, [&](const CacheShape& shape, Random& random) {
    const Data data = random_data(random, shape, DType::f32, kTokens);
    const Data other = random_data(random, shape, DType::f32, kTokens);
    const PagedCache cache(make_device(GetParam()), shape, {kTokens}, kPages);
    ASSERT_EQ(write(cache, data, 0, kTokens), -1);
    const std::vector<std::byte> want = all_bytes(cache, kTokens);
    for (const std::int64_t kept : {0, 16, 37, 69}) {
      ASSERT_EQ(write(cache, other, kept, kTokens), -1);
      EXPECT_NE(all_bytes(cache, kTokens), want);
      ASSERT_EQ(write(cache, data, kept, kTokens), -1);
      EXPECT_EQ(all_bytes(cache, kTokens), want) << kept << " rows kept";
    }
  });
}

TEST_P(OnTarget, GatherOfAPartIsAPartOfTheGather) {
  constexpr std::int64_t kTokens = 100;
  for_shapes(9500, [&](CacheShape shape, Random& random) {
    const Data data = random_data(random, shape, DType::f32, kTokens);
    const PagedCache cache(make_device(GetParam(), 2), shape, {kTokens}, kPages);
    ASSERT_EQ(write(cache, data, 0, kTokens), -1);
    const Data whole = gathered(cache, DType::f32, 0, kTokens);
    for (const auto& [begin, end] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {0, 1}, {15, 16}, {15, 33}, {31, 97}, {99, 100}}) {
      const Data part = gathered(cache, DType::f32, begin, end);
      for (const bool keys : {true, false}) {
        const Tensor& all = keys ? whole.k : whole.v;
        const std::int64_t row_bytes = all.heads() * all.dim() * 4;
        EXPECT_TRUE(
            std::ranges::equal((keys ? part.k : part.v).bytes(),
                               std::span(all.bytes())
                                   .subspan(static_cast<std::size_t>(begin * row_bytes),
                                            static_cast<std::size_t>((end - begin) * row_bytes))))
            << begin << " to " << end;
      }
    }
    shape.arrangement = shape.arrangement == TileArrangement::row_major
                            ? TileArrangement::key_tile16
                            : TileArrangement::row_major;
    const PagedCache arranged(make_device(GetParam()), shape, {kTokens}, kPages);
    ASSERT_EQ(write(arranged, data, 0, kTokens), -1);
    const Data same = gathered(arranged, DType::f32, 0, kTokens);
    EXPECT_EQ(same.k.bytes(), whole.k.bytes());
    EXPECT_EQ(same.v.bytes(), whole.v.bytes());
  });
}

// All planes of the first rows; not a byte of a later one, though its neighbours in a tile go over.
TEST_P(OnTarget, CopyRowsTakesAllPlanesOfTheFirstRowsAndNoMore) {
  for_shapes(9600, [&](const CacheShape& shape, Random& random) {
    const Data data = random_data(random, shape, DType::f32, shape.page_tokens);
    for (const std::int64_t rows : {0, 1, 15, 16, 17, 31, 32}) {
      const std::int64_t tokens = shape.page_tokens;
      PagedCache cache(make_device(GetParam()), shape, {tokens, tokens}, kPages);
      const std::vector<std::byte> untouched = cache.page_bytes(cache.pages(1)[0]);
      ASSERT_EQ(write(cache, data, 0, tokens), -1);
      cache.backend().copy_rows(cache.address(), cache.pages(0)[0], cache.pages(1)[0], rows, {});
      if (rows == 0) {
        EXPECT_EQ(cache.page_bytes(cache.pages(1)[0]), untouched);
      }
      for (const bool keys : {true, false}) {
        for (std::int64_t row = 0; row < tokens; ++row) {
          for (std::int64_t head = 0; head < shape.kv_heads; ++head) {
            const EncodedVector copy = cache.stored(1, row, head, keys);
            if (row < rows) {
              ASSERT_EQ(copy, cache.stored(0, row, head, keys)) << rows << " rows, row " << row;
              continue;
            }
            for (const auto& plane : copy.planes) {
              for (const std::byte byte : plane) {
                ASSERT_EQ(byte, std::byte{0xff}) << rows << " rows, row " << row;
              }
            }
          }
        }
      }
    }
  });
}

bool all_finite(const Tensor& tensor) {
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
      if (!std::isfinite(tensor.at(row, 0, dim))) return false;
    }
  }
  return true;
}

// Finite in, finite out, in every type it is asked for; what the scales' type cannot hold is
// refused row by row.
TEST_P(OnTarget, EdgeVectorsStayFiniteOrAreRefused) {
  for_shapes(9700, [&](const CacheShape& random_shape, Random&) {
    CacheShape shape = random_shape;
    shape.kv_heads = 1;
    for (const DType type : kAllDTypes) {
      const std::vector<NamedVector> keys = edge_vectors(type, shape.key_dim);
      const std::vector<NamedVector> values = edge_vectors(type, shape.value_dim);
      const auto count = static_cast<std::int64_t>(keys.size());
      PagedCache cache(make_device(GetParam()), shape, {count}, kPages);
      for (std::int64_t at = 0; at < count; ++at) {
        const NamedVector& key = keys[static_cast<std::size_t>(at)];
        const NamedVector& value = values[static_cast<std::size_t>(at)];
        SCOPED_TRACE(::testing::Message() << key.name << " of " << name(type));
        Data data{Tensor(type, 1, 1, shape.key_dim), Tensor(type, 1, 1, shape.value_dim)};
        for (std::int64_t i = 0; i < shape.key_dim; ++i) {
          data.k.set(0, 0, i, key.elements[static_cast<std::size_t>(i)]);
        }
        for (std::int64_t i = 0; i < shape.value_dim; ++i) {
          data.v.set(0, 0, i, value.elements[static_cast<std::size_t>(i)]);
        }
        const auto stored_key = encode_alone(cache.codec(true), key.elements);
        const auto stored_value = encode_alone(cache.codec(false), value.elements);
        const std::int64_t bad = cache.write(0, at, data.k, data.v);
        ASSERT_EQ(bad, stored_key && stored_value ? -1 : 0);
        if (bad == 0) continue;
        ASSERT_EQ(cache.stored(0, at, 0, true), stored_key);
        ASSERT_EQ(cache.stored(0, at, 0, false), stored_value);
        for (const DType out : kAllDTypes) {
          const Data back = gathered(cache, out, at, at + 1);
          // A dense page is rounded to the type that is asked for as any tensor is: to infinity
          // where it holds more than that type can.
          for (const bool side : {true, false}) {
            const VectorCodec& codec = cache.codec(side);
            const bool plain = codec.kind() == CodecKind::dense && !codec.is_rotated();
            if (plain && internal::overflow_limit(out) < internal::overflow_limit(codec.dtype())) {
              continue;
            }
            ASSERT_TRUE(all_finite(side ? back.k : back.v)) << codec.name() << " as " << name(out);
          }
        }
      }
    }
  });
}

// NaN, infinities and what overflows: the first such token of each span, whatever side and head.
TEST_P(OnTarget, TokensThatCannotBeStoredAreFound) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for_shapes(9800, [&](const CacheShape& shape, Random& random) {
    const std::vector<std::int64_t> tokens = {40, 1, 90, 70};
    PagedCache cache(make_device(GetParam(), 2), shape, tokens, kPages);
    std::vector<WriteSpan> spans;
    std::int64_t rows = 0;
    for (std::size_t index = 0; index < tokens.size(); ++index) {
      spans.push_back({.pages = cache.pages(index), .position = 0, .tokens = tokens[index]});
      rows += tokens[index];
    }
    Data data = random_data(random, shape, DType::f32, rows);
    data.k.set(40, 1, 3, std::numeric_limits<float>::quiet_NaN());  // span 1, token 0
    data.v.set(41 + 80, 0, 7, kInfinity);                           // span 2, token 80
    data.k.set(41 + 33, 1, shape.key_dim - 1, -kInfinity);          // span 2, token 33
    data.v.set(131 + 69, 1, 0, internal::overflow_limit(shape.format.v.dtype()));  // span 3
    cache.backend().encode(cache.address(), spans, data.k.view(), data.v.view(), {});
    EXPECT_EQ(spans[0].bad_token, -1);
    EXPECT_EQ(spans[1].bad_token, 0);
    EXPECT_EQ(spans[2].bad_token, 33);
    EXPECT_EQ(spans[3].bad_token, 69);
    // The others of the span are stored.
    EXPECT_EQ(cache.stored(2, 89, 1, true),
              encode_alone(cache.codec(true), vector_of(data.k, 41 + 89, 1)));
  });
}

INSTANTIATE_TEST_SUITE_P(Targets, OnTarget, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace pagekv::testing
