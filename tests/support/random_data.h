// Seeded random tensors. Every test prints the seed it ran with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "pagekv/dtype.h"
#include "pagekv/rows.h"

namespace pagekv::testing {

using Random = std::mt19937_64;

inline std::int64_t pick(Random& random, std::int64_t lowest, std::int64_t highest) {
  return std::uniform_int_distribution<std::int64_t>(lowest, highest)(random);
}

template <typename T>
const T& pick_one(Random& random, const std::vector<T>& from) {
  return from[static_cast<std::size_t>(
      pick(random, 0, static_cast<std::int64_t>(from.size()) - 1))];
}

// Densely packed [rows, heads, dim] elements of one type.
class Tensor {
 public:
  Tensor(DType type, std::int64_t rows, std::int64_t heads, std::int64_t dim);

  DType type() const { return type_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t heads() const { return heads_; }
  std::int64_t dim() const { return dim_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }

  float at(std::int64_t row, std::int64_t head, std::int64_t element) const;
  void set(std::int64_t row, std::int64_t head, std::int64_t element, float value);  // rounds
  void fill(float value);
  void fill_normal(Random& random, float deviation = 1.0f);

  // The rows from `first_row` on, as the API takes them.
  Rows view(std::int64_t first_row = 0) const;
  MutableRows mutable_view(std::int64_t first_row = 0);

 private:
  std::int64_t index(std::int64_t row, std::int64_t head, std::int64_t element) const {
    return (row * heads_ + head) * dim_ + element;
  }

  DType type_;
  std::int64_t rows_;
  std::int64_t heads_;
  std::int64_t dim_;
  std::vector<std::byte> bytes_;
};

// One element of `type`, to and from f32 by the scalar conversions of dtype.h.
float load_element(DType type, const std::byte* element);
void store_element(DType type, float value, std::byte* element);

}  // namespace pagekv::testing
