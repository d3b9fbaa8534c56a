// Rule 17, seen from the engine: logits are a function of a sequence's own tokens,
// bit for bit. Guarded here: alone or in a batch, threads, chunks of the prompt, page size, shared
// prefix.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "engine/random_model.h"
#include "tests/engine/forward.h"
#include "tests/engine/test_data.h"

namespace pagekv::testing {
namespace {

constexpr std::uint64_t kSeed = 99;

// EXPECT_EQ of floats would let -0 pass for 0, and would print thousands of them.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Subject {
  std::unique_ptr<engine::Model> model;
  std::int64_t tokens = 0;  // of the sequence
  std::int64_t from = 0;    // logits of positions from here on are compared
  std::vector<ForwardSetup> setups = {};
};

void compare_all(const Subject& subject) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  std::mt19937_64 random(kSeed);
  const int vocabulary = subject.model->info().vocabulary;
  const Tokens tokens = random_tokens(random, subject.tokens, vocabulary);
  std::vector<float> expected;
  {
    Forward forward(*subject.model, {});
    Sequence sequence = forward.create();
    expected = forward.chunks(sequence, tokens, subject.tokens, subject.from);
  }
  for (const ForwardSetup& setup : subject.setups) {
    for (const std::int64_t chunk :
         {std::int64_t{1}, std::int64_t{7}, std::int64_t{64}, subject.tokens}) {
      Forward forward(*subject.model, setup);
      Sequence sequence = forward.create();
      EXPECT_TRUE(same_bits(forward.chunks(sequence, tokens, chunk, subject.from), expected))
          << setup.threads << " threads, pages of " << setup.page_tokens << ", chunks of " << chunk;
      EXPECT_TRUE(forward.store().check());
    }
  }
}

// In every pass the sequence stands between seven others of random lengths, each with a random
// number of new rows.
void compare_batched(const Subject& subject) {
  std::mt19937_64 random(kSeed + 1);
  const int vocabulary = subject.model->info().vocabulary;
  const Tokens tokens = random_tokens(random, subject.tokens, vocabulary);
  Forward alone(*subject.model, {});
  Sequence single = alone.create();
  const std::vector<float> expected = alone.chunks(single, tokens, subject.tokens, subject.from);
  for (const int threads : {1, 2}) {
    Forward forward(*subject.model, {.threads = threads, .page_tokens = 32});
    std::vector<Sequence> others;
    for (int i = 0; i < 7; ++i) others.push_back(forward.create());
    Sequence sequence = forward.create();
    std::vector<float> logits;
    for (auto at = tokens.begin(); at != tokens.end();) {
      const auto rows =
          std::min<std::int64_t>(1 + static_cast<std::int64_t>(random() % 40), tokens.end() - at);
      std::vector<Forward::Part> parts = {{&sequence, Tokens(at, at + rows)}};
      for (Sequence& other : others) {
        const auto count = static_cast<std::int64_t>(random() % 12);
        if (count > 0) parts.push_back({&other, random_tokens(random, count, vocabulary)});
      }
      const std::vector<float> part = forward.pass(parts, subject.from);
      logits.insert(logits.end(), part.begin(), part.end());
      at += rows;
    }
    EXPECT_TRUE(same_bits(logits, expected)) << threads << " threads";
    EXPECT_TRUE(forward.store().check());
  }
}

// The prefix comes from a fork, in most cases inside a page.
void compare_forked(const Subject& subject) {
  std::mt19937_64 random(kSeed + 2);
  const int vocabulary = subject.model->info().vocabulary;
  const Tokens tokens = random_tokens(random, subject.tokens, vocabulary);
  Forward alone(*subject.model, {});
  Sequence single = alone.create();
  const std::vector<float> expected = alone.chunks(single, tokens, subject.tokens, subject.from);
  for (const std::int64_t shared : {std::int64_t{1}, subject.from / 2 + 3, subject.from}) {
    Forward forward(*subject.model, {.threads = 2, .page_tokens = 16});
    Sequence parent = forward.create();
    const Tokens prefix(tokens.begin(), tokens.begin() + shared);
    forward.chunks(parent, prefix, 13, subject.tokens);
    auto child = parent.fork();
    ASSERT_TRUE(child);
    // The parent goes another way first, from the page both still share.
    forward.pass({{&parent, random_tokens(random, 5, vocabulary)}}, subject.tokens);
    const Tokens rest(tokens.begin() + shared, tokens.end());
    EXPECT_TRUE(same_bits(forward.chunks(*child, rest, 50, subject.from), expected))
        << shared << " shared tokens";
    EXPECT_TRUE(forward.store().check());
  }
}

TEST(EngineBits, RandomModel) {
  auto model = engine::make_random_model();
  ASSERT_TRUE(model) << model.error().message();
  const Subject subject{std::move(*model),
                        300,
                        150,
                        {{.threads = 1, .page_tokens = 16},
                         {.threads = 2, .page_tokens = 64},
                         {.threads = 2, .page_tokens = 256},
                         {.threads = 3}}};
  compare_all(subject);
  compare_batched(subject);
  compare_forked(subject);
}

TEST(EngineBits, SmolLM2) {
  const std::string path = demo_model();
  if (!std::filesystem::exists(path)) {
    GTEST_SKIP() << "no model at " << path << "; set PAGEKV_MODEL";
  }
  auto open = engine::open_model(path);
  ASSERT_TRUE(open) << open.error().message();
  const Subject subject{std::move(open->model),
                        72,
                        66,
                        {{.threads = 1, .page_tokens = 16}, {.threads = 2, .page_tokens = 256}}};
  compare_all(subject);
  compare_batched(subject);
  compare_forked(subject);
}

}  // namespace
}  // namespace pagekv::testing
