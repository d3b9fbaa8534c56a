// Speculation changes how fast text comes, and nothing about it: the same tokens and the same
// logits as without, whatever is guessed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <limits>
#include <ostream>
#include <string>

#include "tests/engine/batch_harness.h"

namespace pagekv::testing {
namespace {

constexpr std::uint64_t kSeed = 1312;

// Knows what each request will be answered and guesses that, with a wrong token now and then: rows
// of one pass accept different counts.
class LyingOracle {
 public:
  LyingOracle(const std::vector<Request>& requests, const std::vector<Completion>& answers,
              int lies_percent)
      : lies_percent_(lies_percent), random_(kSeed) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      Tokens text = requests[i].prompt;
      text.insert(text.end(), answers[i].tokens.begin(), answers[i].tokens.end());
      texts_.push_back(std::move(text));
    }
  }

  std::size_t operator()(std::span<const Token> tokens, std::span<Token> drafts) {
    const auto knows = [&](const Tokens& text) {
      return text.size() >= tokens.size() && std::equal(tokens.begin(), tokens.end(), text.begin());
    };
    const auto text = std::find_if(texts_.begin(), texts_.end(), knows);
    EXPECT_NE(text, texts_.end()) << "tokens that are no beginning of any answer";
    if (text == texts_.end()) return 0;
    const std::size_t count = random_() % (drafts.size() + 1);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = tokens.size() + i;
      drafts[i] = at < text->size() ? (*text)[at] : Token{0};
      if (random_() % 100 < static_cast<std::size_t>(lies_percent_))
        drafts[i] = (drafts[i] + 1) % 256;
    }
    return count;
  }

 private:
  int lies_percent_;
  std::mt19937_64 random_;
  std::vector<Tokens> texts_;
};

struct Variant {
  const char* name;
  const char* format;
  std::int64_t page_tokens;
  std::int64_t window_tokens;
};

void PrintTo(const Variant& variant, std::ostream* out) {
  *out << variant.name;
}

class Speculation : public ::testing::TestWithParam<Variant> {
 protected:
  Speculation()
      : model_(random_model(GetParam().window_tokens)),
        setup_{.page_tokens = GetParam().page_tokens, .format = GetParam().format} {}

  std::vector<Completion> answers(const std::vector<Request>& requests,
                                  BatcherOptions options = {}) {
    Harness harness(*model_, setup_, std::move(options));
    for (const Request& request : requests) harness.submit(request);
    harness.run();
    stats_ = harness.batcher().stats();
    std::vector<Completion> out;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      out.push_back(harness.completion(static_cast<int>(i)));
    }
    return out;
  }

  std::unique_ptr<engine::Model> model_;
  ForwardSetup setup_;
  engine::BatcherStats stats_;
};

std::vector<Request> requests_with_log_probabilities(int count) {
  std::mt19937_64 random(kSeed);
  std::vector<Request> requests = random_requests(random, count);
  for (Request& request : requests) request.log_probabilities = true;
  return requests;
}

// A log-probability is a sum over a whole row of logits: where all are equal, logits are.
void expect_same(const std::vector<Completion>& actual, const std::vector<Completion>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(actual[i].tokens, expected[i].tokens) << "request " << i;
    EXPECT_EQ(actual[i].reason, expected[i].reason) << "request " << i;
    EXPECT_EQ(actual[i].log_probabilities, expected[i].log_probabilities) << "request " << i;
  }
}

TEST_P(Speculation, RightAndWrongGuessesGiveTheSameText) {
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  const std::vector<Request> requests = requests_with_log_probabilities(7);
  const std::vector<Completion> expected = answers(requests);
  for (const int lies : {0, 20, 100}) {
    SCOPED_TRACE(lies);
    expect_same(
        answers(requests, {.draft_tokens = 7, .drafter = LyingOracle(requests, expected, lies)}),
        expected);
    EXPECT_GT(stats_.drafted_tokens, 50);
    if (lies == 0) {
      EXPECT_GT(stats_.accepted_tokens, stats_.drafted_tokens / 2);
    }
    if (lies == 20) {
      EXPECT_LT(stats_.accepted_tokens, stats_.drafted_tokens * 9 / 10);
    }
    if (lies == 100) {
      EXPECT_EQ(stats_.accepted_tokens, 0);
    }
  }
  expect_same(
      answers(requests, {.draft_tokens = 4, .drafter = engine::PromptLookup{.ngram_min = 1}}),
      expected);
}

class ScarceSpeculation : public Speculation {};

TEST_P(ScarceSpeculation, GuessesTakeOnlyRowsThatAreLeft) {
  const std::vector<Request> requests = requests_with_log_probabilities(7);
  const std::vector<Completion> expected = answers(requests);
  for (const std::int64_t rows : {1, 9}) {
    BatcherOptions options = {.rows_per_pass = rows,
                              .max_running = 5,
                              .draft_tokens = 9,
                              .drafter = LyingOracle(requests, expected, 10)};
    expect_same(answers(requests, std::move(options)), expected);
    EXPECT_EQ(stats_.drafted_tokens > 0, rows > 1);
  }
}

TEST_P(ScarceSpeculation, FewPagesAreNotSpentOnGuesses) {
  const std::vector<Request> requests = requests_with_log_probabilities(7);
  const std::vector<Completion> expected = answers(requests);
  const std::int64_t bytes_per_token = Forward(*model_, setup_).store().layout().bytes_per_token();
  setup_.cap_bytes = bytes_per_token * std::max<std::int64_t>(320, GetParam().page_tokens * 8);
  // None are kept, or guesses would drop those that requests would have dropped later.
  expect_same(answers(requests, {.reuse = false}), expected);
  const std::int64_t preemptions = stats_.preemptions;
  EXPECT_GT(preemptions, 0);
  expect_same(answers(requests, {.reuse = false,
                                 .draft_tokens = 40,
                                 .drafter = LyingOracle(requests, expected, 100)}),
              expected);
  EXPECT_GT(stats_.drafted_tokens, 0);
  EXPECT_EQ(stats_.preemptions, preemptions) << "a wrong guess has cost somebody their pages";
  expect_same(
      answers(requests, {.draft_tokens = 40, .drafter = LyingOracle(requests, expected, 20)}),
      expected);
}

const auto kName = [](const auto& variant) { return std::string(variant.param.name); };
INSTANTIATE_TEST_SUITE_P(
    Formats, Speculation,
    ::testing::Values(Variant{"bf16", "bf16", 64, 96}, Variant{"bf16_small_pages", "bf16", 16, 96},
                      Variant{"bf16_small_window", "bf16", 16, 5}, Variant{"kv8", "kv8", 16, 96},
                      Variant{"kv4", "kv4", 64, 24},
                      Variant{"codebook", "k=codebook:4:rot,v=codebook:3:rot", 16, 96}),
    kName);
INSTANTIATE_TEST_SUITE_P(Formats, ScarceSpeculation,
                         ::testing::Values(Variant{"bf16_small_pages", "bf16", 16, 96},
                                           Variant{"kv4_small_window", "kv4", 16, 24}),
                         kName);

// A model that says what it has said before, so that whole answers can be guessed.
class GuessedAnswer : public ::testing::Test {
 protected:
  std::vector<Completion> answer(const Request& request, BatcherOptions options) {
    Harness harness(*model_, {}, std::move(options));
    const int id = harness.submit(request);
    harness.run();
    stats_ = harness.batcher().stats();
    return {harness.completion(id)};
  }

  std::unique_ptr<engine::Model> model_ = random_model();
  const Request request_ = {.prompt = {1, 2, 3}, .max_tokens = 50, .log_probabilities = true};
  const std::vector<Completion> free_ = answer(request_, {});
  engine::BatcherStats stats_;
};

TEST_F(GuessedAnswer, EndsInTheMiddleOfADraft) {
  const Token stop = free_[0].tokens[20];
  BatcherOptions options;
  options.is_end = [stop](Token token) { return token == stop; };
  const std::vector<Completion> expected = answer(request_, options);
  EXPECT_EQ(expected[0].reason, FinishReason::end);
  options.draft_tokens = 48;
  options.drafter = LyingOracle({request_}, free_, 0);
  expect_same(answer(request_, options), expected);
  EXPECT_LT(stats_.accepted_tokens, stats_.drafted_tokens);
}

TEST_F(GuessedAnswer, DoesNotGuessPastTheLastToken) {
  for (const std::int64_t most : {1, 2, 5, 9}) {
    Request request = request_;
    request.max_tokens = most;
    const std::vector<Completion> expected = answer(request, {});
    BatcherOptions options;
    options.draft_tokens = 100;
    options.drafter = [&](std::span<const Token> tokens, std::span<Token> drafts) {
      EXPECT_LT(tokens.size() + drafts.size(),
                request.prompt.size() + static_cast<std::size_t>(most));
      const auto next = free_[0].tokens.begin() + static_cast<std::ptrdiff_t>(tokens.size() - 3);
      std::copy_n(next, drafts.size(), drafts.begin());
      return drafts.size();
    };
    expect_same(answer(request, options), expected);
    EXPECT_EQ(stats_.drafted_tokens, most - 1);
    EXPECT_EQ(stats_.accepted_tokens, most - 1);
    EXPECT_EQ(stats_.passes, 1) << "one pass reads the prompt and checks the whole answer";
  }
}

TEST_F(GuessedAnswer, DoesNotGuessPastTheContext) {
  const std::vector<Completion> expected = answer(request_, {.context_tokens = 10});
  EXPECT_EQ(expected[0].reason, FinishReason::context);
  expect_same(answer(request_, {.context_tokens = 10,
                                .draft_tokens = 100,
                                .drafter = LyingOracle({request_}, free_, 0)}),
              expected);
  EXPECT_GT(stats_.accepted_tokens, 0);
}

TEST_F(GuessedAnswer, IsFoundByASecondTurn) {
  Harness harness(*model_, {}, {.draft_tokens = 5, .drafter = LyingOracle({request_}, free_, 30)});
  const int first = harness.submit(request_);
  harness.run();
  Request turn = request_;
  turn.prompt.insert(turn.prompt.end(), free_[0].tokens.begin(), free_[0].tokens.end());
  turn.max_tokens = 1;
  const int second = harness.submit(turn);
  harness.run();
  EXPECT_EQ(harness.completion(first).tokens, free_[0].tokens);
  // All but the last token, which nobody has computed.
  EXPECT_EQ(harness.completion(second).shared_tokens, 3 + 49);
}

// A model whose token 255 has keys that no page can store.
std::unique_ptr<engine::Model> model_with_a_bad_token() {
  engine::LlamaConfig config = engine::random_model_config({});
  config.tied_output = false;
  const engine::TensorLookup good = engine::random_tensors(config, 1);
  std::vector<std::byte> embedding;
  const auto lookup = [&](std::string_view name) -> Result<engine::TensorView> {
    Result<engine::TensorView> tensor = good(name);
    if (!tensor || name != "token_embd.weight") return tensor;
    embedding.assign(tensor->data.begin(), tensor->data.end());
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(embedding.data() + 255 * tensor->row_bytes(), &nan, sizeof(nan));
    tensor->data = embedding;
    return tensor;
  };
  auto model = engine::make_llama(config, lookup, {});
  EXPECT_TRUE(model) << model.error().message();
  return std::move(*model);
}

TEST(FailingGuess, FailsNobody) {
  const auto model = model_with_a_bad_token();
  const Request request = {.prompt = {1, 2, 3}, .max_tokens = 30, .log_probabilities = true};
  Harness plain(*model, {});
  const int expected = plain.submit(request);
  plain.run();
  ASSERT_EQ(plain.completion(expected).reason, FinishReason::length);
  BatcherOptions options;
  options.draft_tokens = 2;
  options.drafter = [](std::span<const Token>, std::span<Token> drafts) {
    drafts.back() = drafts.front() = 255;
    return drafts.size();
  };
  Harness guessing(*model, {}, options);
  const int actual = guessing.submit(request);
  guessing.run();
  expect_same({guessing.completion(actual)}, {plain.completion(expected)});
  EXPECT_EQ(guessing.batcher().stats().accepted_tokens, 0);
  // A bad token of its own does fail a request.
  const int bad = guessing.submit({.prompt = {1, 255}});
  guessing.run();
  EXPECT_EQ(guessing.completion(bad).reason, FinishReason::error);
}

TEST(SpeculationOptions, NeedADrafter) {
  const auto model = random_model();
  Forward forward(*model, {});
  EXPECT_FALSE(Batcher::make(*model, forward.store(), {.draft_tokens = -1}));
  EXPECT_FALSE(Batcher::make(*model, forward.store(), {.draft_tokens = 1, .drafter = nullptr}));
  EXPECT_TRUE(Batcher::make(*model, forward.store(), {.draft_tokens = 0, .drafter = nullptr}));
}

}  // namespace
}  // namespace pagekv::testing
