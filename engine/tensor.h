// Weights as model files carry them: TensorView, and widening its rows to f32.
//
// A TensorView names bytes that somebody else owns (a mapped file). Both loaders, GGUF and
// llama2.c, deliver their weights in this form. Value types, no state: safe on any thread.
//
// Block formats (a row is a run of blocks; d and m are f16; q are the 32 quants of a block):
//   Q8_0  34 bytes: d, then 32 signed bytes q             value = d * q
//   Q4_0  18 bytes: d, then 16 bytes of nibbles           value = d * (q - 8)
//   Q4_1  20 bytes: d, m, then 16 bytes of nibbles        value = d * q + m
// Nibble bytes hold element i in the low and element i + 16 in the high half of byte i.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

// By its number in GGUF files. The named ones are those whose values can be read.
enum class TensorType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q8_0 = 8,
  bf16 = 30,
};

struct TensorTypeInfo {
  TensorType type;
  std::string_view name;        // "Q4_1"
  std::int64_t block_elements;  // elements of a row come in blocks of so many ...
  std::int64_t block_bytes;     // ... that take so many bytes
  bool readable;
};

// Null for a number that no known GGUF file uses.
const TensorTypeInfo* find_tensor_type(std::uint32_t id);
// REQUIRES: a type that find_tensor_type() knows.
const TensorTypeInfo& tensor_type_info(TensorType type);

struct TensorView {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;  // fastest first: shape[0] elements make a row; at least one
  std::span<const std::byte> data;  // rows one after the other, exactly as many as the shape says

  std::int64_t columns() const { return shape.at(0); }
  std::int64_t rows() const;  // product of shape[1], shape[2], ...
  std::int64_t row_bytes() const;
};

// Widens rows [first_row, first_row + rows) into `out`, rows * columns() values. Errors:
// unsupported (the type; the text lists the readable ones), invalid_argument (rows out of range,
// `out` of another size, data that does not have the size the shape says).
Status widen(const TensorView& tensor, std::int64_t first_row, std::int64_t rows,
             std::span<float> out);

// ok, or the unsupported error of widen(): to refuse a model before work begins.
Status check_readable(const TensorView& tensor);

}  // namespace pagekv::inline v0::engine
