// Any bytes as a GGUF file: refused with a reason, or every part of it can be read.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/chat.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "fuzz/require.h"
#include "pagekv/layout.h"
#include "tests/engine/gguf_walk.h"

namespace {

using pagekv::engine::GgufFile;
using pagekv::fuzz::require;

void check_tensors(const GgufFile& file, std::span<const std::byte> bytes) {
  std::size_t total = 0;
  for (const auto& tensor : file.tensors()) {
    require(tensor.data.data() >= bytes.data() &&
                tensor.data.data() + tensor.data.size() <= bytes.data() + bytes.size(),
            "a tensor lies inside the file");
    require(static_cast<std::int64_t>(tensor.data.size()) == tensor.rows() * tensor.row_bytes(),
            "a tensor has the bytes of its shape");
    require(file.find_tensor(tensor.name) == &tensor, "a tensor is found by its name");
    total += tensor.data.size();
  }
  require(total <= bytes.size(), "tensors do not overlap");
}

void check_chat(std::string_view source) {
  const auto chat = pagekv::engine::ChatTemplate::detect(source);
  if (!chat) return;
  require(source.find(chat->default_system()) != std::string_view::npos,
          "a default system prompt stands in the template");
  const std::vector<pagekv::engine::ChatMessage> messages = {{"user", "Hi"}};
  require(chat->render_text(messages).ends_with("Hi<|im_end|>\n<|im_start|>assistant\n"),
          "a rendered chat ends with the opening of the answer");
}

// What `pagekv info` does with a file.
void check_outline(const GgufFile& file) {
  const auto outline = pagekv::engine::outline_model(file);
  if (!outline) {
    require(!outline.error().message().empty(), "an error has a text");
    return;
  }
  const pagekv::engine::ModelInfo& info = outline->info;
  require(info.parameters > info.dim, "a model has weights");
  require(outline->cache_layers.size() == static_cast<std::size_t>(info.layers),
          "every layer has its pages");
  const auto layout = pagekv::CacheLayout::make({.layers = outline->cache_layers});
  require(!layout || layout->bytes_per_token() > 0, "a token takes room");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = GgufFile::parse(bytes);
  if (!file) {
    require(!file.error().message().empty(), "an error has a text");
    return 0;
  }
  check_tensors(*file, bytes);
  for (const auto& entry : file->metadata()) {
    require(file->find(entry.key) == &entry, "a key is found by its name");
  }
  pagekv::testing::walk(*file);
  check_outline(*file);
  if (const auto source = file->string("tokenizer.chat_template")) check_chat(*source);
  return 0;
}
