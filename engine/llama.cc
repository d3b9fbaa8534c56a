#include "engine/llama.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/gguf.h"
#include "engine/ops.h"

namespace pagekv::inline v0::engine {
namespace {

class LlamaModel final : public Model {
 public:
  LlamaModel(LlamaConfig config, LlamaWeights weights, std::string fingerprint)
      : config_(std::move(config)),
        weights_(std::move(weights)),
        rope_(config_.rope_pairs, config_.rope_dim, config_.rope_base),
        info_(llama_info(config_)) {
    info_.fingerprint = std::move(fingerprint);
    info_.weight_bytes = weights_.embedding.bytes();
    if (!config_.tied_output) info_.weight_bytes += weights_.output.bytes();
    for (const LlamaLayer& layer : weights_.layers) {
      info_.weight_bytes += layer.qkv.bytes() + layer.attention_output.bytes() +
                            layer.gate_up.bytes() + layer.down.bytes();
    }
  }

  const ModelInfo& info() const override { return info_; }

  std::vector<LayerSpec> cache_layers(Format format) const override {
    return llama_cache_layers(config_, format);
  }

  Result<std::unique_ptr<Runner>> make_runner(const Store& store,
                                              Arithmetic arithmetic) const override;

  const LlamaConfig& config() const { return config_; }
  const LlamaWeights& weights() const { return weights_; }
  const Rope& rope() const { return rope_; }

 private:
  LlamaConfig config_;
  LlamaWeights weights_;
  Rope rope_;
  ModelInfo info_;
};

class LlamaRunner final : public Runner {
 public:
  LlamaRunner(const LlamaModel& model, Store store, Arithmetic arithmetic)
      : model_(model),
        config_(model.config()),
        store_(std::move(store)),
        executor_(store_.device().executor()),
        arithmetic_(arithmetic),
        q_width_(std::int64_t{config_.query_heads} * config_.head_dim),
        kv_width_(std::int64_t{config_.kv_heads} * config_.head_dim),
        plans_(static_cast<std::size_t>(store_.layout().group_count())) {}

  Status forward(Step& step, const ForwardRows& rows, std::span<float> logits) override {
    Status status = begin(step, rows, logits);
    if (status) status = plan_reads(step);
    for (int layer = 0; status && layer < static_cast<int>(config_.layers.size()); ++layer) {
      status = attend(step, layer);
      if (status) feed_forward(layer);
    }
    if (status) write_logits(rows, logits);
    return status;
  }

 private:
  Status begin(const Step& step, const ForwardRows& rows, std::span<const float> logits);
  Status set_positions(const Step& step);
  Status plan_reads(const Step& step);
  Status attend(Step& step, int layer);
  void feed_forward(int layer);
  void write_logits(const ForwardRows& rows, std::span<float> logits);
  void rotate_rows(bool with_keys, std::int64_t width);

  const LlamaModel& model_;
  const LlamaConfig& config_;
  Store store_;
  Executor& executor_;
  Arithmetic arithmetic_;
  std::int64_t q_width_;
  std::int64_t kv_width_;

  std::vector<Plan> plans_;       // one per layer group
  std::vector<QueryRows> views_;  // of the step, for the plans
  std::int64_t rows_ = 0;
  // Activations, all [row, ...] and grown to the largest batch seen.
  std::vector<float> turns_;      // of each row's position
  std::vector<float> hidden_;     // [dim]
  std::vector<float> normed_;     // [dim]
  std::vector<float> qkv_;        // [q_width | kv_width | kv_width]
  std::vector<float> attended_;   // [q_width]
  std::vector<float> projected_;  // [dim]
  std::vector<float> gate_up_;    // [2, hidden]
  std::vector<float> gated_;      // [hidden]
};

Status LlamaRunner::begin(const Step& step, const ForwardRows& rows,
                          std::span<const float> logits) {
  rows_ = step.rows();
  const auto wanted = static_cast<std::int64_t>(rows.logit_rows.size());
  if (static_cast<std::int64_t>(rows.tokens.size()) != rows_ ||
      static_cast<std::int64_t>(logits.size()) != wanted * config_.vocabulary) {
    return fail(ErrorCode::invalid_argument,
                "{0} tokens and {1} logits for a step of {2} rows and {3} wanted ones",
                {static_cast<std::int64_t>(rows.tokens.size()),
                 static_cast<std::int64_t>(logits.size()), rows_, wanted});
  }
  for (const std::int64_t row : rows.logit_rows) {
    if (row < 0 || row >= rows_) {
      return fail(ErrorCode::invalid_argument, "logits of row {0} of {1}", {row, rows_});
    }
  }
  const auto count = static_cast<std::size_t>(rows_);
  const auto grow = [count](std::vector<float>& buffer, std::int64_t width) {
    buffer.resize(std::max(buffer.size(), count * static_cast<std::size_t>(width)));
  };
  grow(turns_, model_.rope().turn_floats());
  grow(hidden_, config_.dim);
  grow(normed_, config_.dim);
  grow(qkv_, q_width_ + 2 * kv_width_);
  grow(attended_, q_width_);
  grow(projected_, config_.dim);
  grow(gate_up_, 2 * std::int64_t{config_.hidden});
  grow(gated_, config_.hidden);
  for (std::size_t row = 0; row < count; ++row) {
    const Token token = rows.tokens[row];
    if (token < 0 || token >= config_.vocabulary) {
      return fail(ErrorCode::invalid_argument, "token {0}; the vocabulary has {1}",
                  {token, config_.vocabulary});
    }
    model_.weights().embedding.unpack_row(
        token, hidden_.data() + row * static_cast<std::size_t>(config_.dim));
  }
  return set_positions(step);
}

// A row's place in its sequence is its position.
Status LlamaRunner::set_positions(const Step& step) {
  float* turns = turns_.data();
  for (int i = 0; i < step.size(); ++i) {
    const std::int64_t end = step.view(i).length();
    if (end > config_.context_tokens) {
      return fail(ErrorCode::too_long, "{0} tokens; the model has a context of {1}",
                  {end, config_.context_tokens});
    }
    for (std::int64_t position = end - step.tokens(i); position < end; ++position) {
      model_.rope().turns(position, turns);
      turns += model_.rope().turn_floats();
    }
  }
  return {};
}

Status LlamaRunner::plan_reads(const Step& step) {
  views_.clear();
  for (int i = 0; i < step.size(); ++i) {
    views_.push_back({.view = step.view(i), .rows = step.tokens(i)});
  }
  for (int group = 0; group < store_.layout().group_count(); ++group) {
    const AttendSpec spec = {
        .group = group, .query_heads = config_.query_heads, .arithmetic = arithmetic_};
    Plan& plan = plans_[static_cast<std::size_t>(group)];
    if (plan.valid()) {
      if (Status status = store_.replan(plan, views_, spec); !status) return status;
      continue;
    }
    Result<Plan> made = store_.plan(views_, spec);
    if (!made) return tl::unexpected<Error>(made.error());
    plan = std::move(*made);
  }
  return {};
}

void LlamaRunner::rotate_rows(bool with_keys, std::int64_t width) {
  // Keys follow the queries in a row, so both turn in one run of heads.
  const std::int64_t heads = config_.query_heads + (with_keys ? config_.kv_heads : 0);
  executor_.parallel_for(rows_, [&](int, std::int64_t row) {
    model_.rope().rotate(qkv_.data() + row * width, heads, config_.head_dim,
                         turns_.data() + row * model_.rope().turn_floats());
  });
}

Status LlamaRunner::attend(Step& step, int layer) {
  const LlamaLayer& weights = model_.weights().layers[static_cast<std::size_t>(layer)];
  const bool has_donor = config_.layers[static_cast<std::size_t>(layer)].donor >= 0;
  rms_norm(executor_, hidden_.data(), rows_, config_.dim, weights.attention_norm.data(),
           config_.norm_epsilon, normed_.data());
  const std::int64_t width = weights.qkv.outputs();
  matmul(executor_, weights.qkv, normed_.data(), rows_, qkv_.data());
  rotate_rows(!has_donor, width);
  const auto part = [&](std::int64_t offset) {
    return Rows{.data = qkv_.data() + offset,
                .dtype = DType::f32,
                .token_stride = width,
                .head_stride = config_.head_dim};
  };
  if (!has_donor) {
    const Status status = step.write(layer, part(q_width_), part(q_width_ + kv_width_));
    if (!status) return status;
  }
  Plan& plan = plans_[static_cast<std::size_t>(store_.layout().layer(layer).group)];
  const AttendArgs args = {.q = part(0),
                           .out = MutableRows::packed(attended_.data(), DType::f32,
                                                      config_.query_heads, config_.head_dim)};
  if (Status status = plan.run(layer, args); !status) return status;
  matmul(executor_, weights.attention_output, attended_.data(), rows_, projected_.data());
  add_rows(executor_, projected_.data(), rows_, config_.dim, hidden_.data());
  return {};
}

void LlamaRunner::feed_forward(int layer) {
  const LlamaLayer& weights = model_.weights().layers[static_cast<std::size_t>(layer)];
  rms_norm(executor_, hidden_.data(), rows_, config_.dim, weights.feed_forward_norm.data(),
           config_.norm_epsilon, normed_.data());
  matmul(executor_, weights.gate_up, normed_.data(), rows_, gate_up_.data());
  silu_multiply(executor_, gate_up_.data(), rows_, config_.hidden, gated_.data());
  matmul(executor_, weights.down, gated_.data(), rows_, projected_.data());
  add_rows(executor_, projected_.data(), rows_, config_.dim, hidden_.data());
}

void LlamaRunner::write_logits(const ForwardRows& rows, std::span<float> logits) {
  const auto wanted = static_cast<std::int64_t>(rows.logit_rows.size());
  for (std::int64_t i = 0; i < wanted; ++i) {
    std::memcpy(projected_.data() + i * config_.dim,
                hidden_.data() + rows.logit_rows[static_cast<std::size_t>(i)] * config_.dim,
                static_cast<std::size_t>(config_.dim) * sizeof(float));
  }
  rms_norm(executor_, projected_.data(), wanted, config_.dim, model_.weights().output_norm.data(),
           config_.norm_epsilon, normed_.data());
  matmul(executor_, model_.weights().output_matrix(config_), normed_.data(), wanted, logits.data());
}

Result<std::unique_ptr<Runner>> LlamaModel::make_runner(const Store& store,
                                                        Arithmetic arithmetic) const {
  const CacheLayout& layout = store.layout();
  bool matches = layout.layer_count() == static_cast<int>(config_.layers.size());
  for (int i = 0; matches && i < layout.layer_count(); ++i) {
    const LayerSpec& spec = layout.layer(i).spec;
    const LlamaLayerConfig& layer = config_.layers[static_cast<std::size_t>(i)];
    matches = spec.kv_heads == config_.kv_heads && spec.key_dim == config_.head_dim &&
              spec.value_dim == config_.head_dim && spec.window_tokens == layer.window_tokens &&
              spec.donor == layer.donor;
  }
  if (!matches) {
    return fail(ErrorCode::invalid_argument, "the store's layers are not those of the model");
  }
  return std::make_unique<LlamaRunner>(*this, store, arithmetic);
}

// Every tensor must have its place: one that has none (a bias, an expert) would change the result.
Status refuse_unused_tensors(const GgufFile& file, const LlamaConfig& config) {
  static constexpr const char* kOfLayer[] = {
      "attn_norm.weight", "attn_q.weight",      "attn_k.weight",
      "attn_v.weight",    "attn_output.weight", "ffn_norm.weight",
      "ffn_gate.weight",  "ffn_up.weight",      "ffn_down.weight"};
  std::vector<std::string> known = {"token_embd.weight", "output_norm.weight", "output.weight"};
  for (std::size_t i = 0; i < config.layers.size(); ++i) {
    for (const char* name : kOfLayer) known.push_back("blk." + std::to_string(i) + "." + name);
  }
  std::sort(known.begin(), known.end());
  for (const TensorView& tensor : file.tensors()) {
    if (!std::binary_search(known.begin(), known.end(), tensor.name)) {
      return fail(ErrorCode::unsupported,
                  "tensor {s} is not part of a llama model as this engine knows it", {},
                  tensor.name);
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Model>> make_llama(LlamaConfig config, const TensorLookup& lookup,
                                          const LoadOptions& options) {
  if (Status status = check_llama_config(config); !status) {
    return tl::unexpected<Error>(status.error());
  }
  Result<LlamaWeights> weights = load_llama_weights(config, lookup, options);
  if (!weights) return tl::unexpected<Error>(weights.error());
  std::string fingerprint = options.fingerprint;
  if (!fingerprint.empty()) {
    fingerprint += options.weights ? " as " + std::string(name(*options.weights)) : " as it is";
  }
  return std::make_unique<LlamaModel>(std::move(config), std::move(*weights),
                                      std::move(fingerprint));
}

Result<std::unique_ptr<Model>> make_llama(const GgufFile& file, const LoadOptions& options) {
  Result<LlamaConfig> config = read_llama_config(file);
  if (!config) return tl::unexpected<Error>(config.error());
  if (Status status = refuse_unused_tensors(file, *config); !status) {
    return tl::unexpected<Error>(status.error());
  }
  return make_llama(
      std::move(*config), [&file](std::string_view name) { return file.readable_tensor(name); },
      options);
}

}  // namespace pagekv::inline v0::engine
