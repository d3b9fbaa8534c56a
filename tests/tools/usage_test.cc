// What the command refuses: a clear message on standard error, nothing on standard output, and exit
// code 1 (failed while running) or 2 (the command line makes no sense).
#include <gtest/gtest.h>

#include <random>

#include "tests/engine/small_model.h"
#include "tests/tools/command.h"

namespace pagekv::testing {
namespace {

struct Case {
  const char* name;
  std::vector<std::string> arguments;  // "@name" stands for a file of the workplace
  int exit_code;
  const char* message;  // part of it
};

class Refused : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string good = SmallModel().gguf();
    place_.write("good.gguf", good);
    place_.write("empty.gguf", "");
    place_.write("text.gguf", "this is no model, but it is long enough to be looked at closely");
    place_.write("half.gguf", good.substr(0, good.size() / 2));
    place_.write("short.gguf", good.substr(0, good.size() - 1));
    place_.write("mamba.gguf", SmallModel{.architecture = "mamba"}.gguf());
    place_.write("q5.gguf", SmallModel{.type_of = "blk.0.ffn_up.weight", .type = 6}.gguf());
    place_.write("missing.gguf", SmallModel{.without_tensor = "blk.1.attn_q.weight"}.gguf());
    place_.write("bad.bin", "no checkpoint");
    place_.write("long.txt", std::string(500, 'x'));
    place_.write("latin1.txt", "caf\xe9");
    place_.write("empty.txt", "\n\n");
    place_.write("short.txt", "hello world");
    place_.write("wide.gguf", SmallModel{.kv_heads = 1u << 24,
                                         .numbers = {{"llama.attention.head_count", 1u << 24},
                                                     {"llama.attention.key_length", 576}}}
                                  .gguf());
  }

  Workplace place_;
};

TEST_P(Refused, WithAMessage) {
  std::vector<std::string> arguments;
  for (const std::string& argument : GetParam().arguments) {
    arguments.push_back(argument.starts_with('@') ? place_.path(argument.substr(1)) : argument);
  }
  const Outcome outcome = place_.run(arguments, {}, {"XDG_CACHE_HOME=" + place_.path("none")});
  EXPECT_EQ(outcome.exit_code, GetParam().exit_code) << outcome.err;
  EXPECT_NE(outcome.err.find(GetParam().message), std::string::npos) << outcome.err;
  EXPECT_TRUE(outcome.err.starts_with("pagekv: ")) << outcome.err;
  EXPECT_EQ(outcome.out, "");
}

const std::vector<Case> kModels = {
    {"no_default_model", {"run", "-p", "x"}, 1, "scripts/demo"},
    {"missing_model", {"run", "-m", "@none.gguf", "-p", "x"}, 1, "there is no model"},
    {"folder_as_model", {"run", "-m", "/", "-p", "x"}, 1, "/"},
    {"empty_model", {"run", "-m", "@empty.gguf", "-p", "x"}, 1, "pagekv: "},
    {"no_gguf", {"run", "-m", "@text.gguf", "-p", "x"}, 1, "GGUF"},
    {"half_a_model", {"run", "-m", "@half.gguf", "-p", "x"}, 1, "pagekv: "},
    {"model_without_last_byte", {"run", "-m", "@short.gguf", "-p", "x"}, 1, "pagekv: "},
    {"architecture", {"run", "-m", "@mamba.gguf", "-p", "x"}, 1, "mamba"},
    {"tensor_type", {"run", "-m", "@q5.gguf", "-p", "x"}, 1, "Q5_0"},
    {"tensor_missing", {"run", "-m", "@missing.gguf", "-p", "x"}, 1, "blk.1.attn_q.weight"},
    {"bad_checkpoint", {"run", "-m", "@bad.bin", "-p", "x"}, 1, "pagekv: "},
    {"info_of_no_model", {"info", "-m", "@none.gguf"}, 1, "there is no model"},
    {"sizes_of_no_model", {"run", "-m", "@wide.gguf", "-p", "x"}, 1, "9663676416 elements"},
    {"info_of_sizes_of_no_model", {"info", "-m", "@wide.gguf"}, 1, "9663676416 elements"},
    {"info_of_architecture", {"info", "-m", "@mamba.gguf"}, 1, "mamba"},
};

const std::vector<Case> kPrompts = {
    {"longer_than_context", {"run", "-m", "@good.gguf", "-f", "@long.txt"}, 1, "500 tokens"},
    {"longer_than_given_context",
     {"run", "-m", "@good.gguf", "-c", "4", "-p", "abcdefgh"},
     1,
     "context of 4"},
    {"longer_than_cap",
     {"run", "-m", "@good.gguf", "--page", "16", "--cap", "8K", "-p", std::string(100, 'x')},
     1,
     "pages"},
    {"unreadable_file", {"run", "-m", "@good.gguf", "-f", "@none.txt"}, 1, "none.txt"},
    {"folder_as_file", {"run", "-m", "@good.gguf", "-f", "/"}, 1, "text file /"},
    {"invalid_utf8", {"run", "-m", "@good.gguf", "-p", "caf\xe9"}, 1, "UTF-8"},
    {"invalid_utf8_in_file", {"run", "-m", "@good.gguf", "-f", "@latin1.txt"}, 1, "UTF-8"},
    {"no_line",
     {"run", "-m", "@good.gguf", "--lines", "-f", "@empty.txt"},
     1,
     "nothing to continue"},
    {"no_line_to_chat_about",
     {"run", "-m", "@good.gguf", "--chat", "--lines", "-f", "@empty.txt"},
     1,
     "nothing to continue"},
    {"no_prompt", {"run", "-m", "@good.gguf"}, 2, "-p"},
    {"chat_without_template", {"run", "-m", "@good.gguf", "--chat", "-p", "x"}, 1, "chat_template"},
};

const std::vector<Case> kOptions = {
    {"page_0", {"run", "-m", "@good.gguf", "-p", "x", "--page", "0"}, 2, "multiple of 16"},
    {"page_17", {"run", "-m", "@good.gguf", "-p", "x", "--page", "17"}, 2, "multiple of 16"},
    {"page_no_number", {"run", "-p", "x", "--page", "16x"}, 2, "multiple of 16"},
    {"cap_below_a_page", {"run", "-m", "@good.gguf", "-p", "x", "--cap", "100"}, 1, "100 bytes"},
    {"cap_no_size", {"run", "-p", "x", "--cap", "plenty"}, 2, "--cap"},
    {"cap_0", {"run", "-m", "@good.gguf", "-p", "x", "--cap", "0"}, 2, "--cap"},
    {"cap_negative", {"run", "-m", "@good.gguf", "-p", "x", "--cap", "-1"}, 2, "--cap"},
    {"cap_2_to_63", {"run", "-m", "@good.gguf", "-p", "x", "--cap", "8E"}, 2, "--cap"},
    {"cap_2_to_63_in_bytes",
     {"run", "-m", "@good.gguf", "-p", "x", "--cap", "9223372036854775808"},
     2,
     "--cap"},
    {"cap_2_to_64", {"run", "-m", "@good.gguf", "-p", "x", "--cap", "16E"}, 2, "--cap"},
    {"cap_beyond_64_bits",
     {"run", "-m", "@good.gguf", "-p", "x", "--cap", "99999999999999999999"},
     2,
     "--cap"},
    {"parallel_0", {"run", "-p", "x", "--parallel", "0"}, 2, "--parallel"},
    {"threads_0", {"run", "-p", "x", "-t", "0"}, 2, "--threads"},
    {"tokens_0", {"run", "-p", "x", "-n", "0"}, 2, "--tokens"},
    {"tokens_negative", {"run", "-p", "x", "-n", "-5"}, 2, "--tokens"},
    {"kv_unknown", {"run", "-p", "x", "--kv", "q9"}, 2, "q9"},
    {"kv_bits", {"run", "-p", "x", "--kv", "kv7"}, 2, "7 bits"},
    {"kv_group_beyond_the_head",
     {"run", "-m", "@good.gguf", "-p", "x", "--kv", "affine:4:32"},
     2,
     "--kv: layer 0, keys: affine groups of 32 elements in a head of 16; legal are 8, 16"},
    {"kv_several", {"run", "-p", "x", "--kv", "f32,bf16"}, 2, "f32,bf16"},
    {"kv_of_no_layer",
     {"run", "-m", "@good.gguf", "-p", "x", "--kv-layers", "2=f32"},
     2,
     "--kv-layers: "},
    {"kv_of_layers_no_format",
     {"run", "-m", "@good.gguf", "-p", "x", "--kv-layers", "0=q9"},
     2,
     "q9"},
    {"kv_layers_of_no_model",
     {"run", "-m", "@none.gguf", "-p", "x", "--kv-layers", "0=f32"},
     1,
     "there is no model"},
    {"temperature_negative", {"run", "-p", "x", "--temp", "-1"}, 2, "--temp"},
    {"top_p_0", {"run", "-p", "x", "--top-p", "0"}, 2, "--top-p"},
    {"context_beyond_model",
     {"run", "-m", "@good.gguf", "-p", "x", "-c", "129"},
     1,
     "the model has 128"},
    {"speculate_negative", {"run", "-p", "x", "--speculate", "-1"}, 2, "--speculate"},
    {"speculate_much", {"run", "-p", "x", "--speculate", "1000"}, 2, "--speculate"},
    {"speculate_no_number", {"run", "-p", "x", "--speculate", "some"}, 2, "--speculate"},
    {"best_of_0", {"run", "-p", "x", "--best-of", "0"}, 2, "--best-of"},
    {"best_of_many", {"run", "-p", "x", "--best-of", "100000"}, 2, "--best-of"},
    {"best_of_equal_samples",
     {"run", "-m", "@good.gguf", "-p", "x", "--best-of", "2", "--temp", "0"},
     2,
     "--temp 0"},
    {"unknown_option", {"run", "--frobnicate"}, 2, "frobnicate"},
    {"unknown_command", {"frobnicate"}, 2, "frobnicate"},
    {"no_command", {}, 2, "subcommand"},
};

const std::vector<Case> kPpl = {
    {"no_text", {"ppl", "-m", "@good.gguf"}, 2, "--file"},
    {"unreadable_file", {"ppl", "-m", "@good.gguf", "-f", "@none.txt"}, 1, "none.txt"},
    {"folder_as_file", {"ppl", "-m", "@good.gguf", "-f", "/"}, 1, "text file /"},
    {"invalid_utf8", {"ppl", "-m", "@good.gguf", "-f", "@latin1.txt"}, 1, "UTF-8"},
    {"missing_model", {"ppl", "-m", "@none.gguf", "-f", "@long.txt"}, 1, "there is no model"},
    {"short_text", {"ppl", "-m", "@good.gguf", "-f", "@short.txt"}, 1, "one context of 128"},
    {"context_beyond_model",
     {"ppl", "-m", "@good.gguf", "-f", "@long.txt", "-c", "129"},
     1,
     "the model has 128"},
    {"context_2", {"ppl", "-m", "@good.gguf", "-f", "@long.txt", "-c", "2"}, 2, "--context"},
    {"first_of_no_token",
     {"ppl", "-m", "@good.gguf", "-f", "@long.txt", "-c", "100", "--first", "99"},
     1,
     "are 0 to 98"},
    {"first_negative", {"ppl", "-f", "@long.txt", "--first", "-1"}, 2, "--first"},
    {"chunks_0", {"ppl", "-m", "@good.gguf", "-f", "@long.txt", "--chunks", "0"}, 2, "--chunks"},
    {"first_too_late",
     {"ppl", "-m", "@good.gguf", "-f", "@long.txt", "-c", "100", "--first", "99"},
     1,
     "legal in a context of 100 tokens are 0 to 98"},
    {"chunks_too_many",
     {"ppl", "-m", "@good.gguf", "-f", "@long.txt", "-c", "100", "--chunks", "6"},
     1,
     "enough for 5"},
    {"kv_unknown", {"ppl", "-f", "@long.txt", "--kv", "f32,q9"}, 2, "'q9'"},
    {"kv_empty", {"ppl", "-f", "@long.txt", "--kv", "f32,"}, 2, "--kv"},
    {"kv_one_side", {"ppl", "-f", "@long.txt", "--kv", "bf16,k=f32"}, 2, "k=f32"},
    {"kv_side_unknown", {"ppl", "-f", "@long.txt", "--kv", "k=f32,v=q9"}, 2, "q9"},
    {"second_kv_unknown", {"ppl", "-f", "@long.txt", "--kv", "f32", "--kv", "q9"}, 2, "q9"},
    {"reference_unknown", {"ppl", "-f", "@long.txt", "--reference", "q9"}, 2, "q9"},
    {"kv_of_no_layer",
     {"ppl", "-m", "@good.gguf", "-f", "@long.txt", "--kv-layers", "2=f32"},
     2,
     "--kv-layers: "},
    {"output_xml", {"ppl", "-f", "@long.txt", "-o", "xml"}, 2, "--output"},
    {"page_17", {"ppl", "-f", "@long.txt", "--page", "17"}, 2, "multiple of 16"},
};

const std::vector<Case> kBench = {
    {"no_number", {"bench", "--attn", "--ctx", "8k,x"}, 2, "'x' is no list of numbers"},
    {"range_backwards", {"bench", "--attn", "--ctx", "8k-1k"}, 2, "8k-1k"},
    {"range_that_stays", {"bench", "--attn", "--ctx", "1-8*1"}, 2, "1-8*1"},
    {"threads_0", {"bench", "--attn", "-t", "0"}, 2, "0 is not in [1, 1024]"},
    {"heads_that_do_not_divide", {"bench", "--attn", "--heads", "32/5"}, 2, "'32/5'"},
    {"heads_without_kv", {"bench", "--attn", "--heads", "32"}, 2, "'32'"},
    {"kv_unknown", {"bench", "--attn", "--kv", "q9"}, 2, "q9"},
    {"group_beyond_the_head",
     {"bench", "--attn", "--dim", "80", "--kv", "affine:4:64", "--set", "1M"},
     1,
     "affine groups of 64 elements in a head of 80"},
    {"page_17", {"bench", "--attn", "--page", "17", "--set", "1M"}, 1, "17"},
    {"target_unknown", {"bench", "--attn", "--target", "MMX", "--set", "1M"}, 1, "MMX"},
    {"set_0", {"bench", "--attn", "--set", "0"}, 2, "--set"},
    {"output_xml", {"bench", "--attn", "-o", "xml"}, 2, "--output"},
    {"missing_model", {"bench", "-m", "@none.gguf"}, 1, "there is no model"},
    {"context_beyond_model",
     {"bench", "-m", "@good.gguf", "-p", "129", "-n", "0"},
     1,
     "the model has 128"},
};

const auto kName = [](const auto& variant) { return variant.param.name; };
INSTANTIATE_TEST_SUITE_P(Models, Refused, ::testing::ValuesIn(kModels), kName);
INSTANTIATE_TEST_SUITE_P(Prompts, Refused, ::testing::ValuesIn(kPrompts), kName);
INSTANTIATE_TEST_SUITE_P(Options, Refused, ::testing::ValuesIn(kOptions), kName);
INSTANTIATE_TEST_SUITE_P(Bench, Refused, ::testing::ValuesIn(kBench), kName);
INSTANTIATE_TEST_SUITE_P(Ppl, Refused, ::testing::ValuesIn(kPpl), kName);

// Damaged models end with a message or, where only weights were hit, with text: never with a
// signal.
TEST(Damaged, ModelsNeverKillTheCommand) {
  constexpr std::uint64_t kSeed = 5;
  std::printf("seed %llu\n", static_cast<unsigned long long>(kSeed));
  std::mt19937_64 random(kSeed);
  const Workplace place;
  const std::string good = SmallModel().gguf();
  for (int round = 0; round < 40; ++round) {
    std::string bytes = good;
    if (round % 2 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      // Mostly metadata and the tensor table, where a flip does most.
      for (int flip = 0; flip < 4; ++flip) {
        bytes[random() % 12000] ^= static_cast<char>(1 << random() % 8);
      }
    }
    const std::string path = place.write("damaged.gguf", bytes);
    const Outcome outcome = place.run({"run", "-m", path, "-p", "hello", "-n", "2", "-t", "1"});
    EXPECT_GE(outcome.exit_code, 0) << "round " << round << ": " << outcome.err;
    EXPECT_LE(outcome.exit_code, 1) << outcome.err;
    const bool explained = outcome.exit_code == 0 || outcome.err.starts_with("pagekv: ");
    EXPECT_TRUE(explained) << outcome.err;
  }
}

}  // namespace
}  // namespace pagekv::testing
