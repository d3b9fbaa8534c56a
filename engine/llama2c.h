// The llama2.c checkpoint format ("legacy" version 0, all f32), as the stories models use it.
//
//   seven i32: dim, hidden dim, layers, heads, kv heads, vocabulary size, context tokens
//   token_embd; then, each for all layers: attn_norm, attn_q, attn_k, attn_v, attn_output,
//   ffn_norm, ffn_gate, ffn_down, ffn_up; output_norm; two RoPE tables of context * head_dim / 2,
//   not used; output (the classifier), only where the vocabulary size is stored negative
//
// RoPE in these models turns neighbouring pairs (elements 2i and 2i + 1 of a head), as it does in
// GGUF files of the llama architecture.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/tensor.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

struct Llama2cModel {
  std::int64_t dim = 0;
  std::int64_t hidden_dim = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t vocabulary_size = 0;
  std::int64_t context_tokens = 0;
  bool separate_classifier = false;  // otherwise token_embd.weight is the classifier too

  // f32 views into the parsed bytes, under the names GGUF files use: "token_embd.weight",
  // "blk.0.attn_q.weight", ..., "output_norm.weight", and "output.weight" where separate.
  std::vector<TensorView> tensors;

  std::int64_t head_dim() const { return dim / heads; }
  const TensorView* find_tensor(std::string_view name) const;  // null where absent
};

// The bytes must outlive the model. Errors: corrupt_file (a size that makes no sense, named; a file
// shorter or longer than its header says).
Result<Llama2cModel> parse_llama2c(std::span<const std::byte> bytes);

}  // namespace pagekv::inline v0::engine
