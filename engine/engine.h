// From a file's name to a model that can talk: what the tools and examples start with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/chat.h"
#include "engine/model.h"
#include "engine/tokenizer.h"
#include "pagekv/device.h"
#include "pagekv/store.h"

namespace pagekv::inline v0::engine {

struct OpenModel {
  std::unique_ptr<Model> model;
  std::unique_ptr<Tokenizer> tokenizer;
  Result<ChatTemplate> chat;  // the error says why the model cannot chat
};

struct OpenOptions {
  LoadOptions load = {};
  // Of a llama2.c checkpoint; empty: tok512.bin or tokenizer.bin in the checkpoint's folder.
  std::string tokenizer_path = {};
};

// Reads a GGUF file, or a llama2.c checkpoint where the name ends in ".bin". The file is not needed
// afterwards. Errors: io_error, out_of_memory, and those of load_model() and make_tokenizer().
Result<OpenModel> open_model(const std::string& path, const OpenOptions& options = {});

// The tokenizer alone; `tokenizer_path` as in OpenOptions. Errors: as open_model().
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::string& path,
                                                  const std::string& tokenizer_path = {});

// What the model is, without loading weights. Errors: as open_model().
Result<ModelOutline> outline_model(const std::string& path);

// The layers with these formats: `base`, but for those that `overrides` names, as
// parse_layer_formats() reads it. A layer that reads a donor's pages has its donor's format.
// Errors: those of parse_layer_formats(), invalid_argument (overrides that give such a layer
// another format than its donor's).
Result<std::vector<LayerSpec>> with_formats(std::vector<LayerSpec> layers, const Format& base,
                                            std::string_view overrides);

struct StoreSettings {
  Format format = {};
  std::string layer_formats = {};  // overrides, as with_formats() takes them
  std::int64_t page_tokens = kDefaultPageTokens;
  // Of all pages; empty: 1 GiB, or what one sequence needs where that is more.
  std::optional<std::int64_t> cap_bytes = {};
  std::int64_t context_tokens = 0;  // longest sequence; 0: the model's context
};

// A store with the model's layers, arranged as the device likes. Errors: invalid_argument (more
// context than the model has), and those of with_formats(), CacheLayout::make() and Store::make().
Result<Store> make_model_store(const Model& model, const Device& device,
                               const StoreSettings& settings);

}  // namespace pagekv::inline v0::engine
