// A small llama model with random weights, for tests: windows, donors and shared heads in one
// model.
//
// The same options give the same weights on every machine. Its text means nothing; its logits are
// as sensitive to a wrong row, position or page as those of a trained model.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/llama.h"

namespace pagekv::inline v0::engine {

struct RandomModelOptions {
  std::uint64_t seed = 1;
  int layers = 6;
  int query_heads = 6;
  int kv_heads = 2;
  int head_dim = 64;
  int hidden = 192;
  int vocabulary = 256;
  std::int64_t context_tokens = 4096;
  // Every second layer sees so many tokens; 0: all layers see all.
  std::int64_t window_tokens = 96;
  // The last two layers read the pages of the last earlier ones with their window.
  bool donors = true;
};

LlamaConfig random_model_config(const RandomModelOptions& options);
// Random f32 tensors for a model of that shape, by the names GGUF files give them. The lookup keeps
// them alive.
TensorLookup random_tensors(const LlamaConfig& config, std::uint64_t seed);
Result<std::unique_ptr<Model>> make_random_model(const RandomModelOptions& options = {},
                                                 const LoadOptions& load = {});

}  // namespace pagekv::inline v0::engine
