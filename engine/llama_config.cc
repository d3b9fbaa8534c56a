#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "engine/gguf.h"
#include "engine/llama.h"

namespace pagekv::inline v0::engine {
namespace {

// What no model comes near, and what products of sizes, in weights or in bytes, fit 64 bits with.
constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;  // of any one dimension of a matrix
constexpr std::int64_t kMaxLayers = 1024;
constexpr std::int64_t kMaxWeights = std::int64_t{1} << 44;  // of all matrices and vectors

// Collects values of metadata and keeps the first error, so that the reading code stays a list.
class Reader {
 public:
  explicit Reader(const GgufFile& file) : file_(file) {}

  int size(const char* key, std::int64_t limit = kMaxSize) {
    return checked(key, file_.integer(key), limit);
  }
  int size_or(const char* key, std::int64_t fallback) {
    return checked(key, file_.integer_or(key, fallback), kMaxSize);
  }
  double number(const char* key) { return keep(file_.number(key)); }
  double number_or(const char* key, double fallback) {
    return keep(file_.number_or(key, fallback));
  }
  std::string string_or(const char* key, std::string_view fallback) {
    return std::string(keep(file_.string_or(key, fallback)));
  }
  const Status& status() const { return status_; }

 private:
  template <typename T>
  T keep(const Result<T>& result) {
    if (result) return *result;
    if (status_) status_ = tl::unexpected<Error>(result.error());
    return T{};
  }
  int checked(const char* key, const Result<std::int64_t>& result, std::int64_t limit) {
    const std::int64_t value = keep(result);
    if (value >= 0 && value <= limit) return static_cast<int>(value);
    if (status_) {
      status_ = fail(ErrorCode::corrupt_file, "{s} is {0}, which no model has", {value}, key);
    }
    return 0;
  }

  const GgufFile& file_;
  Status status_;
};

// Sizes that no model has, so that nothing computed from them overflows.
Status check_limits(const LlamaConfig& config) {
  const auto layers = static_cast<std::int64_t>(config.layers.size());
  if (layers < 1 || layers > kMaxLayers) {
    return fail(ErrorCode::corrupt_file, "a model of {0} layers; legal are 1 to {1}",
                {layers, kMaxLayers});
  }
  const std::int64_t largest =
      std::max<std::int64_t>({config.dim, config.hidden, config.vocabulary, config.context_tokens});
  if (largest > kMaxSize) {
    return fail(ErrorCode::corrupt_file,
                "dim {0}, hidden {1}, vocabulary {2} or context {3} is larger than any model's",
                {config.dim, config.hidden, config.vocabulary, config.context_tokens});
  }
  // There are no more heads for keys and values than for queries.
  const std::int64_t width = std::int64_t{config.query_heads} * config.head_dim;
  if (width > kMaxSize) {
    return fail(ErrorCode::corrupt_file,
                "{0} heads of {1} are {2} elements; no model has more than {3}",
                {config.query_heads, config.head_dim, width, kMaxSize});
  }
  // With sizes up to 2^24 this count is below 2^61.
  const std::int64_t weights = count_llama_weights(config);
  if (weights > kMaxWeights) {
    return fail(ErrorCode::corrupt_file, "a model of {0} weights; no model has more than {1}",
                {weights, kMaxWeights});
  }
  return {};
}

// Options of llama files that change the arithmetic and that this engine does not have.
Status refuse_unknown_options(const GgufFile& file) {
  const Result<std::string_view> scaling = file.string_or("llama.rope.scaling.type", "none");
  if (!scaling) return tl::unexpected<Error>(scaling.error());
  if (*scaling != "none") {
    return fail(ErrorCode::unsupported, "rope scaling \"{s}\" is not supported; only \"none\" is",
                {}, std::string(*scaling));
  }
  const Result<std::int64_t> experts = file.integer_or("llama.expert_count", 0);
  if (!experts) return tl::unexpected<Error>(experts.error());
  if (*experts != 0) {
    return fail(ErrorCode::unsupported, "a mixture of {0} experts is not supported", {*experts});
  }
  return {};
}

}  // namespace

Result<LlamaConfig> read_llama_config(const GgufFile& file) {
  if (Status status = refuse_unknown_options(file); !status) {
    return tl::unexpected<Error>(status.error());
  }
  Reader read(file);
  LlamaConfig config;
  config.name = read.string_or("general.name", "");
  const int layers = read.size("llama.block_count", kMaxLayers);
  config.dim = read.size("llama.embedding_length");
  config.hidden = read.size("llama.feed_forward_length");
  config.query_heads = read.size("llama.attention.head_count");
  config.kv_heads = read.size_or("llama.attention.head_count_kv", config.query_heads);
  config.context_tokens = read.size("llama.context_length");
  config.norm_epsilon = static_cast<float>(read.number("llama.attention.layer_norm_rms_epsilon"));
  const int shared_dim = config.query_heads > 0 ? config.dim / config.query_heads : 0;
  config.head_dim = read.size_or("llama.attention.key_length", shared_dim);
  const int value_dim = read.size_or("llama.attention.value_length", config.head_dim);
  config.rope_dim = read.size_or("llama.rope.dimension_count", config.head_dim);
  config.rope_base = read.number_or("llama.rope.freq_base", 10000.0);
  if (!read.status()) return tl::unexpected<Error>(read.status().error());
  if (value_dim != config.head_dim) {
    return fail(ErrorCode::unsupported, "values of {0} elements beside keys of {1}",
                {value_dim, config.head_dim});
  }
  config.layers.resize(static_cast<std::size_t>(layers));
  const TensorView* embedding = file.find_tensor("token_embd.weight");
  if (embedding == nullptr) {
    return fail(ErrorCode::corrupt_file, "tensor token_embd.weight is missing");
  }
  if (embedding->rows() > kMaxSize) {
    return fail(ErrorCode::corrupt_file, "a vocabulary of {0} tokens", {embedding->rows()});
  }
  config.vocabulary = static_cast<int>(embedding->rows());
  config.tied_output = file.find_tensor("output.weight") == nullptr;
  if (Status status = check_llama_config(config); !status) {
    return tl::unexpected<Error>(status.error());
  }
  return config;
}

Status check_llama_config(const LlamaConfig& config) {
  if (config.dim < 1 || config.hidden < 1 || config.vocabulary < 1 || config.context_tokens < 1) {
    return fail(ErrorCode::corrupt_file,
                "dim {0}, hidden {1}, vocabulary {2} and context {3} must all be at least 1",
                {config.dim, config.hidden, config.vocabulary, config.context_tokens});
  }
  if (config.query_heads < 1 || config.kv_heads < 1 || config.query_heads % config.kv_heads != 0) {
    return fail(ErrorCode::corrupt_file, "{0} query heads do not share {1} key/value heads evenly",
                {config.query_heads, config.kv_heads});
  }
  if (config.head_dim < 8 || config.head_dim % 8 != 0 || config.head_dim > kMaxHeadDim) {
    return fail(ErrorCode::unsupported,
                "heads of {0} elements; supported are multiples of 8 to {1}",
                {config.head_dim, kMaxHeadDim});
  }
  if (config.rope_dim < 2 || config.rope_dim % 2 != 0 || config.rope_dim > config.head_dim) {
    return fail(ErrorCode::corrupt_file, "rotary positions over {0} of {1} elements",
                {config.rope_dim, config.head_dim});
  }
  if (!(config.rope_base > 0) || !std::isfinite(config.rope_base) || !(config.norm_epsilon >= 0) ||
      !std::isfinite(config.norm_epsilon)) {
    return fail(ErrorCode::corrupt_file,
                "the rope base or the norm's epsilon is not a usable number");
  }
  if (Status status = check_limits(config); !status) return status;
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    const LlamaLayerConfig& layer = config.layers[i];
    if (layer.window_tokens < 0 || layer.donor >= static_cast<int>(i)) {
      return fail(ErrorCode::invalid_argument, "layer {0} with window {1} and donor {2}",
                  {static_cast<std::int64_t>(i), layer.window_tokens, layer.donor});
    }
  }
  return {};
}

ModelInfo llama_info(const LlamaConfig& config) {
  ModelInfo info;
  info.architecture = "llama";
  info.name = config.name;
  info.layers = static_cast<int>(config.layers.size());
  info.dim = config.dim;
  info.hidden = config.hidden;
  info.query_heads = config.query_heads;
  info.kv_heads = config.kv_heads;
  info.head_dim = config.head_dim;
  info.vocabulary = config.vocabulary;
  info.context_tokens = config.context_tokens;
  info.parameters = count_llama_weights(config);
  return info;
}

std::vector<LayerSpec> llama_cache_layers(const LlamaConfig& config, Format format) {
  std::vector<LayerSpec> layers;
  for (const LlamaLayerConfig& layer : config.layers) {
    layers.push_back({.kv_heads = config.kv_heads,
                      .key_dim = config.head_dim,
                      .value_dim = config.head_dim,
                      .format = format,
                      .window_tokens = layer.window_tokens,
                      .donor = layer.donor});
  }
  return layers;
}

Result<ModelOutline> outline_llama(const GgufFile& file) {
  const Result<LlamaConfig> config = read_llama_config(file);
  if (!config) return tl::unexpected<Error>(config.error());
  return outline_llama(*config);
}

Result<ModelOutline> outline_llama(const LlamaConfig& config) {
  if (Status status = check_llama_config(config); !status) {
    return tl::unexpected<Error>(status.error());
  }
  return ModelOutline{llama_info(config), llama_cache_layers(config, Format())};
}

}  // namespace pagekv::inline v0::engine
