// Model: the weights of a language model, and Runner: one forward pass after another over a Store.
//
// An architecture is one file that implements both; load_model() picks it by the name in the file.
// A Model is immutable once made and may be used on any thread; a Runner belongs to one thread at a
// time and to one Store. Logits are a function of a sequence's own tokens alone, bit for bit: not
// of what else is in the batch, of how its prompt was cut into chunks, or of shared prefixes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor.h"
#include "pagekv/attend.h"
#include "pagekv/executor.h"
#include "pagekv/layout.h"
#include "pagekv/store.h"

namespace pagekv::inline v0::engine {

class GgufFile;
using Token = std::int32_t;

struct ModelInfo {
  std::string architecture;  // "llama"
  std::string name;          // as the file calls it; may be empty
  std::string fingerprint;   // of the file and how its weights are kept; empty: there is no file
  int layers = 0;
  int dim = 0;
  int hidden = 0;
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocabulary = 0;
  std::int64_t context_tokens = 0;  // longest sequence the model was trained for
  std::int64_t parameters = 0;      // weights, a matrix that serves twice counted once
  std::int64_t weight_bytes = 0;    // of the matrices, as they lie in memory
};

// The rows of one forward pass: step.rows() tokens, packed by sequence as the step has them.
struct ForwardRows {
  std::span<const Token> tokens;
  // Rows whose logits are wanted, ascending.
  std::span<const std::int64_t> logit_rows;
};

class Runner {
 public:
  virtual ~Runner() = default;
  // Writes the rows' keys and values into the step, which the caller commits, and the logits of the
  // rows asked for into `logits` [logit_rows, vocabulary]. Errors: invalid_argument (a token
  // outside the vocabulary, spans of the wrong size), too_long, and those of Step and Plan.
  virtual Status forward(Step& step, const ForwardRows& rows, std::span<float> logits) = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  // What each layer stores, as a cache layout wants it.
  virtual std::vector<LayerSpec> cache_layers(Format format) const = 0;
  // Errors: invalid_argument (a store whose layout is not made of cache_layers()). The model must
  // outlive its runners.
  virtual Result<std::unique_ptr<Runner>> make_runner(const Store& store,
                                                      Arithmetic arithmetic) const = 0;
};

struct LoadOptions {
  // Who packs the weights; null: the calling thread.
  std::shared_ptr<Executor> executor = {};
  // How matrices are kept: bf16 or f32. Empty: f32 those that the file has in f32, bf16 the others.
  std::optional<DType> weights = {};
  // Of the file: ModelInfo::fingerprint is made of it.
  std::string fingerprint = {};
  // Called now and then with weights done and in all, on the calling thread.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

// Finds a tensor by its name in GGUF files ("blk.0.attn_q.weight"): what loaders of every file
// format offer to the architectures. Errors: those of GgufFile::readable_tensor().
using TensorLookup = std::function<Result<TensorView>(std::string_view name)>;

// What can be known of a model without reading its weights.
struct ModelOutline {
  ModelInfo info;                       // weight_bytes is 0: it depends on how they are loaded
  std::vector<LayerSpec> cache_layers;  // with the default format
};
// Errors: those of load_model() that concern metadata.
Result<ModelOutline> outline_model(const GgufFile& file);

// Errors: unsupported (an architecture, a tensor type or an option of the file that is not known
// here, named), corrupt_file (missing metadata or tensors, wrong shapes, named), out_of_memory.
Result<std::unique_ptr<Model>> load_model(const GgufFile& file, const LoadOptions& options = {});

}  // namespace pagekv::inline v0::engine
