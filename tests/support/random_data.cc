#include "support/random_data.h"

#include <cstring>

namespace pagekv::testing {

float load_element(DType type, const std::byte* element) {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, element, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, element, sizeof(bits));
  return type == DType::f16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

void store_element(DType type, float value, std::byte* element) {
  if (type == DType::f32) {
    std::memcpy(element, &value, sizeof(value));
    return;
  }
  const std::uint16_t bits = type == DType::f16 ? f16_from_f32(value) : bf16_from_f32(value);
  std::memcpy(element, &bits, sizeof(bits));
}

Tensor::Tensor(DType type, std::int64_t rows, std::int64_t heads, std::int64_t dim)
    : type_(type),
      rows_(rows),
      heads_(heads),
      dim_(dim),
      bytes_(static_cast<std::size_t>(rows * heads * dim * size_bytes(type))) {}

float Tensor::at(std::int64_t row, std::int64_t head, std::int64_t element) const {
  return load_element(type_, bytes_.data() + index(row, head, element) * size_bytes(type_));
}

void Tensor::set(std::int64_t row, std::int64_t head, std::int64_t element, float value) {
  store_element(type_, value, bytes_.data() + index(row, head, element) * size_bytes(type_));
}

void Tensor::fill(float value) {
  const std::int64_t step = size_bytes(type_);
  for (std::size_t at = 0; at < bytes_.size(); at += static_cast<std::size_t>(step)) {
    store_element(type_, value, bytes_.data() + at);
  }
}

void Tensor::fill_normal(Random& random, float deviation) {
  std::normal_distribution<float> normal(0.0f, deviation);
  const std::int64_t step = size_bytes(type_);
  for (std::size_t at = 0; at < bytes_.size(); at += static_cast<std::size_t>(step)) {
    store_element(type_, normal(random), bytes_.data() + at);
  }
}

Rows Tensor::view(std::int64_t first_row) const {
  return Rows::packed(bytes_.data() + index(first_row, 0, 0) * size_bytes(type_), type_, heads_,
                      dim_);
}

MutableRows Tensor::mutable_view(std::int64_t first_row) {
  return MutableRows::packed(bytes_.data() + index(first_row, 0, 0) * size_bytes(type_), type_,
                             heads_, dim_);
}

}  // namespace pagekv::testing
