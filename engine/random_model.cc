#include "engine/random_model.h"

#include <cmath>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "engine/random.h"

namespace pagekv::inline v0::engine {
namespace {

// Weight `index` of a stream: the sum of four uniforms on (-1, 1), scaled to variance 1, which is
// close enough to normal.
float random_weight(std::uint64_t seed, std::uint64_t index) {
  double sum = 0;
  for (std::uint64_t n = 1; n <= 4; ++n) sum += 2 * random_uniform(seed, 4 * index + n) - 1;
  return static_cast<float>(sum * std::sqrt(0.75));
}

// Names and makes tensors; keeps their bytes.
class RandomTensors {
 public:
  explicit RandomTensors(std::uint64_t seed) : seed_(seed) {}

  void add_matrix(const std::string& name, std::int64_t rows, std::int64_t columns) {
    add(name, rows, columns, 0.0f, static_cast<float>(1.0 / std::sqrt(double(columns))));
  }
  void add_norm(const std::string& name, std::int64_t size) { add(name, 1, size, 1.0f, 0.1f); }

  Result<TensorView> find(std::string_view name) const {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) {
      return fail(ErrorCode::corrupt_file, "tensor {s} is missing", {}, std::string(name));
    }
    const Tensor& tensor = found->second;
    return TensorView{.name = found->first,
                      .type = TensorType::f32,
                      .shape = {tensor.columns, tensor.rows},
                      .data = std::as_bytes(std::span(tensor.values))};
  }

 private:
  struct Tensor {
    std::int64_t rows;
    std::int64_t columns;
    std::vector<float> values;
  };

  void add(const std::string& name, std::int64_t rows, std::int64_t columns, float mean,
           float deviation) {
    std::uint64_t seed = seed_;  // per tensor, so that adding one leaves the others as they are
    for (const char character : name) seed = seed * 131 + static_cast<unsigned char>(character);
    std::vector<float> values(static_cast<std::size_t>(rows * columns));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = mean + deviation * random_weight(seed, i);
    }
    tensors_[name] = {rows, columns, std::move(values)};
  }

  std::uint64_t seed_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace

LlamaConfig random_model_config(const RandomModelOptions& options) {
  LlamaConfig config;
  config.name = "random";
  config.dim = options.query_heads * options.head_dim;
  config.hidden = options.hidden;
  config.query_heads = options.query_heads;
  config.kv_heads = options.kv_heads;
  config.head_dim = options.head_dim;
  config.vocabulary = options.vocabulary;
  config.context_tokens = options.context_tokens;
  config.rope_dim = options.head_dim;
  config.tied_output = true;
  for (int layer = 0; layer < options.layers; ++layer) {
    const bool reads_donor = options.donors && layer >= options.layers - 2 && layer >= 2;
    config.layers.push_back({.window_tokens = layer % 2 == 1 ? options.window_tokens : 0,
                             .donor = reads_donor ? layer - 2 : -1});
  }
  return config;
}

TensorLookup random_tensors(const LlamaConfig& config, std::uint64_t seed) {
  const std::int64_t q_rows = std::int64_t{config.query_heads} * config.head_dim;
  const std::int64_t kv_rows = std::int64_t{config.kv_heads} * config.head_dim;
  const auto tensors = std::make_shared<RandomTensors>(seed);
  tensors->add_matrix("token_embd.weight", config.vocabulary, config.dim);
  tensors->add_norm("output_norm.weight", config.dim);
  if (!config.tied_output) tensors->add_matrix("output.weight", config.vocabulary, config.dim);
  for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    tensors->add_norm(prefix + "attn_norm.weight", config.dim);
    tensors->add_norm(prefix + "ffn_norm.weight", config.dim);
    tensors->add_matrix(prefix + "attn_q.weight", q_rows, config.dim);
    if (config.layers[layer].donor < 0) {
      tensors->add_matrix(prefix + "attn_k.weight", kv_rows, config.dim);
      tensors->add_matrix(prefix + "attn_v.weight", kv_rows, config.dim);
    }
    tensors->add_matrix(prefix + "attn_output.weight", config.dim, q_rows);
    tensors->add_matrix(prefix + "ffn_gate.weight", config.hidden, config.dim);
    tensors->add_matrix(prefix + "ffn_up.weight", config.hidden, config.dim);
    tensors->add_matrix(prefix + "ffn_down.weight", config.dim, config.hidden);
  }
  return [tensors](std::string_view name) { return tensors->find(name); };
}

Result<std::unique_ptr<Model>> make_random_model(const RandomModelOptions& options,
                                                 const LoadOptions& load) {
  const LlamaConfig config = random_model_config(options);
  return make_llama(config, random_tensors(config, options.seed), load);
}

}  // namespace pagekv::inline v0::engine
