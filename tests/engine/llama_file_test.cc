// Llama models from GGUF files: what is read, and what is refused with a name.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <new>

#include "engine/engine.h"
#include "engine/gguf.h"
#include "tests/engine/forward.h"
#include "tests/engine/small_model.h"

namespace pagekv::testing {
namespace {

Result<std::unique_ptr<engine::Model>> load(const std::string& bytes,
                                            const engine::LoadOptions& options = {}) {
  const auto file = engine::GgufFile::parse(as_bytes(bytes));
  if (!file) return tl::unexpected<Error>(file.error());
  return engine::load_model(*file, options);
}

std::vector<float> logits(const engine::Model& model) {
  Forward forward(model, {.page_tokens = 16});
  Sequence sequence = forward.create();
  return forward.chunks(sequence, {1, 2, 3, 200, 4}, 5);
}

TEST(LlamaFile, GivesTheModelThatWasWritten) {
  const SmallModel small;
  const auto model = load(small.gguf());
  ASSERT_TRUE(model) << model.error().message();
  const engine::ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.name, "small");
  EXPECT_EQ(info.layers, 2);
  EXPECT_EQ(info.query_heads, 4);
  EXPECT_EQ(info.kv_heads, 2);
  EXPECT_EQ(info.head_dim, 16);
  EXPECT_EQ(info.vocabulary, kSmallVocabulary);
  EXPECT_EQ(info.context_tokens, 128);
  const auto direct = make_llama(small.config(), random_tensors(small.config(), 5), {});
  ASSERT_TRUE(direct);
  EXPECT_EQ(logits(**model), logits(**direct));
}

TEST(LlamaFile, OptionsAndThreadsOfLoading) {
  const std::string bytes = SmallModel().gguf();
  std::int64_t last_done = 0, last_total = 0;
  engine::LoadOptions options;
  options.executor = *make_thread_executor(3);
  options.progress = [&](std::int64_t done, std::int64_t total) {
    EXPECT_GT(done, last_done);
    last_done = done;
    last_total = total;
  };
  const auto f32 = load(bytes, options);
  ASSERT_TRUE(f32) << f32.error().message();
  EXPECT_EQ(last_done, last_total);
  EXPECT_EQ(last_total, (*f32)->info().parameters);
  EXPECT_EQ(logits(**f32), logits(**load(bytes)));
  const auto bf16 = load(bytes, {.executor = nullptr, .weights = DType::bf16, .progress = {}});
  ASSERT_TRUE(bf16);
  EXPECT_EQ((*bf16)->info().weight_bytes * 2, (*f32)->info().weight_bytes);
  EXPECT_NE(logits(**bf16), logits(**f32));
}

constexpr std::uint32_t kLargest = 1u << 24;  // size that the engine reads

struct Refusal {
  const char* name;
  SmallModel model;
  ErrorCode code;
  const char* text;  // part of the message
};

class LlamaFileRefusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(LlamaFileRefusals, NameWhatIsWrong) {
  const std::string bytes = GetParam().model.gguf();
  const auto model = load(bytes);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), GetParam().code) << model.error().message();
  EXPECT_NE(model.error().message().find(GetParam().text), std::string::npos)
      << model.error().message();
}

INSTANTIATE_TEST_SUITE_P(
    All, LlamaFileRefusals,
    ::testing::Values(
        Refusal{"architecture", {.architecture = "mamba"}, ErrorCode::unsupported, "mamba"},
        Refusal{"rope_scaling", {.rope_scaling = "yarn"}, ErrorCode::unsupported, "yarn"},
        Refusal{"missing_key",
                {.without_key = "llama.block_count"},
                ErrorCode::corrupt_file,
                "llama.block_count"},
        Refusal{"missing_tensor",
                {.without_tensor = "blk.1.attn_v.weight"},
                ErrorCode::corrupt_file,
                "blk.1.attn_v.weight"},
        Refusal{"missing_embedding",
                {.without_tensor = "token_embd.weight"},
                ErrorCode::corrupt_file,
                "token_embd.weight"},
        Refusal{"extra_tensor",
                {.extra_tensor = "blk.0.attn_q.bias"},
                ErrorCode::unsupported,
                "blk.0.attn_q.bias"},
        Refusal{"tensor_type",
                {.type_of = "blk.0.ffn_up.weight", .type = 6},
                ErrorCode::unsupported,
                "Q5_0"},
        Refusal{"tensor_shape",
                {.reshaped = "blk.0.ffn_down.weight"},
                ErrorCode::corrupt_file,
                "blk.0.ffn_down.weight"},
        Refusal{"heads", {.kv_heads = 3}, ErrorCode::corrupt_file, "3 key/value heads"},
        Refusal{"no_heads", {.kv_heads = 0}, ErrorCode::corrupt_file, "0 key/value heads"},
        Refusal{"context", {.context_tokens = 0}, ErrorCode::corrupt_file, "context 0"},
        Refusal{"no_layers",
                {.numbers = {{"llama.block_count", 0}}},
                ErrorCode::corrupt_file,
                "a model of 0 layers"},
        Refusal{"layers",
                {.numbers = {{"llama.block_count", 1025}}},
                ErrorCode::corrupt_file,
                "llama.block_count is 1025"},
        Refusal{"dim",
                {.numbers = {{"llama.embedding_length", kLargest + 1}}},
                ErrorCode::corrupt_file,
                "llama.embedding_length is 16777217"},
        Refusal{"width_of_heads",
                {.numbers = {{"llama.attention.head_count", kLargest},
                             {"llama.attention.key_length", 576}}},
                ErrorCode::corrupt_file,
                "16777216 heads of 576 are 9663676416 elements"},
        Refusal{"width_of_equal_heads",
                {.kv_heads = kLargest,
                 .numbers = {{"llama.attention.head_count", kLargest},
                             {"llama.attention.key_length", 576}}},
                ErrorCode::corrupt_file,
                "9663676416 elements"},
        Refusal{"weights",
                {.kv_heads = kLargest / 8,
                 .numbers = {{"llama.block_count", 1024},
                             {"llama.embedding_length", kLargest},
                             {"llama.feed_forward_length", kLargest},
                             {"llama.attention.head_count", kLargest / 8},
                             {"llama.attention.key_length", 8}}},
                ErrorCode::corrupt_file,
                "a model of 2017612672018677760 weights"}),
    [](const auto& variant) { return variant.param.name; });

// Metadata alone is refused the same way: nothing that is printed of a model has overflowed.
TEST_P(LlamaFileRefusals, AreThoseOfTheOutline) {
  const std::string bytes = GetParam().model.gguf();
  const auto file = engine::GgufFile::parse(as_bytes(bytes));
  ASSERT_TRUE(file);
  const auto outline = engine::outline_model(*file);
  if (outline) {
    EXPECT_EQ(std::string(GetParam().name).find("tensor") != std::string::npos, true);
    EXPECT_EQ(outline->info.parameters, count_llama_weights(GetParam().model.config()));
  } else {
    EXPECT_EQ(outline.error().message(), load(bytes).error().message());
  }
}

TEST(LlamaFile, SizesFromElsewhereAreCheckedToo) {
  engine::LlamaConfig config = SmallModel().config();
  ASSERT_TRUE(check_llama_config(config));
  for (int engine::LlamaConfig::* size : {&engine::LlamaConfig::dim, &engine::LlamaConfig::hidden,
                                          &engine::LlamaConfig::vocabulary}) {
    engine::LlamaConfig large = config;
    large.*size = kLargest + 1;
    EXPECT_EQ(check_llama_config(large).error().code(), ErrorCode::corrupt_file);
  }
  config.context_tokens = kLargest + 1;
  EXPECT_EQ(check_llama_config(config).error().code(), ErrorCode::corrupt_file);
  config.context_tokens = kLargest;
  EXPECT_TRUE(check_llama_config(config));
  config.layers.clear();
  EXPECT_EQ(outline_llama(config).error().message(), "a model of 0 layers; legal are 1 to 1024");
}

// An allocation that fails while a model is loaded, wherever that is: here in the caller's
// callback.
TEST(LlamaFile, MemoryRefusedWhileLoadingIsAnError) {
  const std::filesystem::path path =
      std::filesystem::path(::testing::TempDir()) / "pagekv_refused_memory.gguf";
  std::ofstream(path, std::ios::binary) << SmallModel().gguf();
  engine::OpenOptions options;
  int calls = 0;
  options.load.progress = [&](std::int64_t, std::int64_t) {
    if (++calls == 3) throw std::bad_alloc();
  };
  const auto model = engine::open_model(path.string(), options);
  std::filesystem::remove(path);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(model.error().message(), "not enough memory to load " + path.string());
}

TEST(LlamaFile, OutlineNeedsNoWeights) {
  const std::string bytes = SmallModel().gguf();
  const auto file = engine::GgufFile::parse(as_bytes(bytes));
  ASSERT_TRUE(file);
  const auto outline = engine::outline_model(*file);
  ASSERT_TRUE(outline) << outline.error().message();
  const auto model = load(bytes);
  EXPECT_EQ(outline->info.parameters, (*model)->info().parameters);
  ASSERT_EQ(outline->cache_layers.size(), 2u);
  EXPECT_EQ(outline->cache_layers[1].kv_heads, 2);
}

}  // namespace
}  // namespace pagekv::testing
