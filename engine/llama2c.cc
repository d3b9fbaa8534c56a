#include "engine/llama2c.h"

#include <algorithm>
#include <array>
#include <string>

#include "engine/byte_reader.h"

namespace pagekv::inline v0::engine {
namespace {

Status read_header(ByteReader& reader, Llama2cModel& model) {
  reader.set_subject("the header", -1);
  const std::array<std::pair<const char*, std::int64_t*>, 7> fields = {{
      {"dim", &model.dim},
      {"hidden dim", &model.hidden_dim},
      {"number of layers", &model.layers},
      {"number of heads", &model.heads},
      {"number of kv heads", &model.kv_heads},
      {"vocabulary size", &model.vocabulary_size},
      {"context length", &model.context_tokens},
  }};
  for (const auto& [what, field] : fields) {
    const std::int64_t at = reader.offset();
    const auto value = reader.read<std::int32_t>(what);
    if (!value) return tl::unexpected(value.error());
    *field = *value;
    if (field == &model.vocabulary_size && *value < 0) {
      model.separate_classifier = true;
      *field = -*field;
    }
    if (*field <= 0) {
      return fail(ErrorCode::corrupt_file, "no llama2.c checkpoint: the {s} at byte {0} is {1}",
                  {at, *value}, what);
    }
  }
  if (model.dim % model.heads != 0 || model.heads % model.kv_heads != 0 ||
      model.head_dim() % 2 != 0) {
    return fail(ErrorCode::corrupt_file,
                "no llama2.c checkpoint: dim {0}, {1} heads, {2} kv heads do not divide into heads "
                "of an even size",
                {model.dim, model.heads, model.kv_heads});
  }
  return {};
}

// Takes the weights one after the other.
class WeightReader {
 public:
  WeightReader(ByteReader& reader, Llama2cModel& model) : reader_(reader), model_(model) {}

  Status read(std::string name, std::vector<std::int64_t> shape) {
    TensorView tensor{std::move(name), TensorType::f32, std::move(shape), {}};
    reader_.set_subject("tensor", -1, tensor.name);
    // Factors are below 2^31, so this product of two cannot overflow.
    const std::int64_t elements = tensor.columns() * tensor.rows();
    const auto bytes = take(elements);
    if (!bytes) return tl::unexpected(bytes.error());
    tensor.data = *bytes;
    model_.tensors.push_back(std::move(tensor));
    return {};
  }

  Status read_layers(std::string_view name, const std::vector<std::int64_t>& shape) {
    for (std::int64_t layer = 0; layer < model_.layers; ++layer) {
      std::string full = "blk." + std::to_string(layer) + "." + std::string(name) + ".weight";
      if (auto status = read(std::move(full), shape); !status) return status;
    }
    return {};
  }

  Status skip_rope_tables() {
    reader_.set_subject("the RoPE tables", -1);
    const std::int64_t elements = model_.context_tokens * model_.head_dim();  // both together
    const auto bytes = take(elements);
    if (!bytes) return tl::unexpected(bytes.error());
    return {};
  }

 private:
  Result<std::span<const std::byte>> take(std::int64_t elements) {
    // In elements, for a product of two i32 times four does not fit 64 bits with a sign.
    if (elements > reader_.remaining() / 4) {
      return fail(ErrorCode::corrupt_file,
                  "truncated at byte {0}: {s} needs {1} elements, {2} bytes left",
                  {reader_.offset(), elements, reader_.remaining()}, reader_.subject());
    }
    return reader_.take(static_cast<std::uint64_t>(elements) * 4, "data");
  }

  ByteReader& reader_;
  Llama2cModel& model_;
};

Status read_weights(WeightReader& weights, const Llama2cModel& model) {
  const std::int64_t dim = model.dim;
  const std::int64_t hidden = model.hidden_dim;
  const std::int64_t kv_dim = model.head_dim() * model.kv_heads;
  struct PerLayer {
    const char* name;
    std::vector<std::int64_t> shape;
  };
  const std::vector<PerLayer> per_layer = {
      {"attn_norm", {dim}},        {"attn_q", {dim, dim}},      {"attn_k", {dim, kv_dim}},
      {"attn_v", {dim, kv_dim}},   {"attn_output", {dim, dim}}, {"ffn_norm", {dim}},
      {"ffn_gate", {dim, hidden}}, {"ffn_down", {hidden, dim}}, {"ffn_up", {dim, hidden}},
  };
  Status status = weights.read("token_embd.weight", {dim, model.vocabulary_size});
  for (const PerLayer& weight : per_layer) {
    if (status) status = weights.read_layers(weight.name, weight.shape);
  }
  if (status) status = weights.read("output_norm.weight", {dim});
  if (status) status = weights.skip_rope_tables();
  if (status && model.separate_classifier) {
    status = weights.read("output.weight", {dim, model.vocabulary_size});
  }
  return status;
}

}  // namespace

const TensorView* Llama2cModel::find_tensor(std::string_view name) const {
  const auto found = std::find_if(tensors.begin(), tensors.end(),
                                  [name](const TensorView& tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Result<Llama2cModel> parse_llama2c(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  Llama2cModel model;
  if (auto status = read_header(reader, model); !status) return tl::unexpected(status.error());
  WeightReader weights(reader, model);
  if (auto status = read_weights(weights, model); !status) return tl::unexpected(status.error());
  if (reader.remaining() != 0) {
    return fail(ErrorCode::corrupt_file,
                "{0} bytes behind the weights, at byte {1}: the header is not of this file",
                {reader.remaining(), reader.offset()});
  }
  return model;
}

}  // namespace pagekv::inline v0::engine
