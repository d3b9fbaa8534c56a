// Writes the seeds of the fuzz targets: fuzz_seeds FOLDER makes FOLDER/gguf, FOLDER/llama2c,
// FOLDER/tokenizer and FOLDER/format, each with a few small files that reach the depths of the
// parsers.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/engine/gguf_writer.h"
#include "tests/engine/small_vocabulary.h"

namespace {

using pagekv::engine::GgufType;
using pagekv::testing::GgufWriter;
using pagekv::testing::raw;
using pagekv::testing::SmallVocabulary;

void write(const std::filesystem::path& folder, const char* name, const std::string& content) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << content;
}

std::string with_every_value_type() {
  GgufWriter writer;
  writer.number("general.alignment", GgufType::u32, std::uint32_t{32});
  writer.number("a", GgufType::u8, std::uint8_t{1});
  writer.number("b", GgufType::i8, std::int8_t{-1});
  writer.number("c", GgufType::u16, std::uint16_t{1});
  writer.number("d", GgufType::i16, std::int16_t{-1});
  writer.number("e", GgufType::i32, std::int32_t{-1});
  writer.number("f", GgufType::u64, std::uint64_t{1});
  writer.number("g", GgufType::i64, std::int64_t{-1});
  writer.number("h", GgufType::f32, 1.0f);
  writer.number("i", GgufType::f64, 1.0);
  writer.boolean("j", true);
  writer.string("tokenizer.chat_template", "<|im_start|>system\nx<|im_end|>");
  writer.strings("l", {"x", "", "yz"});
  writer.numbers<std::int32_t>("m", GgufType::i32, {1, 2, 3});
  writer.numbers<float>("n", GgufType::f32, {1, 2});
  writer.numbers<std::uint8_t>("o", GgufType::boolean, {0, 1});
  return writer.finish();
}

std::string with_every_tensor_type() {
  GgufWriter writer;
  writer.tensor("blk.0.f32", {4, 2}, 0, std::string(32, '\1'));
  writer.tensor("blk.0.f16", {4, 2}, 1, std::string(16, '\2'));
  writer.tensor("blk.0.bf16", {4, 1, 2}, 30, std::string(16, '\3'));
  writer.tensor("blk.0.q8_0", {32}, 8, std::string(34, '\4'));
  writer.tensor("blk.0.q4_0", {32, 2}, 2, std::string(36, '\5'));
  writer.tensor("blk.0.q4_1", {64}, 3, std::string(40, '\6'));
  writer.tensor("blk.0.q4_k", {256}, 12, std::string(144, '\7'));
  return writer.finish();
}

// All that an outline reads.
std::string llama_metadata() {
  GgufWriter writer;
  const auto number = [&writer](const char* key, std::uint32_t value) {
    writer.number(key, GgufType::u32, value);
  };
  writer.string("general.architecture", "llama");
  number("llama.block_count", 2);
  number("llama.embedding_length", 16);
  number("llama.feed_forward_length", 8);
  number("llama.attention.head_count", 2);
  number("llama.attention.head_count_kv", 1);
  number("llama.attention.key_length", 8);
  number("llama.context_length", 4);
  writer.number("llama.attention.layer_norm_rms_epsilon", GgufType::f32, 1e-5f);
  writer.tensor("token_embd.weight", {16, 2}, 1, std::string(64, '\1'));
  return writer.finish();
}

std::string llama2c_checkpoint(std::int32_t vocabulary) {
  std::string out(1, '\0');
  for (const std::int32_t field : {4, 6, 1, 2, 1, vocabulary, 3}) out += raw(field);
  const int elements = 20 + 128 + 4 + 6 + (vocabulary < 0 ? 20 : 0);
  return out + std::string(static_cast<std::size_t>(elements) * 4, '\0');
}

std::string llama2c_tokenizer() {
  std::string out(1, '\5');  // 263 tokens
  out += raw(std::int32_t{8});
  const auto add = [&out](float score, const std::string& text) {
    out += raw(score) + raw(static_cast<std::int32_t>(text.size())) + text;
  };
  for (const char* text : {"<unk>", "<s>", "</s>"}) add(0, text);
  for (unsigned byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", byte);
    add(0, text);
  }
  for (const char* text : {" ", "a", "aa", " a"}) add(static_cast<float>(out.size()), text);
  std::string text = "a aa \xc3\xa9  aaa ";
  text.resize(64, 'a');  // what fuzz_llama2c.cc cuts off
  return out + text;
}

// Few tokens: a seed of 600 bytes is mutated ten times as often as one of 6000.
std::string vocabulary() {
  SmallVocabulary out;
  out.tokens = {"h", "e", "l", "o", "\xc4\xa0", "he", "ll", "<|im_start|>", "<|im_end|>", "<tool>"};
  out.types = {1, 1, 1, 1, 1, 1, 1, 3, 3, 4};
  out.merges = {"h e", "l l"};
  GgufWriter writer;
  writer.boolean("tokenizer.ggml.add_bos_token", false);
  out.write(writer, 7, 8);
  return writer.finish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_seeds FOLDER\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  write(folder / "gguf", "values", with_every_value_type());
  write(folder / "gguf", "tensors", with_every_tensor_type());
  write(folder / "gguf", "llama", llama_metadata());
  write(folder / "llama2c", "shared", llama2c_checkpoint(5));
  write(folder / "llama2c", "separate", llama2c_checkpoint(-5));
  write(folder / "llama2c", "tokenizer", llama2c_tokenizer());
  const std::string text = "Hello  world's <|im_end|> 12\n\n<tool> \xf0\x9f\x98\x80";
  write(folder / "tokenizer", "file",
        std::string(1, '\0') + raw(static_cast<std::uint16_t>(text.size())) + text + vocabulary());
  const std::string additions =
      std::string("w or\nx y\n") + '\0' + "1xy\n4<tool>x\n3<|x|>\n" + '\0';
  for (char pre = 1; pre <= 4; ++pre) {
    write(folder / "tokenizer", ("small" + std::to_string(pre)).c_str(), pre + additions + text);
  }
  write(folder / "format", "presets", "k8v4\n0-1,3=bf16;2=kv4\n" + std::string(64, '@'));
  write(folder / "format", "long",
        "k=affine:8:max32:f16,v=codebook:3:head:norm:rot\n\n" + raw(1e30f) + raw(-0.0f));
  write(folder / "format", "dense", "bf16:rot\n\n" + raw(1.0f) + raw(3.4e38f));
  return 0;
}
