// Rule 6 through a store, in every kind of format: what cannot be stored fails its own sequence,
// what is finite is stored and read as something finite.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "codec/limits.h"
#include "support/codecs.h"
#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

// Dims of both sides in all that follows: every group is legal.
constexpr int kDim = 128;

const char* const kFormats[] = {"f32",
                                "f16",
                                "bf16",
                                "kv2",
                                "kv8",
                                "k8v3",
                                "k3v1",
                                "affine:4:64:f16",
                                "affine:5:32:f32:rot",
                                "codebook:4:head:f16",
                                "codebook:8:64:f32:rms:rot",
                                "codebook:2:norm",
                                "k=f16:rot,v=bf16:rot"};

// Two KV heads in each of two layers.
LayoutSpec layout(const Format& format) {
  LayoutSpec spec = small_layout({0, 0}, format);
  for (LayerSpec& layer : spec.layers) layer.key_dim = layer.value_dim = kDim;
  return spec;
}

class QuantizedStep : public ::testing::TestWithParam<const char*> {
 protected:
  QuantizedStep()
      : format_(*Format::parse(GetParam())),
        tokens_(test_.device, layout(format_), {.cap_bytes = 8 << 20}) {}

  // Writes one layer of a step of `rows` rows: ones, but for the value of `bad` at one place.
  static void write_with(Step& step, int layer, bool keys, std::int64_t row, float bad) {
    std::vector<float> ones(static_cast<std::size_t>(step.rows() * 2 * kDim), 1.0f);
    std::vector<float> ill = ones;
    ill[static_cast<std::size_t>((row * 2 + 1) * kDim + 77)] = bad;
    const auto rows = [](const std::vector<float>& from) {
      return Rows::packed(from.data(), DType::f32, 2, kDim);
    };
    ASSERT_TRUE(step.write(layer, rows(keys ? ill : ones), rows(keys ? ones : ill)));
  }

  Format format_;
  TestDevice test_;
  TokenCache tokens_;
};

TEST_P(QuantizedStep, AValueThatCannotBeStoredFailsItsSequenceAlone) {
  for (const bool keys : {true, false}) {
    const float limit = internal::overflow_limit((keys ? format_.k : format_.v).dtype());
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity(), limit, -limit}) {
      SCOPED_TRACE(::testing::Message() << (keys ? "key " : "value ") << bad);
      auto good = *tokens_.store().create_sequence();
      auto ill = *tokens_.store().create_sequence();
      ASSERT_TRUE(tokens_.append(good, count_up(0, 5)));
      ASSERT_TRUE(tokens_.append(ill, count_up(10, 5)));
      const std::vector<Append> appends = {{&good, 2}, {&ill, 3}};
      Step step = *tokens_.store().reserve(appends);
      tokens_.write(step, count_up(50, 5));
      write_with(step, 1, keys, 2 + 1, bad);  // second token of the second sequence
      EXPECT_EQ(step.failure(0), nullptr);
      ASSERT_NE(step.failure(1), nullptr);
      EXPECT_EQ(step.failure(1)->code(), ErrorCode::not_finite);
      EXPECT_EQ(step.failure(1)->message(),
                "layer 1, sequence 1, token 1: a key or value is not finite in the page's format");
      for (const int number : {0, 1, 2}) EXPECT_EQ(step.failure(1)->number(number), 1);
      const CommitResult result = *step.commit();
      EXPECT_EQ(result.committed, 1);
      EXPECT_EQ(result.failed, 1);
      EXPECT_EQ(good.length(), 7);
      EXPECT_TRUE(tokens_.holds(ill, count_up(10, 5)));
      ASSERT_TRUE(tokens_.append(ill, {15})) << "it goes on from where it was";
      EXPECT_TRUE(tokens_.holds(ill, count_up(10, 6)));
      EXPECT_TRUE(tokens_.store().check());
    }
  }
}

TEST_P(QuantizedStep, TheLargestValueThatFitsIsStored) {
  for (const bool keys : {true, false}) {
    const float limit = internal::overflow_limit((keys ? format_.k : format_.v).dtype());
    auto sequence = *tokens_.store().create_sequence();
    const Append append{&sequence, 4};
    Step step = *tokens_.store().reserve({&append, 1});
    for (const int layer : {0, 1}) {
      write_with(step, layer, keys, 3, std::nextafter(limit, 0.0f));
    }
    EXPECT_EQ(step.failure(0), nullptr);
    EXPECT_EQ((*step.commit()).committed, 1);
  }
}

// One token for each vector at the edge of f32 that the format can store.
TEST_P(QuantizedStep, EdgeVectorsAreReadAsFiniteValues) {
  std::vector<float> rows;
  std::int64_t count = 0;
  for (const DType type : kAllDTypes) {
    for (const NamedVector& vector : edge_vectors(type, kDim)) {
      if (!encode_alone(*format_.k.resolve(kDim), vector.elements)) continue;
      if (!encode_alone(*format_.v.resolve(kDim), vector.elements)) continue;
      for (int head = 0; head < 2; ++head) {
        rows.insert(rows.end(), vector.elements.begin(), vector.elements.end());
      }
      ++count;
    }
  }
  auto sequence = *tokens_.store().create_sequence();
  const Append append{&sequence, count};
  Step step = *tokens_.store().reserve({&append, 1});
  for (const int layer : {0, 1}) {
    const Rows both = Rows::packed(rows.data(), DType::f32, 2, kDim);
    ASSERT_TRUE(step.write(layer, both, both));
  }
  ASSERT_EQ(step.failure(0), nullptr) << step.failure(0)->message();
  ASSERT_EQ((*step.commit()).committed, 1);
  std::vector<float> k(rows.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> v(k);
  ASSERT_TRUE(tokens_.store().gather(sequence.ref(), 1,
                                     MutableRows::packed(k.data(), DType::f32, 2, kDim),
                                     MutableRows::packed(v.data(), DType::f32, 2, kDim)));
  for (std::size_t at = 0; at < k.size(); ++at) {
    ASSERT_TRUE(std::isfinite(k[at]) && std::isfinite(v[at])) << at;
  }
  EXPECT_GE(count, 50);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedStep, ::testing::ValuesIn(kFormats),
                         [](const auto& format) {
                           return "format" + std::to_string(format.index);
                         });

}  // namespace
}  // namespace pagekv::testing
