// Rows: how a tensor is handed to pagekv.
//
// A Rows names `[row, head, dim]` values that the caller owns; pagekv neither keeps nor frees them.
// Rows of all sequences of a call lie one after the other ("ragged"): first all rows of sequence 0,
// then those of sequence 1, and so on. Within a row the innermost stride is 1. Strides count
// elements, not bytes. Value type, no state: safe on any thread.
#pragma once

#include <cstdint>

#include "pagekv/dtype.h"

namespace pagekv::inline v0 {

struct Rows {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t token_stride = 0;  // elements from one row to the next
  std::int64_t head_stride = 0;   // elements from one head of a row to the next

  // Densely packed `[rows, heads, dim]`.
  static Rows packed(const void* data, DType dtype, std::int64_t heads, std::int64_t dim) {
    return {data, dtype, heads * dim, dim};
  }
};

struct MutableRows {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;

  static MutableRows packed(void* data, DType dtype, std::int64_t heads, std::int64_t dim) {
    return {data, dtype, heads * dim, dim};
  }
};

}  // namespace pagekv::inline v0
