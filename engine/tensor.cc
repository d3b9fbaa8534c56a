#include "engine/tensor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/byte_reader.h"
#include "pagekv/dtype.h"

namespace pagekv::inline v0::engine {
namespace {

constexpr TensorTypeInfo known(std::uint32_t id, std::string_view type_name, std::int64_t elements,
                               std::int64_t bytes) {
  return {static_cast<TensorType>(id), type_name, elements, bytes, false};
}

// The formats that ggml has or had, with their block sizes: a file with a tensor we cannot read can
// still be checked, listed and refused by name.
constexpr std::array kTypes = {
    TensorTypeInfo{TensorType::f32, "F32", 1, 4, true},
    TensorTypeInfo{TensorType::f16, "F16", 1, 2, true},
    TensorTypeInfo{TensorType::bf16, "BF16", 1, 2, true},
    TensorTypeInfo{TensorType::q8_0, "Q8_0", 32, 34, true},
    TensorTypeInfo{TensorType::q4_0, "Q4_0", 32, 18, true},
    TensorTypeInfo{TensorType::q4_1, "Q4_1", 32, 20, true},
    known(6, "Q5_0", 32, 22),
    known(7, "Q5_1", 32, 24),
    known(9, "Q8_1", 32, 40),
    known(10, "Q2_K", 256, 84),
    known(11, "Q3_K", 256, 110),
    known(12, "Q4_K", 256, 144),
    known(13, "Q5_K", 256, 176),
    known(14, "Q6_K", 256, 210),
    known(15, "Q8_K", 256, 292),
    known(16, "IQ2_XXS", 256, 66),
    known(17, "IQ2_XS", 256, 74),
    known(18, "IQ3_XXS", 256, 98),
    known(19, "IQ1_S", 256, 50),
    known(20, "IQ4_NL", 32, 18),
    known(21, "IQ3_S", 256, 110),
    known(22, "IQ2_S", 256, 82),
    known(23, "IQ4_XS", 256, 136),
    known(24, "I8", 1, 1),
    known(25, "I16", 1, 2),
    known(26, "I32", 1, 4),
    known(27, "I64", 1, 8),
    known(28, "F64", 1, 8),
    known(29, "IQ1_M", 256, 56),
    known(34, "TQ1_0", 256, 54),
    known(35, "TQ2_0", 256, 66),
    known(39, "MXFP4", 32, 17),
    known(40, "NVFP4", 64, 36),
    known(41, "Q1_0", 128, 18),
};

constexpr std::int64_t kBlock = 32;  // elements of a Q8_0, Q4_0 or Q4_1 block

float load_f16(const std::byte* from) {
  return f32_from_f16(load<std::uint16_t>(from));
}

void widen_q8_0(const std::byte* block, float* out) {
  const float scale = load_f16(block);
  for (std::int64_t i = 0; i < kBlock; ++i) {
    out[i] = scale * static_cast<float>(load<std::int8_t>(block + 2 + i));
  }
}

void widen_q4_0(const std::byte* block, float* out) {
  const float scale = load_f16(block);
  for (std::int64_t i = 0; i < kBlock / 2; ++i) {
    const int pair = std::to_integer<int>(block[2 + i]);
    out[i] = scale * static_cast<float>((pair & 15) - 8);
    out[i + kBlock / 2] = scale * static_cast<float>((pair >> 4) - 8);
  }
}

void widen_q4_1(const std::byte* block, float* out) {
  const float scale = load_f16(block);
  const float offset = load_f16(block + 2);
  for (std::int64_t i = 0; i < kBlock / 2; ++i) {
    const int pair = std::to_integer<int>(block[4 + i]);
    out[i] = scale * static_cast<float>(pair & 15) + offset;
    out[i + kBlock / 2] = scale * static_cast<float>(pair >> 4) + offset;
  }
}

// One row of a readable type.
void widen_row(TensorType type, const std::byte* from, std::int64_t columns, float* out) {
  const auto each_block = [&](auto block_function) {
    for (std::int64_t at = 0; at < columns; at += kBlock) {
      block_function(from + at / kBlock * tensor_type_info(type).block_bytes, out + at);
    }
  };
  switch (type) {
    case TensorType::f32:
      std::memcpy(out, from, static_cast<std::size_t>(columns) * sizeof(float));
      return;
    case TensorType::f16:
      for (std::int64_t i = 0; i < columns; ++i) out[i] = load_f16(from + 2 * i);
      return;
    case TensorType::bf16:
      for (std::int64_t i = 0; i < columns; ++i) {
        out[i] = f32_from_bf16(load<std::uint16_t>(from + 2 * i));
      }
      return;
    case TensorType::q8_0: return each_block(widen_q8_0);
    case TensorType::q4_0: return each_block(widen_q4_0);
    case TensorType::q4_1: return each_block(widen_q4_1);
  }
}

Status check_widen(const TensorView& tensor, std::int64_t first_row, std::int64_t rows,
                   std::size_t out_size) {
  if (auto status = check_readable(tensor); !status) return status;
  const std::int64_t total = tensor.rows();
  if (static_cast<std::int64_t>(tensor.data.size()) != total * tensor.row_bytes()) {
    return fail(ErrorCode::invalid_argument, "tensor {s} has {0} bytes, its shape needs {1}",
                {static_cast<std::int64_t>(tensor.data.size()), total * tensor.row_bytes()},
                quoted(tensor.name));
  }
  if (first_row < 0 || rows < 0 || first_row > total || rows > total - first_row) {
    return fail(ErrorCode::invalid_argument,
                "tensor {s}: {1} rows from row {0} on asked, it has {2}", {first_row, rows, total},
                quoted(tensor.name));
  }
  if (static_cast<std::int64_t>(out_size) != rows * tensor.columns()) {
    return fail(ErrorCode::invalid_argument,
                "tensor {s}: room for {0} values, {1} rows of {2} asked",
                {static_cast<std::int64_t>(out_size), rows, tensor.columns()}, quoted(tensor.name));
  }
  return {};
}

}  // namespace

const TensorTypeInfo* find_tensor_type(std::uint32_t id) {
  const auto* const found = std::find_if(
      kTypes.begin(), kTypes.end(),
      [id](const TensorTypeInfo& entry) { return static_cast<std::uint32_t>(entry.type) == id; });
  return found == kTypes.end() ? nullptr : found;
}

const TensorTypeInfo& tensor_type_info(TensorType type) {
  return *find_tensor_type(static_cast<std::uint32_t>(type));
}

std::int64_t TensorView::rows() const {
  std::int64_t product = 1;
  for (std::size_t i = 1; i < shape.size(); ++i) product *= shape[i];
  return product;
}

std::int64_t TensorView::row_bytes() const {
  const TensorTypeInfo& type_info = tensor_type_info(type);
  return columns() / type_info.block_elements * type_info.block_bytes;
}

Status check_readable(const TensorView& tensor) {
  const TensorTypeInfo& type_info = tensor_type_info(tensor.type);
  if (type_info.readable) return {};
  std::string list;
  for (const TensorTypeInfo& entry : kTypes) {
    if (entry.readable) list += (list.empty() ? "" : ", ") + std::string(entry.name);
  }
  return fail(
      ErrorCode::unsupported, "tensor {s}", {},
      quoted(tensor.name) + " has type " + std::string(type_info.name) + "; readable are " + list);
}

Status widen(const TensorView& tensor, std::int64_t first_row, std::int64_t rows,
             std::span<float> out) {
  if (auto status = check_widen(tensor, first_row, rows, out.size()); !status) return status;
  for (std::int64_t row = 0; row < rows; ++row) {
    widen_row(tensor.type, tensor.data.data() + (first_row + row) * tensor.row_bytes(),
              tensor.columns(), out.data() + row * tensor.columns());
  }
  return {};
}

}  // namespace pagekv::inline v0::engine
