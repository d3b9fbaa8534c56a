// walk(): touches everything a parsed GGUF file hands out, so that sanitizers see any bad view.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/gguf.h"

namespace pagekv::testing {

// Returns a sum over all bytes read, so that nothing is optimised away.
inline std::uint64_t walk(const engine::GgufFile& file) {
  std::uint64_t sum = 0;
  const auto add_text = [&sum](std::string_view text) {
    for (const char c : text) sum += static_cast<unsigned char>(c);
  };
  for (const engine::GgufEntry& entry : file.metadata()) {
    add_text(entry.key);
    add_text(name(entry.type));
    sum += file.integer(entry.key).has_value();
    sum += file.number(entry.key).has_value();
    sum += file.boolean(entry.key).has_value();
    if (const auto text = file.string(entry.key)) add_text(*text);
    if (const auto texts = file.strings(entry.key)) {
      for (const std::string_view text : *texts) add_text(text);
    }
    if (const auto values = file.integers(entry.key)) {
      for (const std::int64_t value : *values) sum += static_cast<std::uint64_t>(value);
    }
    if (const auto values = file.numbers(entry.key)) sum += values->size();
  }
  for (const engine::TensorView& tensor : file.tensors()) {
    for (const std::byte byte : tensor.data) sum += std::to_integer<std::uint64_t>(byte);
    if (!file.readable_tensor(tensor.name)) continue;
    std::vector<float> wide(static_cast<std::size_t>(tensor.columns()));
    for (const std::int64_t row : {std::int64_t{0}, tensor.rows() - 1}) {
      sum += widen(tensor, row, 1, wide).has_value();
    }
  }
  return sum;
}

}  // namespace pagekv::testing
