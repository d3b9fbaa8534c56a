// Forward passes by hand: what the tests of models drive a Runner with.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/model.h"

namespace pagekv::testing {

using engine::Token;
using Tokens = std::vector<Token>;

inline Tokens random_tokens(std::mt19937_64& random, std::int64_t count, int vocabulary) {
  std::uniform_int_distribution<Token> any(0, vocabulary - 1);
  Tokens tokens(static_cast<std::size_t>(count));
  for (Token& token : tokens) token = any(random);
  return tokens;
}

struct ForwardSetup {
  int threads = 1;
  std::int64_t page_tokens = 64;
  const char* format = "bf16";
  std::int64_t cap_bytes = std::int64_t{256} << 20;
};

// A model with a store and a runner.
class Forward {
 public:
  Forward(const engine::Model& model, const ForwardSetup& setup)
      : vocabulary_(model.info().vocabulary), store_(make_store(model, setup)) {
    auto runner = model.make_runner(store_, Arithmetic::exact);
    EXPECT_TRUE(runner) << runner.error().message();
    runner_ = std::move(*runner);
  }

  Store& store() { return store_; }
  Sequence create() {
    auto sequence = store_.create_sequence();
    EXPECT_TRUE(sequence);
    return std::move(*sequence);
  }

  struct Part {
    Sequence* sequence;
    Tokens tokens;
  };
  // One pass. Returns the logits [row, vocabulary] of the first part's rows at positions >= `from`.
  std::vector<float> pass(const std::vector<Part>& parts, std::int64_t from = 0) {
    std::vector<Append> appends;
    Tokens tokens;
    for (const Part& part : parts) {
      appends.push_back({part.sequence, static_cast<std::int64_t>(part.tokens.size())});
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
    }
    std::vector<std::int64_t> wanted;
    const std::int64_t begin = parts.front().sequence->length();
    for (std::int64_t row = 0; row < appends.front().tokens; ++row) {
      if (begin + row >= from) wanted.push_back(row);
    }
    auto step = store_.reserve(appends);
    EXPECT_TRUE(step) << step.error().message();
    std::vector<float> logits(wanted.size() * static_cast<std::size_t>(vocabulary_));
    const Status status = runner_->forward(*step, {.tokens = tokens, .logit_rows = wanted}, logits);
    EXPECT_TRUE(status) << status.error().message();
    const auto committed = step->commit();
    EXPECT_TRUE(committed);
    EXPECT_EQ(committed->failed, 0);
    return logits;
  }

  // The same tokens in chunks; the logits of all positions >= `from`.
  std::vector<float> chunks(Sequence& sequence, const Tokens& tokens, std::int64_t chunk,
                            std::int64_t from = 0) {
    std::vector<float> logits;
    for (auto at = tokens.begin(); at != tokens.end();) {
      const auto end = at + std::min<std::int64_t>(chunk, tokens.end() - at);
      const std::vector<float> part = pass({{&sequence, Tokens(at, end)}}, from);
      logits.insert(logits.end(), part.begin(), part.end());
      at = end;
    }
    return logits;
  }

 private:
  static Store make_store(const engine::Model& model, const ForwardSetup& setup) {
    const auto device = make_cpu_device({.executor = nullptr, .threads = setup.threads});
    EXPECT_TRUE(device);
    auto store = engine::make_model_store(model, *device,
                                          {.format = *Format::parse(setup.format),
                                           .page_tokens = setup.page_tokens,
                                           .cap_bytes = setup.cap_bytes});
    EXPECT_TRUE(store) << store.error().message();
    return std::move(*store);
  }

  int vocabulary_;
  Store store_;
  std::unique_ptr<engine::Runner> runner_;
};

}  // namespace pagekv::testing
