// Perplexity of a text with several caches: the protocol, and what its numbers do not depend on.
#include "engine/perplexity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>

#include "engine/random_model.h"
#include "tests/engine/forward.h"

namespace pagekv::testing {
namespace {

using engine::NamedStore;
using engine::PerplexityOptions;
using engine::PerplexityScores;
using engine::score_text;
using engine::TokenScore;

constexpr std::uint64_t kSeed = 23;
constexpr std::int64_t kContext = 40;

std::unique_ptr<engine::Model> small_model() {
  auto model = engine::make_random_model({.layers = 4,
                                          .query_heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 8,
                                          .hidden = 48,
                                          .vocabulary = 67,
                                          .context_tokens = 128,
                                          .window_tokens = 12});
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

NamedStore named_store(const engine::Model& model, const char* format, ForwardSetup setup = {}) {
  const auto device = make_cpu_device({.executor = nullptr, .threads = setup.threads});
  EXPECT_TRUE(device);
  auto store = engine::make_model_store(
      model, *device, {.format = *Format::parse(format), .page_tokens = setup.page_tokens});
  EXPECT_TRUE(store) << store.error().message();
  return {.name = format, .store = std::move(*store)};
}

std::vector<NamedStore> named_stores(const engine::Model& model,
                                     const std::vector<const char*>& formats,
                                     ForwardSetup setup = {}) {
  std::vector<NamedStore> stores;
  for (const char* format : formats) stores.push_back(named_store(model, format, setup));
  return stores;
}

PerplexityScores scores_of(const engine::Model& model, const std::vector<NamedStore>& stores,
                           const Tokens& tokens, const PerplexityOptions& options) {
  auto scores = score_text(model, stores, tokens, options);
  EXPECT_TRUE(scores) << scores.error().message();
  return scores ? std::move(*scores) : PerplexityScores();
}

void expect_equal(const std::vector<TokenScore>& a, const std::vector<TokenScore>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].nll, b[i].nll) << i;
    ASSERT_EQ(a[i].kl, b[i].kl) << i;
    ASSERT_EQ(a[i].dp, b[i].dp) << i;
    ASSERT_EQ(a[i].same_top, b[i].same_top) << i;
  }
}

class Perplexity : public ::testing::Test {
 protected:
  void SetUp() override {
    std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
    std::mt19937_64 random(kSeed);
    model_ = small_model();
    // Three chunks, and some tokens that are left over.
    tokens_ = random_tokens(random, 3 * kContext + 17, model_->info().vocabulary);
  }

  std::unique_ptr<engine::Model> model_;
  Tokens tokens_;
};

TEST_F(Perplexity, ScoresTheSecondHalfOfEveryChunk) {
  const std::vector<NamedStore> stores = named_stores(*model_, {"f32"});
  const PerplexityScores out =
      scores_of(*model_, stores, tokens_, {.context_tokens = kContext, .rows_per_pass = 16});
  EXPECT_EQ(out.rows, 3 * kContext);
  const std::size_t scored = kContext - 1 - kContext / 2;
  ASSERT_EQ(out.scores.at(0).size(), 3 * scored);
  // The same by hand: a sequence for each chunk, its logits normalised here.
  Forward forward(*model_, {.format = "f32"});
  const auto vocabulary = static_cast<std::size_t>(model_->info().vocabulary);
  for (std::size_t chunk = 0; chunk < 3; ++chunk) {
    const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(chunk) * kContext;
    Sequence sequence = forward.create();
    const std::vector<float> logits =
        forward.pass({{&sequence, Tokens(begin, begin + kContext)}}, kContext / 2);
    for (std::size_t i = 0; i < scored; ++i) {
      const float* row = logits.data() + i * vocabulary;
      double sum = 0;
      for (std::size_t token = 0; token < vocabulary; ++token) sum += std::exp(double{row[token]});
      const Token next = begin[kContext / 2 + static_cast<std::ptrdiff_t>(i) + 1];
      const double expected = std::log(sum) - double{row[next]};
      EXPECT_NEAR(out.scores[0][chunk * scored + i].nll, expected, 1e-12);
      EXPECT_EQ(out.scores[0][chunk * scored + i].kl, 0.0);
    }
  }
  EXPECT_TRUE(stores[0].store.check());
}

TEST_F(Perplexity, AnotherFirstPositionScoresMoreOrLess) {
  const std::vector<NamedStore> stores = named_stores(*model_, {"f32", "bf16"});
  const PerplexityScores half = scores_of(*model_, stores, tokens_, {.context_tokens = kContext});
  constexpr std::size_t kHalf = kContext - 1 - kContext / 2;
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{7}, kContext - 2}) {
    const PerplexityScores out =
        scores_of(*model_, stores, tokens_, {.context_tokens = kContext, .first_scored = first});
    const auto scored = static_cast<std::size_t>(kContext - 1 - first);
    ASSERT_EQ(out.scores[1].size(), 3 * scored);
    for (std::size_t chunk = 0; chunk < 3; ++chunk) {  // from the end of each chunk they agree
      for (std::size_t back = 1; back <= std::min(scored, kHalf); ++back) {
        EXPECT_EQ(out.scores[1][(chunk + 1) * scored - back].kl,
                  half.scores[1][(chunk + 1) * kHalf - back].kl);
      }
    }
  }
}

TEST_F(Perplexity, ScoresFromAnyPositionOn) {
  const std::vector<NamedStore> stores = named_stores(*model_, {"f32"});
  const auto scores = [&](std::int64_t first) {
    return scores_of(*model_, stores, tokens_,
                     {.context_tokens = kContext, .first_scored = first, .rows_per_pass = 16})
        .scores.at(0);
  };
  const std::vector<TokenScore> all = scores(0);
  ASSERT_EQ(all.size(), 3u * (kContext - 1));
  for (const std::int64_t first : {1, 16, 20, 38}) {
    std::vector<TokenScore> expected;
    for (std::int64_t at = 0; at < 3 * (kContext - 1); ++at) {
      if (at % (kContext - 1) >= first) expected.push_back(all[static_cast<std::size_t>(at)]);
    }
    expect_equal(scores(first), expected);
  }
}

TEST_F(Perplexity, TheReferenceBesideItselfIsExactlyNothing) {
  const PerplexityScores out = scores_of(*model_, named_stores(*model_, {"f32", "f32", "bf16"}),
                                         tokens_, {.context_tokens = kContext});
  double bf16_kl = 0;
  for (std::size_t i = 0; i < out.scores[1].size(); ++i) {
    EXPECT_EQ(out.scores[1][i].kl, 0.0);
    EXPECT_EQ(out.scores[1][i].dp, 0.0);
    EXPECT_TRUE(out.scores[1][i].same_top);
    bf16_kl += out.scores[2][i].kl;
  }
  EXPECT_GT(bf16_kl, 0.0);
  EXPECT_LT(bf16_kl / static_cast<double>(out.scores[2].size()), 1e-2);
}

TEST_F(Perplexity, NumbersDoNotDependOnPassesThreadsPagesOrCompany) {
  const std::vector<const char*> formats = {"f32", "bf16", "f16"};
  const PerplexityScores expected =
      scores_of(*model_, named_stores(*model_, formats), tokens_, {.context_tokens = kContext});
  for (const int threads : {1, 3}) {
    for (const std::int64_t rows : {1, 7, 512}) {
      const ForwardSetup setup = {.threads = threads, .page_tokens = 16};
      const PerplexityScores out =
          scores_of(*model_, named_stores(*model_, formats, setup), tokens_,
                    {.context_tokens = kContext, .rows_per_pass = rows});
      for (std::size_t i = 0; i < formats.size(); ++i) {
        expect_equal(out.scores[i], expected.scores[i]);
      }
    }
  }
  const PerplexityScores alone = scores_of(*model_, named_stores(*model_, {"f32", "f16"}), tokens_,
                                           {.context_tokens = kContext, .chunks = 2});
  ASSERT_EQ(alone.scores[1].size() * 3, expected.scores[2].size() * 2);
  expect_equal(alone.scores[1],
               {expected.scores[2].begin(),
                expected.scores[2].begin() + static_cast<std::ptrdiff_t>(alone.scores[1].size())});
}

TEST_F(Perplexity, TheBeginningTokenTakesTheFirstPlaceOfEveryChunk) {
  const std::vector<NamedStore> stores = named_stores(*model_, {"f32"});
  Tokens other = tokens_;
  for (std::size_t i = 0; i < 3; ++i) other[i * kContext] = (other[i * kContext] + 1) % 67;
  PerplexityOptions options = {.context_tokens = kContext, .bos = 5};
  const PerplexityScores a = scores_of(*model_, stores, tokens_, options);
  expect_equal(a.scores[0], scores_of(*model_, stores, other, options).scores[0]);
  options.bos = engine::kNoToken;
  const PerplexityScores without = scores_of(*model_, stores, tokens_, options);
  EXPECT_NE(without.scores[0][0].nll, scores_of(*model_, stores, other, options).scores[0][0].nll);
  EXPECT_NE(without.scores[0][0].nll, a.scores[0][0].nll);
}

TEST_F(Perplexity, ReportsProgressUpToTheEnd) {
  std::vector<std::int64_t> seen;
  scores_of(*model_, named_stores(*model_, {"f32", "bf16"}), tokens_,
            {.context_tokens = kContext,
             .rows_per_pass = 32,
             .progress = [&](std::int64_t done, std::int64_t total) {
               EXPECT_EQ(total, 2 * 3 * kContext);
               seen.push_back(done);
             }});
  ASSERT_EQ(seen.size(), 2u * 3 * 2);
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.back(), 2 * 3 * kContext);
}

TEST_F(Perplexity, RefusesWhatCannotBeScored) {
  const std::vector<NamedStore> stores = named_stores(*model_, {"f32", "bf16"});
  const auto message = [&](const Tokens& tokens, const PerplexityOptions& options) {
    const auto scores = score_text(*model_, stores, tokens, options);
    EXPECT_FALSE(scores);
    return scores ? std::string() : scores.error().message();
  };
  const Tokens few(tokens_.begin(), tokens_.begin() + kContext - 1);
  EXPECT_EQ(message(few, {.context_tokens = kContext}),
            "the text has 39 tokens, fewer than one context of 40");
  EXPECT_EQ(message(tokens_, {.context_tokens = kContext, .chunks = 4}),
            "4 chunks of 40 tokens; the text has 137 tokens, enough for 3");
  EXPECT_NE(message(tokens_, {.context_tokens = 2}).find("context of 2"), std::string::npos);
  EXPECT_NE(message(tokens_, {.context_tokens = kContext, .rows_per_pass = 0}).find("0 rows"),
            std::string::npos);
  EXPECT_EQ(message(tokens_, {.context_tokens = kContext, .first_scored = 39}),
            "the first scored position is 39; legal in a context of 40 tokens are 0 to 38");
  EXPECT_TRUE(message(tokens_, {.context_tokens = 137}).starts_with("f32: "));  // model: 128
  for (const std::int64_t first : {std::int64_t{-1}, kContext - 1}) {
    EXPECT_NE(message(tokens_, {.context_tokens = kContext, .first_scored = first})
                  .find("legal in a context of 40 tokens are 0 to 38"),
              std::string::npos);
  }
  Tokens unknown = tokens_;
  unknown[1] = 67;
  EXPECT_NE(message(unknown, {.context_tokens = kContext}).find("token 67"), std::string::npos);
}

// Values past the largest f16: the other stores are fine, and the error names the one that is not.
TEST_F(Perplexity, NamesTheStoreThatCannotHoldAValue) {
  const engine::LlamaConfig config = engine::random_model_config({.layers = 2,
                                                                  .query_heads = 2,
                                                                  .kv_heads = 2,
                                                                  .head_dim = 8,
                                                                  .hidden = 16,
                                                                  .vocabulary = 67,
                                                                  .context_tokens = 128,
                                                                  .window_tokens = 0,
                                                                  .donors = false});
  const engine::TensorLookup tensors = engine::random_tensors(config, 5);
  std::vector<float> large;
  const engine::TensorLookup lookup = [&](std::string_view name) {
    Result<engine::TensorView> tensor = tensors(name);
    if (name != "blk.1.attn_v.weight" || !tensor) return tensor;
    large.resize(tensor->data.size() / sizeof(float));
    std::memcpy(large.data(), tensor->data.data(), tensor->data.size());
    for (float& value : large) value *= 1e6f;
    tensor->data = std::as_bytes(std::span(large));
    return tensor;
  };
  const auto model = engine::make_llama(config, lookup, {});
  ASSERT_TRUE(model) << model.error().message();
  const auto scores = score_text(**model, named_stores(**model, {"f32", "bf16", "f16"}), tokens_,
                                 {.context_tokens = kContext});
  ASSERT_FALSE(scores);
  EXPECT_EQ(scores.error().code(), ErrorCode::not_finite);
  EXPECT_TRUE(scores.error().message().starts_with("f16: ")) << scores.error().message();
}

TEST(BitsPerElement, CountsWhatIsStored) {
  const auto model = small_model();
  for (const auto& [format, bits] : {std::pair{"f32", 32.0}, {"f16", 16.0}, {"bf16", 16.0}}) {
    EXPECT_EQ(engine::bits_per_element(named_store(*model, format).store.layout()), bits);
  }
  const std::vector<LayerSpec> layers = {
      {.kv_heads = 2, .key_dim = 8, .value_dim = 24, .format = *Format::parse("f32")},
      {.kv_heads = 1, .key_dim = 16, .value_dim = 16, .format = *Format::parse("f16")},
      {.kv_heads = 1, .key_dim = 16, .value_dim = 16, .format = *Format::parse("f16"), .donor = 1}};
  const auto layout = CacheLayout::make({.layers = layers});
  ASSERT_TRUE(layout) << layout.error().message();
  EXPECT_DOUBLE_EQ(engine::bits_per_element(*layout), (64 * 32 + 32 * 16) / 96.0);
}

}  // namespace
}  // namespace pagekv::testing
