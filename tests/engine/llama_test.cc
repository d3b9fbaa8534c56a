// The llama forward pass against the same network written plainly in float64: windows, donors,
// shared heads, both kinds of rotary pairs.
#include "engine/llama.h"

#include <cmath>
#include <cstdio>
#include <string>

#include "engine/random_model.h"
#include "tests/engine/forward.h"

namespace pagekv::testing {
namespace {

using engine::LlamaConfig;
using engine::TensorLookup;
using Vector = std::vector<double>;

// y[row] = sum of w[row][k] * x[k].
Vector multiply(const TensorLookup& lookup, const std::string& name, const Vector& x) {
  const auto tensor = lookup(name);
  EXPECT_TRUE(tensor);
  std::vector<float> w(static_cast<std::size_t>(tensor->rows() * tensor->columns()));
  EXPECT_TRUE(widen(*tensor, 0, tensor->rows(), w));
  Vector y(static_cast<std::size_t>(tensor->rows()));
  for (std::size_t row = 0; row < y.size(); ++row) {
    for (std::size_t k = 0; k < x.size(); ++k) y[row] += double{w[row * x.size() + k]} * x[k];
  }
  return y;
}

Vector normalise(const LlamaConfig& config, const TensorLookup& lookup, const std::string& name,
                 const Vector& x) {
  const auto tensor = lookup(name);
  EXPECT_TRUE(tensor);
  std::vector<float> weight(x.size());
  EXPECT_TRUE(widen(*tensor, 0, 1, weight));
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale =
      1 / std::sqrt(squares / static_cast<double>(x.size()) + double{config.norm_epsilon});
  Vector y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * double{weight[i]};
  return y;
}

void rotate(const LlamaConfig& config, Vector& heads, std::size_t position) {
  const auto dim = static_cast<std::size_t>(config.head_dim);
  const auto half = static_cast<std::size_t>(config.rope_dim / 2);
  const bool adjacent = config.rope_pairs == engine::RopePairs::adjacent;
  for (std::size_t head = 0; head < heads.size(); head += dim) {
    for (std::size_t pair = 0; pair < half; ++pair) {
      const double angle = static_cast<double>(position) *
                           std::pow(config.rope_base, -2.0 * static_cast<double>(pair) /
                                                          static_cast<double>(config.rope_dim));
      double& first = heads[head + (adjacent ? 2 * pair : pair)];
      double& second = heads[head + (adjacent ? 2 * pair + 1 : pair + half)];
      const double a = first, b = second;
      first = a * std::cos(angle) - b * std::sin(angle);
      second = a * std::sin(angle) + b * std::cos(angle);
    }
  }
}

// One row's attention over keys and values [token][kv_head * head_dim], tokens [begin, position].
Vector attend(const LlamaConfig& config, const Vector& q, const std::vector<Vector>& keys,
              const std::vector<Vector>& values, std::size_t begin, std::size_t position) {
  const auto dim = static_cast<std::size_t>(config.head_dim);
  const auto ratio = static_cast<std::size_t>(config.query_heads / config.kv_heads);
  Vector out(q.size());
  for (std::size_t head = 0; head < static_cast<std::size_t>(config.query_heads); ++head) {
    const std::size_t kv = head / ratio * dim;
    double sum = 0;
    for (std::size_t token = begin; token <= position; ++token) {
      double logit = 0;
      for (std::size_t i = 0; i < dim; ++i) logit += q[head * dim + i] * keys[token][kv + i];
      const double weight = std::exp(logit / std::sqrt(static_cast<double>(dim)));
      sum += weight;
      for (std::size_t i = 0; i < dim; ++i) out[head * dim + i] += weight * values[token][kv + i];
    }
    for (std::size_t i = 0; i < dim; ++i) out[head * dim + i] /= sum;
  }
  return out;
}

void add(Vector& y, const Vector& x) {
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
}

Vector feed_forward(const TensorLookup& lookup, const std::string& prefix, const Vector& x) {
  Vector gate = multiply(lookup, prefix + "ffn_gate.weight", x);
  const Vector up = multiply(lookup, prefix + "ffn_up.weight", x);
  for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
  return multiply(lookup, prefix + "ffn_down.weight", gate);
}

// Logits of every position.
std::vector<Vector> reference_logits(const LlamaConfig& config, const TensorLookup& lookup,
                                     const Tokens& tokens) {
  std::vector<Vector> hidden;
  const auto embedding = lookup("token_embd.weight");
  for (const Token token : tokens) {
    std::vector<float> row(static_cast<std::size_t>(config.dim));
    EXPECT_TRUE(widen(*embedding, token, 1, row));
    hidden.emplace_back(row.begin(), row.end());
  }
  std::vector<std::vector<Vector>> keys(config.layers.size()), values(config.layers.size());
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const int donor = config.layers[layer].donor;
    const auto window = static_cast<std::size_t>(config.layers[layer].window_tokens);
    std::vector<Vector> queries;
    for (std::size_t position = 0; position < hidden.size(); ++position) {
      const Vector x = normalise(config, lookup, prefix + "attn_norm.weight", hidden[position]);
      queries.push_back(multiply(lookup, prefix + "attn_q.weight", x));
      rotate(config, queries.back(), position);
      if (donor >= 0) continue;
      keys[layer].push_back(multiply(lookup, prefix + "attn_k.weight", x));
      rotate(config, keys[layer].back(), position);
      values[layer].push_back(multiply(lookup, prefix + "attn_v.weight", x));
    }
    if (donor >= 0) {
      keys[layer] = keys[static_cast<std::size_t>(donor)];
      values[layer] = values[static_cast<std::size_t>(donor)];
    }
    for (std::size_t position = 0; position < hidden.size(); ++position) {
      const std::size_t begin = window > 0 && position + 1 > window ? position + 1 - window : 0;
      const Vector attended =
          attend(config, queries[position], keys[layer], values[layer], begin, position);
      add(hidden[position], multiply(lookup, prefix + "attn_output.weight", attended));
      const Vector x = normalise(config, lookup, prefix + "ffn_norm.weight", hidden[position]);
      add(hidden[position], feed_forward(lookup, prefix, x));
    }
  }
  std::vector<Vector> logits;
  for (const Vector& row : hidden) {
    logits.push_back(multiply(lookup, config.tied_output ? "token_embd.weight" : "output.weight",
                              normalise(config, lookup, "output_norm.weight", row)));
  }
  return logits;
}

struct Variant {
  const char* name;
  engine::RandomModelOptions options;
  engine::RopePairs pairs = engine::RopePairs::adjacent;
  bool tied = true;
};

class LlamaVariants : public ::testing::TestWithParam<Variant> {};

TEST_P(LlamaVariants, LogitsAreThoseOfFloat64) {
  LlamaConfig config = random_model_config(GetParam().options);
  config.rope_pairs = GetParam().pairs;
  config.tied_output = GetParam().tied;
  const TensorLookup lookup = random_tensors(config, GetParam().options.seed);
  const auto model = make_llama(config, lookup, {});
  ASSERT_TRUE(model) << model.error().message();
  std::mt19937_64 random(7);
  std::printf("seed 7\n");
  const Tokens tokens = random_tokens(random, 70, config.vocabulary);
  Forward forward(**model, {.threads = 2, .page_tokens = 16, .format = "f32"});
  Sequence sequence = forward.create();
  const std::vector<float> logits = forward.chunks(sequence, tokens, 9);
  const std::vector<Vector> expected = reference_logits(config, lookup, tokens);
  for (std::size_t row = 0; row < expected.size(); ++row) {
    double difference = 0, magnitude = 0;
    for (std::size_t i = 0; i < expected[row].size(); ++i) {
      const double error = logits[row * expected[row].size() + i] - expected[row][i];
      difference += error * error;
      magnitude += expected[row][i] * expected[row][i];
    }
    EXPECT_LE(std::sqrt(difference / magnitude), 1e-5) << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LlamaVariants,
    ::testing::Values(
        Variant{.name = "windows_and_donors", .options = {.window_tokens = 24}},
        Variant{.name = "windows_alone", .options = {.window_tokens = 16, .donors = false}},
        Variant{.name = "donors_alone", .options = {.window_tokens = 0}},
        Variant{.name = "plain",
                .options = {.layers = 3, .window_tokens = 0, .donors = false},
                .tied = false},
        Variant{
            .name = "halves", .options = {.window_tokens = 24}, .pairs = engine::RopePairs::halves},
        Variant{
            .name = "small_heads",
            .options =
                {.query_heads = 8, .kv_heads = 8, .head_dim = 8, .hidden = 37, .vocabulary = 77}},
        Variant{.name = "one_kv_head",
                .options = {.layers = 2, .query_heads = 5, .kv_heads = 1, .head_dim = 128}}),
    [](const auto& variant) { return variant.param.name; });

// A window or a donor that had no effect would pass every comparison of an engine with itself.
TEST(RandomModel, WindowsAndDonorsMatter) {
  std::mt19937_64 random(8);
  const Tokens tokens = random_tokens(random, 200, 256);
  std::vector<std::vector<float>> logits;
  for (const auto& [window, donors] : {std::pair{0, false}, {0, true}, {96, false}, {96, true}}) {
    const auto model = engine::make_random_model({.window_tokens = window, .donors = donors});
    ASSERT_TRUE(model) << model.error().message();
    Forward forward(**model, {});
    Sequence sequence = forward.create();
    logits.push_back(forward.chunks(sequence, tokens, 64, 199));
    for (std::size_t other = 0; other + 1 < logits.size(); ++other) {
      EXPECT_NE(logits[other], logits.back());
    }
    if (window > 0) {  // the window's group let go of its first pages
      EXPECT_GT(sequence.first(1), 0);
    }
  }
}

TEST(RandomModel, SeedMakesTheModel) {
  const auto logits = [](std::uint64_t seed) {
    const auto model = engine::make_random_model({.seed = seed});
    Forward forward(**model, {});
    Sequence sequence = forward.create();
    return forward.chunks(sequence, {1, 2, 3}, 3);
  };
  EXPECT_EQ(logits(1), logits(1));
  EXPECT_NE(logits(1), logits(2));
}

TEST(LlamaRunner, RefusesWhatItCannotCompute) {
  const auto model = engine::make_random_model({.context_tokens = 32});
  ASSERT_TRUE(model);
  Forward forward(**model, {});
  Sequence sequence = forward.create();
  const auto forward_error = [&](const Tokens& tokens, std::vector<std::int64_t> wanted,
                                 std::size_t logits_size) {
    const std::vector<Append> appends = {{&sequence, 2}};
    auto step = forward.store().reserve(appends);
    EXPECT_TRUE(step);
    auto runner = (*model)->make_runner(forward.store(), Arithmetic::exact);
    EXPECT_TRUE(runner);
    std::vector<float> logits(logits_size);
    const Status status =
        (*runner)->forward(*step, {.tokens = tokens, .logit_rows = wanted}, logits);
    EXPECT_FALSE(status);
    return status ? std::string() : status.error().message();
  };
  EXPECT_NE(forward_error({1, 256}, {}, 0).find("token 256"), std::string::npos);
  EXPECT_NE(forward_error({-1, 5}, {}, 0).find("token -1"), std::string::npos);
  EXPECT_NE(forward_error({1, 2, 3}, {}, 0).find("3 tokens"), std::string::npos);
  EXPECT_NE(forward_error({1, 2}, {2}, 256).find("row 2"), std::string::npos);
  EXPECT_NE(forward_error({1, 2}, {1}, 255).find("255 logits"), std::string::npos);

  const auto other = engine::make_random_model({.kv_heads = 3});
  ASSERT_TRUE(other);
  EXPECT_EQ((*other)->make_runner(forward.store(), Arithmetic::exact).error().code(),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace pagekv::testing
