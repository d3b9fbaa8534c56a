// The llama architecture: RMS norm, rotary positions, grouped-query attention, gated feed-forward.
//
//   h = embedding[token]
//   layer:  n = norm(h); q, k, v = n Wq, n Wk, n Wv; rotate q, k; h += attention(q, k, v) Wo
//           n = norm(h); h += (silu(n Wgate) * (n Wup)) Wdown
//   logits = norm(h) Wout
//
// Layers may see a window of tokens only, or read an earlier layer's pages (a donor) instead of
// having keys and values of their own: no llama file says so, but the cache can, and test models
// do.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/matmul.h"
#include "engine/model.h"
#include "engine/rope.h"

namespace pagekv::inline v0::engine {

struct LlamaLayerConfig {
  std::int64_t window_tokens = 0;  // how many tokens a row sees; 0: all
  int donor = -1;                  // an earlier layer with equal window whose pages it reads
};

struct LlamaConfig {
  std::string name;
  int dim = 0;
  int hidden = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;
  std::int64_t context_tokens = 0;
  float norm_epsilon = 1e-5f;
  RopePairs rope_pairs = RopePairs::adjacent;
  int rope_dim = 0;
  double rope_base = 10000.0;
  bool tied_output = false;  // the output matrix is the embedding
  std::vector<LlamaLayerConfig> layers;
};

struct LlamaLayer {
  std::vector<float> attention_norm;  // [dim]
  PackedMatrix qkv;                   // [q rows | k rows | v rows, dim]; with a donor, q rows only
  PackedMatrix attention_output;      // [dim, query_heads * head_dim]
  std::vector<float> feed_forward_norm;  // [dim]
  PackedMatrix gate_up;                  // [hidden rows of gate | hidden of up, dim]
  PackedMatrix down;                     // [dim, hidden]
};

struct LlamaWeights {
  PackedMatrix embedding;  // [vocabulary, dim]
  PackedMatrix output;     // [vocabulary, dim]; empty where it is the embedding
  std::vector<float> output_norm;
  std::vector<LlamaLayer> layers;

  const PackedMatrix& output_matrix(const LlamaConfig& config) const {
    return config.tied_output ? embedding : output;
  }
};

// Reads and checks the llama.* metadata. Errors: corrupt_file, unsupported.
Result<LlamaConfig> read_llama_config(const GgufFile& file);
// Refuses what the engine cannot compute, and sizes so large that counts of weights or bytes could
// overflow. Errors: corrupt_file, unsupported, invalid_argument (windows and donors), naming the
// value.
Status check_llama_config(const LlamaConfig& config);

ModelInfo llama_info(const LlamaConfig& config);
std::vector<LayerSpec> llama_cache_layers(const LlamaConfig& config, Format format);
Result<ModelOutline> outline_llama(const GgufFile& file);
Result<ModelOutline> outline_llama(const LlamaConfig& config);

// Weights in all, a matrix that serves twice counted once. REQUIRES: sizes that
// check_llama_config() accepts.
std::int64_t count_llama_weights(const LlamaConfig& config);
Result<LlamaWeights> load_llama_weights(const LlamaConfig& config, const TensorLookup& lookup,
                                        const LoadOptions& options);

// From a GGUF file, or from any source of weights: a llama2.c checkpoint, a test.
Result<std::unique_ptr<Model>> make_llama(const GgufFile& file, const LoadOptions& options);
Result<std::unique_ptr<Model>> make_llama(LlamaConfig config, const TensorLookup& lookup,
                                          const LoadOptions& options);

}  // namespace pagekv::inline v0::engine
