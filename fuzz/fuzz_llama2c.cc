// Any bytes as a llama2.c checkpoint, and as a tokenizer file followed by a text.
//
// The first byte chooses: 0 is a checkpoint; n > 0 is a tokenizer file of 258 + n tokens whose last
// 64 bytes are the text.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "engine/llama2c.h"
#include "engine/llama2c_tokenizer.h"
#include "engine/unicode.h"
#include "fuzz/require.h"

namespace {

using pagekv::fuzz::require;
namespace engine = pagekv::engine;

void checkpoint(std::span<const std::byte> bytes) {
  const auto model = engine::parse_llama2c(bytes);
  if (!model) {
    require(!model.error().message().empty(), "an error has a text");
    return;
  }
  for (const engine::TensorView& tensor : model->tensors) {
    std::vector<float> row(static_cast<std::size_t>(tensor.columns()));
    require(widen(tensor, tensor.rows() - 1, 1, row).has_value(), "a tensor can be read");
  }
}

void tokenizer(std::span<const std::byte> bytes, std::int64_t vocabulary_size) {
  const std::size_t text_bytes = std::min<std::size_t>(bytes.size(), 64);
  const auto text_span = bytes.last(text_bytes);
  const std::string text(reinterpret_cast<const char*>(text_span.data()), text_bytes);
  const auto made =
      engine::Llama2cTokenizer::parse(bytes.first(bytes.size() - text_bytes), vocabulary_size);
  if (!made) return;
  const auto tokens = (*made)->encode(text);
  require(tokens.has_value() == engine::check_utf8(text).has_value(), "valid text can be encoded");
  if (tokens) require((*made)->decode(*tokens) == text, "text decodes to itself");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  if (data[0] == 0) {
    checkpoint(bytes);
  } else {
    tokenizer(bytes, 258 + data[0]);
  }
  return 0;
}
