// The matrix unit's kernels and those for few queries against their arithmetic written out, bit for
// bit (cpu/matrix_kernels.h).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/constants.h"
#include "cpu/denormals.h"
#include "cpu/kernel_table.h"
#include "cpu/matrix_kernels.h"
#include "cpu/targets.h"

namespace pagekv::testing {
namespace {

using internal::Ahead;
using internal::AskAhead;
using internal::KernelTable;
using internal::kFewQueries;
using internal::kFewVectors;
using internal::kMatrixDims;
using internal::kMatrixQueries;
using internal::kSpanTiles;
using internal::kSpanTokens;
using internal::matrix_padded;
using internal::MatrixKernels;
using internal::SpanTiles;
using internal::TokenRange;

const MatrixKernels* matrix_kernels() {
  for (const KernelTable& table : internal::kernel_tables()) {
    if (table.matrix.score != nullptr) return &table.matrix;
  }
  return nullptr;
}

float flushed(float x) {
  return std::fabs(x) < 0x1p-126f ? 0.0f : x;
}

float multiply_add(float a, float b, float c) {
  return flushed(std::fma(flushed(a), flushed(b), c));
}

// sum += one step's products: left[i] * right[i], of kMatrixDims elements at most.
float add_step(float sum, const std::vector<float>& left, const std::vector<float>& right,
               std::size_t begin) {
  float chains[2] = {0.0f, 0.0f};
  const std::size_t end = std::min(left.size(), begin + kMatrixDims);
  for (std::size_t i = begin; i < end; ++i) {
    chains[i % 2] = multiply_add(left[i], right[i], chains[i % 2]);
  }
  return flushed(sum + flushed(chains[0] + chains[1]));
}

// bf16 numbers of all sizes that matter; with `tiny`, around the least normal ones.
class Numbers {
 public:
  Numbers(std::uint64_t seed, bool tiny) : engine_(seed), tiny_(tiny) {}
  float next() {
    const int spread = std::uniform_int_distribution<int>(-6, 6)(engine_);
    const float x =
        std::ldexp(std::normal_distribution<float>()(engine_), spread - (tiny_ ? 64 : 0));
    return f32_from_bf16(bf16_from_f32(x));
  }

 private:
  std::mt19937_64 engine_;
  bool tiny_;
};

// Keys and values of one span, tokens [begin, end) of which may be read.
struct Span {
  std::int64_t dim;
  std::vector<std::vector<float>> rows;  // [token][dim]
  std::vector<std::uint16_t> keys;
  std::vector<std::uint16_t> values;
  SpanTiles tiles;

  Span(std::int64_t dims, TokenRange range, Numbers& numbers)
      : dim(dims),
        rows(kSpanTokens, std::vector<float>(static_cast<std::size_t>(dims))),
        keys(static_cast<std::size_t>(kSpanTokens * dims)),
        values(keys.size(), 0x7fc0) {  // NaN where nothing may be read
    tiles.begin = range.begin;
    tiles.end = range.end;
    tiles.first_tile = range.begin / kTileTokens;
    tiles.end_tile = (range.end + kTileTokens - 1) / kTileTokens;
    for (std::int64_t t = range.begin; t < range.end; ++t) put(t, numbers);
    for (std::int64_t tile = 0; tile < kSpanTiles; ++tile) {
      const auto at = static_cast<std::size_t>(tile);
      const std::int64_t first = tile * kTileTokens * dim;
      tiles.k[at] = {reinterpret_cast<const std::byte*>(keys.data() + first)};
      tiles.v[at] = {reinterpret_cast<const std::byte*>(values.data() + first)};
    }
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // All of its values, to be asked for.
  Ahead ahead() const {
    std::array<const std::byte*, kSpanTiles> from{};
    for (std::size_t tile = 0; tile < from.size(); ++tile) from[tile] = tiles.v[tile][0];
    return {from.data(), kSpanTiles, kTileTokens * dim * 2};
  }

 private:
  void put(std::int64_t token, Numbers& numbers) {
    const std::int64_t first = token / kTileTokens * kTileTokens * dim;
    for (std::int64_t d = 0; d < dim; ++d) {
      const float x = numbers.next();
      rows[static_cast<std::size_t>(token)][static_cast<std::size_t>(d)] = x;
      const std::int64_t unit = d / 2 * kTileTokens + token % kTileTokens;
      keys[static_cast<std::size_t>(first + 2 * unit + d % 2)] = bf16_from_f32(x);
      values[static_cast<std::size_t>(token * dim + d)] = bf16_from_f32(x);
    }
  }
};

bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a == 0.0f && b == 0.0f);  // fold() clears signs
}

struct Sizes {
  std::int64_t dim;
  std::int64_t queries;
  TokenRange range;
  bool tiny;
};

const std::vector<Sizes> kSizes = {
    {128, 16, {0, 128}, false}, {128, 5, {0, 128}, false}, {64, 16, {3, 125}, false},
    {80, 7, {17, 90}, false},   {96, 1, {0, 1}, false},    {8, 16, {127, 128}, false},
    {24, 3, {31, 33}, false},   {40, 16, {0, 65}, false},  {256, 12, {1, 128}, false},
    {128, 16, {0, 128}, true},  {72, 4, {5, 100}, true},   {512, 2, {64, 128}, false},
};

class Matrix : public ::testing::Test {
 protected:
  void SetUp() override {
    if (matrix_kernels() == nullptr) GTEST_SKIP() << "this processor has no matrix unit";
  }
};

void expect_scores(const Sizes& sizes, std::int64_t parts) {
  Numbers numbers(static_cast<std::uint64_t>(sizes.dim + parts), sizes.tiny);
  const Span span(sizes.dim, sizes.range, numbers);
  const std::int64_t width = matrix_padded(sizes.dim);
  const std::int64_t stride = sizes.queries * width;
  std::vector<std::uint16_t> queries(static_cast<std::size_t>(2 * stride), 0);
  std::vector<std::vector<float>> elements(static_cast<std::size_t>(sizes.queries * parts));
  const std::int64_t step = kFewVectors / parts;
  std::vector<float> few(
      static_cast<std::size_t>((sizes.queries + step - 1) / step * sizes.dim * kFewVectors), 0.0f);
  for (std::int64_t j = 0; j < sizes.queries; ++j) {
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t d = 0; d < sizes.dim; ++d) {
        const float q = numbers.next() * (part == 0 ? 1.0f : 0x1p-8f);
        elements[static_cast<std::size_t>(j * parts + part)].push_back(q);
        queries[static_cast<std::size_t>(part * stride + j * width + d)] = bf16_from_f32(q);
        few[static_cast<std::size_t>((j / step * sizes.dim + d) * kFewVectors + j % step * parts +
                                     part)] = q;
      }
    }
  }
  const MatrixKernels& kernels = *matrix_kernels();
  const auto room = static_cast<std::size_t>(sizes.queries * kSpanTokens);
  std::vector<float> by_unit(room, NAN);
  std::vector<float> by_few(room, NAN);
  const Ahead ahead = span.ahead();
  AskAhead ask = ahead.lines();
  kernels.score(span.tiles, sizes.dim, queries.data(), parts, stride, sizes.queries,
                {span.tiles.first_tile, span.tiles.end_tile}, ask, by_unit.data());
  ask = ahead.lines();
  {
    const internal::FlushDenormals flush;
    for (std::int64_t j = 0; j < sizes.queries; j += step) {
      kernels.score_few(span.tiles, sizes.dim, few.data() + j * sizes.dim / step * kFewVectors,
                        std::min(step, sizes.queries - j), parts, ask,
                        by_few.data() + j * kSpanTokens);
    }
  }
  for (std::int64_t j = 0; j < sizes.queries; ++j) {
    for (std::int64_t t = sizes.range.begin; t < sizes.range.end; ++t) {
      float want = 0.0f;
      for (std::int64_t d = 0; d < sizes.dim; d += kMatrixDims) {
        for (std::int64_t part = 0; part < parts; ++part) {
          want = add_step(want, elements[static_cast<std::size_t>(j * parts + part)],
                          span.rows[static_cast<std::size_t>(t)], static_cast<std::size_t>(d));
        }
      }
      const auto at = static_cast<std::size_t>(j * kSpanTokens + t);
      ASSERT_TRUE(same_bits(by_unit[at], want))
          << j << " " << t << " " << by_unit[at] << " " << want;
      ASSERT_TRUE(same_bits(by_few[at], want)) << j << " " << t << " " << by_few[at] << " " << want;
    }
  }
}

TEST_F(Matrix, ScoresAsWrittenOut) {
  for (const Sizes& sizes : kSizes) {
    for (const std::int64_t parts : {1, 2}) {
      SCOPED_TRACE(::testing::Message()
                   << "dim " << sizes.dim << ", " << sizes.queries << " queries, " << parts
                   << " parts, tokens " << sizes.range.begin << " to " << sizes.range.end);
      expect_scores(sizes, parts);
    }
  }
}

void expect_sums(const Sizes& sizes) {
  Numbers numbers(static_cast<std::uint64_t>(sizes.dim), sizes.tiny);
  const Span span(sizes.dim, sizes.range, numbers);
  const auto room = static_cast<std::size_t>(sizes.queries * kSpanTokens);
  std::vector<float> p(room, 0.0f);
  std::vector<std::uint16_t> packed(2 * room, 0);  // kSpanTokens of the room of as many floats
  for (std::int64_t j = 0; j < sizes.queries; ++j) {
    for (std::int64_t t = sizes.range.begin; t < sizes.range.end; ++t) {
      const float weight = std::fabs(numbers.next());
      p[static_cast<std::size_t>(j * kSpanTokens + t)] = weight;
      packed[static_cast<std::size_t>(2 * j * kSpanTokens + t)] = bf16_from_f32(weight);
    }
  }
  const MatrixKernels& kernels = *matrix_kernels();
  const std::int64_t stride = (sizes.dim + 15) / 16 * 16;
  const auto out_room = static_cast<std::size_t>(sizes.queries * stride);
  std::vector<float> by_unit(out_room, NAN);
  std::vector<float> by_span(out_room, NAN);
  std::vector<float> by_few(out_room, NAN);
  std::vector<std::uint16_t> pairs(static_cast<std::size_t>(kSpanTokens * matrix_padded(sizes.dim)),
                                   0x7fc0);
  const Ahead ahead = span.ahead();
  AskAhead ask = ahead.lines();
  kernels.pair_rows(span.tiles, sizes.dim, ask, pairs.data());
  kernels.add(pairs.data(), sizes.dim, sizes.range, reinterpret_cast<const float*>(packed.data()),
              sizes.queries, stride, by_unit.data());
  ask = ahead.lines();
  kernels.add_span(span.tiles, sizes.dim, ask, sizes.range,
                   reinterpret_cast<const float*>(packed.data()), sizes.queries, stride,
                   by_span.data());
  EXPECT_EQ(ask.left(), 0);
  ask = ahead.lines();
  {
    const internal::FlushDenormals flush;
    for (std::int64_t j = 0; j < sizes.queries; j += kFewQueries) {
      kernels.add_few(span.tiles, sizes.dim, ask, p.data() + j * kSpanTokens,
                      std::min(kFewQueries, sizes.queries - j), stride, by_few.data() + j * stride);
    }
  }
  for (std::int64_t j = 0; j < sizes.queries; ++j) {
    const std::vector<float> weights(p.begin() + j * kSpanTokens,
                                     p.begin() + (j + 1) * kSpanTokens);
    for (std::int64_t d = 0; d < sizes.dim; ++d) {
      std::vector<float> column;
      for (const auto& row : span.rows) column.push_back(row[static_cast<std::size_t>(d)]);
      float want = 0.0f;
      for (std::size_t t = 0; t < kSpanTokens; t += kMatrixDims)
        want = add_step(want, weights, column, t);
      const auto at = static_cast<std::size_t>(j * stride + d);
      ASSERT_TRUE(same_bits(by_unit[at], want))
          << j << " " << d << " " << by_unit[at] << " " << want;
      ASSERT_TRUE(same_bits(by_span[at], want))
          << j << " " << d << " " << by_span[at] << " " << want;
      ASSERT_TRUE(same_bits(by_few[at], want)) << j << " " << d << " " << by_few[at] << " " << want;
    }
  }
}

TEST_F(Matrix, WeighsValuesAsWrittenOut) {
  for (const Sizes& sizes : kSizes) {
    SCOPED_TRACE(::testing::Message()
                 << "dim " << sizes.dim << ", " << sizes.queries << " queries, tokens "
                 << sizes.range.begin << " to " << sizes.range.end);
    expect_sums(sizes);
  }
}

struct Bytes {
  std::vector<std::int8_t> left;    // [row][byte], a row's own bytes behind as many others
  std::vector<std::uint8_t> right;  // [vector][quad][16 lanes][4], the low part behind all
  std::int64_t row_bytes;
  std::int64_t bytes;  // of a row and of a vector's lane
  std::int64_t vectors;
  std::int64_t part_bytes() const { return vectors * bytes * kTileTokens; }

  std::int32_t left_byte(std::int64_t row, std::int64_t byte) const {
    return left[static_cast<std::size_t>(row * row_bytes + byte)];
  }
  std::int32_t right_byte(std::int64_t part, std::int64_t vector, std::int64_t lane,
                          std::int64_t byte) const {
    const std::int64_t quad = vector * bytes / 4 + byte / 4;
    return right[static_cast<std::size_t>(part * part_bytes() + (quad * kTileTokens + lane) * 4 +
                                          byte % 4)];
  }
};

// All bytes there are, the largest sums among them.
Bytes random_bytes(std::int64_t rows, std::int64_t bytes, std::int64_t vectors,
                   std::mt19937_64& engine) {
  Bytes made{{}, {}, bytes + 64, bytes, vectors};
  // Rows of the low part begin one row before.
  made.left.resize(static_cast<std::size_t>((rows + 1) * made.row_bytes));
  made.right.resize(static_cast<std::size_t>(2 * made.part_bytes()));
  for (auto& x : made.left) x = static_cast<std::int8_t>(engine());
  for (auto& x : made.right) x = static_cast<std::uint8_t>(engine());
  std::fill_n(made.left.begin(), made.row_bytes, std::int8_t{-128});
  std::fill_n(made.right.begin(), bytes * kTileTokens, std::uint8_t{255});
  return made;
}

void expect_products(const Bytes& made, std::int64_t rows, std::int64_t step, bool low) {
  const MatrixKernels& kernels = *matrix_kernels();
  std::vector<const std::uint8_t*> right;
  for (std::int64_t i = 0; i < made.vectors; ++i) {
    right.push_back(made.right.data() + i * made.bytes * kTileTokens);
  }
  std::vector<std::int32_t> totals(static_cast<std::size_t>(made.vectors * internal::kByteTotals));
  AskAhead nothing;
  {
    const internal::MatrixTiles configured(kernels, rows, step);
    kernels.multiply_bytes({.left = made.left.data() + made.row_bytes,
                            .row_bytes = made.row_bytes,
                            .right = right.data(),
                            .vectors = made.vectors,
                            .steps = made.bytes / step,
                            .step_bytes = step,
                            .low = low ? made.left.data() : nullptr,
                            .low_bytes = made.part_bytes()},
                           nothing, totals.data());
  }
  for (std::int64_t at = 0; at < made.vectors * rows * kTileTokens; ++at) {
    const std::int64_t vector = at / (rows * kTileTokens);
    const std::int64_t row = at / kTileTokens % rows;
    const std::int64_t lane = at % kTileTokens;
    std::int32_t want = 0;
    for (std::int64_t i = 0; i < made.bytes; ++i) {
      want += made.left_byte(row + 1, i) * made.right_byte(0, vector, lane, i);
      if (low) want += made.left_byte(row, i) * made.right_byte(1, vector, lane, i);
    }
    const std::int64_t in_totals = vector * internal::kByteTotals + row * kTileTokens + lane;
    ASSERT_EQ(totals[static_cast<std::size_t>(in_totals)], want)
        << rows << " rows of " << made.bytes << " bytes, vector " << vector;
  }
}

TEST_F(Matrix, MultipliesBytesAsWrittenOut) {
  std::mt19937_64 engine(7);
  for (const std::int64_t bytes : {16, 32, 64, 128, 256}) {
    for (const std::int64_t rows : {2, 8, 16}) {
      for (std::int64_t vectors = 1; vectors <= 9; ++vectors) {
        const Bytes made = random_bytes(rows, bytes, vectors, engine);
        const std::int64_t step = std::min<std::int64_t>(bytes, 64);
        expect_products(made, rows, step, false);
        expect_products(made, rows, step, true);
      }
    }
  }
}

TEST_F(Matrix, FlushesOnlyWhileAsked) {
  volatile float tiny = 0x1p-126f;
  {
    const internal::FlushDenormals flush;
    EXPECT_EQ(tiny * 0.5f, 0.0f);
  }
  EXPECT_NE(tiny * 0.5f, 0.0f);
}

}  // namespace
}  // namespace pagekv::testing
