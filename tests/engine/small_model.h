// A whole small model as a GGUF file: random weights and the small vocabulary. For tests of loading
// and of the command; fields are changed before gguf() to make files that must be refused.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/random_model.h"
#include "tests/engine/gguf_writer.h"
#include "tests/engine/small_vocabulary.h"

namespace pagekv::testing {

struct SmallModel {
  std::string architecture = "llama";
  std::string rope_scaling = {};   // empty: no such key
  std::string chat_template = {};  // likewise
  std::string without_key = {};    // of the metadata below
  std::string without_tensor = {};
  std::string extra_tensor = {};
  std::string type_of = {};  // a tensor that is written with `type`, as zeros
  std::uint32_t type = 0;
  std::string reshaped = {};   // a tensor that gets a row too many
  std::uint32_t kv_heads = 2;  // as the metadata says
  std::uint32_t context_tokens = 128;
  std::map<std::string, std::uint32_t> numbers = {};  // instead of, or beside, those below

  engine::LlamaConfig config() const {
    engine::LlamaConfig config = engine::random_model_config({.layers = 2,
                                                              .query_heads = 4,
                                                              .kv_heads = 2,
                                                              .head_dim = 16,
                                                              .hidden = 64,
                                                              .vocabulary = kSmallVocabulary,
                                                              .context_tokens = context_tokens,
                                                              .window_tokens = 0,
                                                              .donors = false});
    return config;
  }

  std::string gguf() const {
    GgufWriter writer;
    const engine::LlamaConfig shape = config();
    const auto number = [&](const std::string& key, std::uint32_t value) {
      if (key == without_key || numbers.contains(key)) return;
      writer.number(key, engine::GgufType::u32, value);
    };
    writer.string("general.architecture", architecture);
    writer.string("general.name", "small");
    number("llama.block_count", static_cast<std::uint32_t>(shape.layers.size()));
    number("llama.embedding_length", static_cast<std::uint32_t>(shape.dim));
    number("llama.feed_forward_length", static_cast<std::uint32_t>(shape.hidden));
    number("llama.attention.head_count", static_cast<std::uint32_t>(shape.query_heads));
    number("llama.attention.head_count_kv", kv_heads);
    number("llama.context_length", context_tokens);
    for (const auto& [key, value] : numbers) writer.number(key, engine::GgufType::u32, value);
    writer.number("llama.attention.layer_norm_rms_epsilon", engine::GgufType::f32, 1e-5f);
    if (!rope_scaling.empty()) writer.string("llama.rope.scaling.type", rope_scaling);
    if (!chat_template.empty()) writer.string("tokenizer.chat_template", chat_template);
    SmallVocabulary().write(writer);
    const engine::TensorLookup lookup = random_tensors(shape, 5);
    for (const std::string& name : tensor_names(shape)) {
      if (name != without_tensor) write_tensor(writer, *lookup(name));
    }
    if (!extra_tensor.empty()) writer.tensor(extra_tensor, {8}, 0, std::string(32, '\0'));
    return writer.finish();
  }

 private:
  static std::vector<std::string> tensor_names(const engine::LlamaConfig& shape) {
    std::vector<std::string> names = {"token_embd.weight", "output_norm.weight"};
    for (std::size_t layer = 0; layer < shape.layers.size(); ++layer) {
      for (const char* part : {"attn_norm", "ffn_norm", "attn_q", "attn_k", "attn_v", "attn_output",
                               "ffn_gate", "ffn_up", "ffn_down"}) {
        names.push_back("blk." + std::to_string(layer) + "." + part + ".weight");
      }
    }
    return names;
  }

  void write_tensor(GgufWriter& writer, const engine::TensorView& tensor) const {
    std::vector<std::uint64_t> shape;
    for (const std::int64_t side : tensor.shape) shape.push_back(static_cast<std::uint64_t>(side));
    std::string data(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    if (tensor.name == reshaped) {
      ++shape.back();
      data.resize(data.size() + static_cast<std::size_t>(tensor.row_bytes()));
    }
    std::uint32_t type_id = 0;
    if (tensor.name == type_of) {
      const auto& info = engine::tensor_type_info(static_cast<engine::TensorType>(type));
      type_id = type;
      data.assign(static_cast<std::size_t>(tensor.rows() * tensor.columns() / info.block_elements *
                                           info.block_bytes),
                  '\0');
    }
    writer.tensor(tensor.name, shape, type_id, data);
  }
};

}  // namespace pagekv::testing
