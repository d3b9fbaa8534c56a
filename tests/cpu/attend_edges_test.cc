// Attention over vectors at the edges of their type: what is finite in the page stays finite in
// the result, beside any other token and in both loop nests.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/paged_cache.h"
#include "support/codecs.h"

namespace pagekv::testing {
namespace {

constexpr std::uint64_t kSeed = 61;
constexpr std::int64_t kTokens = 20;
constexpr std::int64_t kEdgeToken = 7;
constexpr int kQueryHeads = 4;

const char* const kFormats[] = {"bf16",
                                "kv8",
                                "kv4",
                                "kv2",
                                "k8v4",
                                "k4v3",
                                "affine:8:f32",
                                "codebook:4:f32",
                                "kv4:rot",
                                "kv8:rot",
                                "codebook:4:rot",
                                "codebook:2:head:f32:rot",
                                "f32:rot"};

struct Edges {
  CacheShape shape;
  Tensor k;
  Tensor v;
  Tensor q;  // a row for each token
  Arithmetic arithmetic = Arithmetic::exact;

  explicit Edges(const char* format)
      : shape{.format = format_of(format)},
        k(DType::f32, kTokens, 1, shape.key_dim),
        v(DType::f32, kTokens, 1, shape.value_dim),
        q(DType::f32, kTokens, kQueryHeads, shape.key_dim) {
    Random random(kSeed);
    k.fill_normal(random);
    v.fill_normal(random);
    q.fill_normal(random);
  }

  AttendResult attend_rows(const PagedCache& cache, std::int64_t first, std::int64_t rows) const {
    AttendSpec spec;
    spec.query_heads = kQueryHeads;
    spec.arithmetic = arithmetic;
    return attend(cache, {.queries = {{.sequence = 0, .length = first + rows, .rows = rows}},
                          .spec = spec,
                          .q = &q,
                          .first_row = first});
  }
};

void set_row(Tensor& tensor, std::int64_t row, const NamedVector& vector) {
  for (std::int64_t dim = 0; dim < tensor.dim(); ++dim) {
    tensor.set(row, 0, dim, vector.elements[static_cast<std::size_t>(dim)]);
  }
}

// All rows at once, and each alone: the same bits. Returns the rows at once.
AttendResult expect_same_alone(const Edges& edges, const PagedCache& cache) {
  const AttendResult all = edges.attend_rows(cache, 0, kTokens);
  const std::size_t width = all.out.size() / kTokens;
  for (std::int64_t row = 0; row < kTokens; ++row) {
    const AttendResult alone = edges.attend_rows(cache, row, 1);
    EXPECT_EQ(std::memcmp(alone.out.data(), all.out.data() + static_cast<std::size_t>(row) * width,
                          width * sizeof(float)),
              0)
        << "row " << row;
  }
  return all;
}

// `exact`: the same bits. `fast`: every row within its bound, relative L2.
void expect_close(const AttendResult& got, const AttendResult& want, Arithmetic arithmetic) {
  if (arithmetic == Arithmetic::exact) {
    EXPECT_TRUE(got == want);
    return;
  }
  const std::size_t width = want.out.size() / kTokens;
  for (std::size_t row = 0; row < kTokens; ++row) {
    double error = 0;
    double norm = 0;
    for (std::size_t i = row * width; i < (row + 1) * width; ++i) {
      error += std::pow(static_cast<double>(got.out[i]) - want.out[i], 2);
      norm += std::pow(static_cast<double>(want.out[i]), 2);
    }
    EXPECT_LE(std::sqrt(error), 3e-3 * std::sqrt(norm)) << "row " << row;
  }
}

constexpr Arithmetic kArithmetics[] = {Arithmetic::exact, Arithmetic::fast};

class OnTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(OnTarget, ValuesAtTheEdgesStayFinite) {
  for (const char* format : kFormats) {
    Edges edges(format);
    for (const NamedVector& edge : edge_vectors(DType::bf16, edges.shape.value_dim)) {
      SCOPED_TRACE(::testing::Message() << format << ' ' << edge.name);
      set_row(edges.v, kEdgeToken, edge);
      PagedCache cache(make_device(GetParam()), edges.shape, {kTokens}, kSeed);
      ASSERT_EQ(cache.write(0, 0, edges.k, edges.v), -1);
      for (const Arithmetic arithmetic : kArithmetics) {
        edges.arithmetic = arithmetic;
        const AttendResult got = expect_same_alone(edges, cache);
        EXPECT_TRUE(std::ranges::all_of(got.out, [](float x) { return std::isfinite(x); }));
        EXPECT_TRUE(std::ranges::all_of(got.lse, [](float x) { return std::isfinite(x); }));
        if (edges.shape.format.v.is_rotated() || edges.shape.format.k.is_rotated()) continue;
        Edges dense("f32");
        cache.gather(0, 0, kTokens, dense.k, dense.v);
        PagedCache elements(make_device(GetParam()), dense.shape, {kTokens}, kSeed);
        ASSERT_EQ(elements.write(0, 0, dense.k, dense.v), -1);
        expect_close(got, dense.attend_rows(elements, 0, kTokens), arithmetic);
      }
    }
  }
}

// With queries so small that logits are finite, no token may be lost.
TEST_P(OnTarget, KeysAtTheEdgesAreScored) {
  for (const char* format : {"kv8", "kv4", "kv2", "affine:8:f32", "codebook:4:f32"}) {
    Edges edges(format);
    for (std::int64_t row = 0; row < kTokens; ++row) {
      for (std::int64_t head = 0; head < kQueryHeads; ++head) {
        for (std::int64_t dim = 0; dim < edges.shape.key_dim; ++dim) {
          edges.q.set(row, head, dim, 1e-39f * static_cast<float>(1 + (dim + head) % 3));
        }
      }
    }
    for (const NamedVector& edge : edge_vectors(DType::bf16, edges.shape.key_dim)) {
      SCOPED_TRACE(::testing::Message() << format << ' ' << edge.name);
      set_row(edges.k, kEdgeToken, edge);
      PagedCache cache(make_device(GetParam()), edges.shape, {kTokens}, kSeed);
      ASSERT_EQ(cache.write(0, 0, edges.k, edges.v), -1);
      for (const Arithmetic arithmetic : kArithmetics) {
        edges.arithmetic = arithmetic;
        const AttendResult got = expect_same_alone(edges, cache);
        Edges dense("f32");
        dense.q = edges.q;
        cache.gather(0, 0, kTokens, dense.k, dense.v);
        PagedCache elements(make_device(GetParam()), dense.shape, {kTokens}, kSeed);
        ASSERT_EQ(elements.write(0, 0, dense.k, dense.v), -1);
        expect_close(got, dense.attend_rows(elements, 0, kTokens), arithmetic);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, OnTarget, ::testing::ValuesIn(cpu_targets()));

}  // namespace
}  // namespace pagekv::testing
