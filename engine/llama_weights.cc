#include <utility>

#include "engine/llama.h"
#include "engine/weights.h"

namespace pagekv::inline v0::engine {
namespace {

// Moves a result's value into place; keeps the first error.
template <typename T>
void take(Result<T> result, T& target, Status& status) {
  if (result) {
    target = std::move(*result);
  } else if (status) {
    status = tl::unexpected<Error>(result.error());
  }
}

Status load_layer(const LlamaConfig& config, int index, WeightLoader& loader, LlamaLayer& layer) {
  const std::string prefix = "blk." + std::to_string(index) + ".";
  const std::int64_t q_rows = std::int64_t{config.query_heads} * config.head_dim;
  const std::int64_t kv_rows = std::int64_t{config.kv_heads} * config.head_dim;
  std::vector<WeightLoader::Part> qkv = {{prefix + "attn_q.weight", q_rows}};
  if (config.layers[static_cast<std::size_t>(index)].donor < 0) {
    qkv.push_back({prefix + "attn_k.weight", kv_rows});
    qkv.push_back({prefix + "attn_v.weight", kv_rows});
  }
  Status status;
  take(loader.vector(prefix + "attn_norm.weight", config.dim), layer.attention_norm, status);
  if (status) take(loader.matrix(qkv, config.dim), layer.qkv, status);
  if (status) {
    take(loader.matrix({{prefix + "attn_output.weight", config.dim}}, q_rows),
         layer.attention_output, status);
  }
  if (status) {
    take(loader.vector(prefix + "ffn_norm.weight", config.dim), layer.feed_forward_norm, status);
  }
  if (status) {
    take(loader.matrix({{prefix + "ffn_gate.weight", config.hidden},
                        {prefix + "ffn_up.weight", config.hidden}},
                       config.dim),
         layer.gate_up, status);
  }
  if (status) {
    take(loader.matrix({{prefix + "ffn_down.weight", config.dim}}, config.hidden), layer.down,
         status);
  }
  return status;
}

}  // namespace

std::int64_t count_llama_weights(const LlamaConfig& config) {
  const std::int64_t dim = config.dim;
  const std::int64_t q = std::int64_t{config.query_heads} * config.head_dim;
  const std::int64_t kv = std::int64_t{config.kv_heads} * config.head_dim;
  std::int64_t total = dim + (config.tied_output ? 1 : 2) * config.vocabulary * dim;
  for (const LlamaLayerConfig& layer : config.layers) {
    total += 2 * dim + 2 * q * dim + (layer.donor < 0 ? 2 * kv * dim : 0) + 3 * dim * config.hidden;
  }
  return total;
}

Result<LlamaWeights> load_llama_weights(const LlamaConfig& config, const TensorLookup& lookup,
                                        const LoadOptions& options) {
  WeightLoader loader(lookup, options, count_llama_weights(config));
  LlamaWeights weights;
  Status status;
  take(loader.matrix({{"token_embd.weight", config.vocabulary}}, config.dim), weights.embedding,
       status);
  weights.layers.resize(config.layers.size());
  for (std::size_t i = 0; status && i < weights.layers.size(); ++i) {
    status = load_layer(config, static_cast<int>(i), loader, weights.layers[i]);
  }
  if (status) take(loader.vector("output_norm.weight", config.dim), weights.output_norm, status);
  if (status && !config.tied_output) {
    take(loader.matrix({{"output.weight", config.vocabulary}}, config.dim), weights.output, status);
  }
  if (!status) return tl::unexpected<Error>(status.error());
  return weights;
}

}  // namespace pagekv::inline v0::engine
