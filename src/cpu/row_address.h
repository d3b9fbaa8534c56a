// Where one head's vector of one row of a caller's tensor begins.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pagekv/rows.h"

namespace pagekv::inline v0::internal {

inline const std::byte* row_address(const Rows& rows, std::int64_t row, std::int64_t head) {
  return static_cast<const std::byte*>(rows.data) +
         (row * rows.token_stride + head * rows.head_stride) * size_bytes(rows.dtype);
}

inline std::byte* row_address(const MutableRows& rows, std::int64_t row, std::int64_t head) {
  return static_cast<std::byte*>(rows.data) +
         (row * rows.token_stride + head * rows.head_stride) * size_bytes(rows.dtype);
}

// From one row of a head to the next.
template <typename AnyRows>
std::int64_t row_bytes(const AnyRows& rows) {
  return rows.token_stride * size_bytes(rows.dtype);
}

}  // namespace pagekv::inline v0::internal
