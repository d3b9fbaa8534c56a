#include "engine/engine.h"

#include <algorithm>
#include <filesystem>
#include <new>
#include <utility>

#include "engine/fingerprint.h"
#include "engine/gguf.h"
#include "engine/llama.h"
#include "engine/llama2c.h"
#include "engine/llama2c_tokenizer.h"
#include "engine/mapped_file.h"

namespace pagekv::inline v0::engine {
namespace {

constexpr std::int64_t kDefaultCapBytes = std::int64_t{1} << 30;

Result<ChatTemplate> find_chat_template(const GgufFile& file) {
  const Result<std::string_view> source = file.string("tokenizer.chat_template");
  if (!source) return tl::unexpected<Error>(source.error());
  return ChatTemplate::detect(*source);
}

Result<OpenModel> open_gguf(const MappedFile& mapped, const OpenOptions& options) {
  const Result<GgufFile> file = GgufFile::parse(mapped.bytes());
  if (!file) return tl::unexpected<Error>(file.error());
  Result<std::unique_ptr<Model>> model = load_model(*file, options.load);
  if (!model) return tl::unexpected<Error>(model.error());
  Result<std::unique_ptr<Tokenizer>> tokenizer = make_tokenizer(*file);
  if (!tokenizer) return tl::unexpected<Error>(tokenizer.error());
  if ((*tokenizer)->vocabulary_size() > (*model)->info().vocabulary) {
    return fail(ErrorCode::corrupt_file, "a tokenizer of {0} tokens for a model of {1}",
                {(*tokenizer)->vocabulary_size(), (*model)->info().vocabulary});
  }
  return OpenModel{std::move(*model), std::move(*tokenizer), find_chat_template(*file)};
}

LlamaConfig llama_config(const Llama2cModel& file) {
  LlamaConfig config;
  config.name = "llama2.c";
  config.dim = static_cast<int>(file.dim);
  config.hidden = static_cast<int>(file.hidden_dim);
  config.query_heads = static_cast<int>(file.heads);
  config.kv_heads = static_cast<int>(file.kv_heads);
  config.head_dim = static_cast<int>(file.head_dim());
  config.vocabulary = static_cast<int>(file.vocabulary_size);
  config.context_tokens = file.context_tokens;
  config.rope_dim = config.head_dim;
  config.tied_output = !file.separate_classifier;
  config.layers.resize(static_cast<std::size_t>(file.layers));
  return config;
}

Result<std::unique_ptr<Tokenizer>> open_llama2c_tokenizer(const std::string& model_path,
                                                          std::string path,
                                                          std::int64_t vocabulary) {
  if (path.empty()) {
    const std::filesystem::path folder = std::filesystem::path(model_path).parent_path();
    std::error_code ignored;
    path = (folder / "tok512.bin").string();
    if (!std::filesystem::exists(path, ignored)) path = (folder / "tokenizer.bin").string();
  }
  const Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped) return tl::unexpected<Error>(mapped.error());
  return Llama2cTokenizer::parse(mapped->bytes(), vocabulary);
}

Result<OpenModel> open_llama2c(const MappedFile& mapped, const OpenOptions& options) {
  const Result<Llama2cModel> file = parse_llama2c(mapped.bytes());
  if (!file) return tl::unexpected<Error>(file.error());
  const auto lookup = [&file](std::string_view name) -> Result<TensorView> {
    if (const TensorView* tensor = file->find_tensor(name)) return *tensor;
    return fail(ErrorCode::corrupt_file, "tensor {s} is missing", {}, std::string(name));
  };
  Result<std::unique_ptr<Model>> model = make_llama(llama_config(*file), lookup, options.load);
  if (!model) return tl::unexpected<Error>(model.error());
  Result<std::unique_ptr<Tokenizer>> tokenizer =
      open_llama2c_tokenizer(mapped.path(), options.tokenizer_path, file->vocabulary_size);
  if (!tokenizer) return tl::unexpected<Error>(tokenizer.error());
  return OpenModel{std::move(*model), std::move(*tokenizer),
                   fail(ErrorCode::unsupported, "llama2.c checkpoints have no chat template")};
}

Result<std::unique_ptr<Tokenizer>> tokenizer_of_gguf(const MappedFile& mapped) {
  const Result<GgufFile> file = GgufFile::parse(mapped.bytes());
  if (!file) return tl::unexpected<Error>(file.error());
  return make_tokenizer(*file);
}

Result<ModelOutline> outline_gguf(const MappedFile& mapped) {
  const Result<GgufFile> file = GgufFile::parse(mapped.bytes());
  if (!file) return tl::unexpected<Error>(file.error());
  return outline_model(*file);
}

Result<ModelOutline> outline_llama2c(const MappedFile& mapped) {
  const Result<Llama2cModel> file = parse_llama2c(mapped.bytes());
  if (!file) return tl::unexpected<Error>(file.error());
  return outline_llama(llama_config(*file));
}

// Maps the file and calls one of the two with it. Memory that std containers are refused on the way
// is an error like any other.
template <typename Gguf, typename Llama2c>
auto with_file(const std::string& path, const Gguf& gguf, const Llama2c& llama2c)
    -> decltype(gguf(std::declval<const MappedFile&>())) {
  try {
    const Result<MappedFile> mapped = MappedFile::open(path);
    if (!mapped) return tl::unexpected<Error>(mapped.error());
    return path.ends_with(".bin") ? llama2c(*mapped) : gguf(*mapped);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "not enough memory to load {s}", {}, path);
  }
}

}  // namespace

Result<OpenModel> open_model(const std::string& path, const OpenOptions& options) {
  const auto with_fingerprint = [&options](const MappedFile& mapped) {
    OpenOptions more = options;
    more.load.fingerprint = fingerprint(mapped.bytes());
    return more;
  };
  return with_file(
      path, [&](const MappedFile& mapped) { return open_gguf(mapped, with_fingerprint(mapped)); },
      [&](const MappedFile& mapped) { return open_llama2c(mapped, with_fingerprint(mapped)); });
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path,
                                                  const std::string& tokenizer_path) {
  const auto of_llama2c = [&](const MappedFile& mapped) -> Result<std::unique_ptr<Tokenizer>> {
    const Result<Llama2cModel> file = parse_llama2c(mapped.bytes());
    if (!file) return tl::unexpected<Error>(file.error());
    return open_llama2c_tokenizer(path, tokenizer_path, file->vocabulary_size);
  };
  return with_file(path, tokenizer_of_gguf, of_llama2c);
}

Result<ModelOutline> outline_model(const std::string& path) {
  return with_file(path, outline_gguf, outline_llama2c);
}

Result<std::vector<LayerSpec>> with_formats(std::vector<LayerSpec> layers, const Format& base,
                                            std::string_view overrides) {
  const int count = static_cast<int>(layers.size());
  const auto formats = parse_layer_formats(base, overrides, count);
  if (!formats) return tl::unexpected<Error>(formats.error());
  // A layer that is not named follows any base, also one of two that are not equal.
  const Format f32 = {VectorCodec::dense(DType::f32), VectorCodec::dense(DType::f32)};
  const auto others = parse_layer_formats(base == f32 ? Format() : f32, overrides, count);
  if (!others) return tl::unexpected<Error>(others.error());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].format = (*formats)[i];
    if (layers[i].donor < 0) continue;
    const Format& stored = layers[static_cast<std::size_t>(layers[i].donor)].format;
    const bool named = (*formats)[i] == (*others)[i];
    if (named && layers[i].format != stored) {
      return fail(ErrorCode::invalid_argument,
                  "layer {0} reads the pages of layer {1}, which are {s}; it has no format of its "
                  "own",
                  {static_cast<std::int64_t>(i), layers[i].donor}, stored.name());
    }
    layers[i].format = stored;
  }
  return layers;
}

Result<Store> make_model_store(const Model& model, const Device& device,
                               const StoreSettings& settings) {
  Result<std::vector<LayerSpec>> layers =
      with_formats(model.cache_layers(settings.format), settings.format, settings.layer_formats);
  if (!layers) return tl::unexpected<Error>(layers.error());
  Result<CacheLayout> layout = CacheLayout::make({.layers = std::move(*layers),
                                                  .page_tokens = settings.page_tokens,
                                                  .arrangement = device.suggested_arrangement()});
  if (!layout) return tl::unexpected<Error>(layout.error());
  const std::int64_t limit = model.info().context_tokens;
  if (settings.context_tokens > limit) {
    return fail(ErrorCode::invalid_argument, "a context of {0} tokens; the model has {1}",
                {settings.context_tokens, limit});
  }
  const std::int64_t context = settings.context_tokens > 0 ? settings.context_tokens : limit;
  std::int64_t one_sequence = 0;
  for (int group = 0; group < layout->group_count(); ++group) {
    const std::int64_t pages = (context + settings.page_tokens - 1) / settings.page_tokens;
    one_sequence += pages * layout->group(group).page_bytes;
  }
  const std::int64_t cap = settings.cap_bytes.value_or(std::max(kDefaultCapBytes, one_sequence));
  return Store::make(std::move(*layout), device,
                     {.cap_bytes = cap, .max_sequence_tokens = context});
}

}  // namespace pagekv::inline v0::engine
