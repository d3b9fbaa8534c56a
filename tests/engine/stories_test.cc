// The stories260K model, greedy, against what the reference program prints, with and without
// speculation.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "engine/batch.h"
#include "engine/engine.h"
#include "tests/engine/test_data.h"
#include "tests/support/files.h"

namespace pagekv::testing {
namespace {

using engine::Token;

struct Variant {
  const char* format;
  std::int64_t draft_tokens;
};

struct Story {
  const char* file;
  const char* prompt;
  std::int64_t steps;  // tokens of the whole text, without the first one (bos)
};

class Stories : public ::testing::TestWithParam<Story> {};

TEST_P(Stories, GreedyTextIsTheReference) {
  const std::filesystem::path folder = data_folder() / "stories260K";
  if (!std::filesystem::exists(folder / "stories260K.bin")) {
    GTEST_SKIP() << "no model in " << folder << "; set PAGEKV_DATA";
  }
  const auto open = engine::open_model((folder / "stories260K.bin").string());
  ASSERT_TRUE(open) << open.error().message();
  const auto prompt = open->tokenizer->encode(GetParam().prompt);
  ASSERT_TRUE(prompt);
  const auto prompt_tokens = static_cast<std::int64_t>(prompt->size());
  for (const auto& [format, draft_tokens] :
       {Variant{"f32", 0}, Variant{"bf16", 0}, Variant{"bf16", 6}}) {
    SCOPED_TRACE(std::string(format) + ", " + std::to_string(draft_tokens) + " drafts");
    const auto device = make_cpu_device();
    ASSERT_TRUE(device);
    const auto store =
        engine::make_model_store(*open->model, *device, {.format = *Format::parse(format)});
    ASSERT_TRUE(store) << store.error().message();
    std::vector<Token> text = *prompt;
    engine::BatcherOptions options;
    options.is_end = [&](Token token) { return open->tokenizer->is_end(token); };
    options.on_token = [&](const engine::NewToken& token) { text.push_back(token.token); };
    options.draft_tokens = draft_tokens;
    const auto batcher = engine::Batcher::make(*open->model, *store, options);
    ASSERT_TRUE(batcher) << batcher.error().message();
    ASSERT_TRUE((*batcher)->submit(
        {.prompt = *prompt, .max_tokens = GetParam().steps + 1 - prompt_tokens, .sampling = {}}));
    const Status status = (*batcher)->run();
    ASSERT_TRUE(status) << status.error().message();
    EXPECT_EQ(open->tokenizer->decode(text) + "\n", read_file(folder / GetParam().file));
    EXPECT_EQ((*batcher)->stats().accepted_tokens > 0, draft_tokens > 0);
    EXPECT_TRUE(store->check());
  }
}

INSTANTIATE_TEST_SUITE_P(
    Files, Stories,
    ::testing::Values(Story{"greedy-256.txt", "", 256}, Story{"greedy-512.txt", "", 512},
                      Story{"greedy-lily-128.txt", "Lily and Tom went to the park", 128}),
    [](const auto& variant) { return "Story" + std::to_string(variant.index); });

}  // namespace
}  // namespace pagekv::testing
