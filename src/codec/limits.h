// How large a value a type can store.
#pragma once

#include <limits>

#include "pagekv/dtype.h"

namespace pagekv::inline v0::internal {

constexpr float largest_finite(DType type) {
  switch (type) {
    case DType::f32: return std::numeric_limits<float>::max();
    case DType::f16: return 65504.0f;
    case DType::bf16: return 0x1.fep127f;
  }
  return 0.0f;
}

// The smallest magnitude that rounds to infinity. A value fits iff its magnitude is below.
constexpr float overflow_limit(DType type) {
  switch (type) {
    case DType::f32: return std::numeric_limits<float>::infinity();
    case DType::f16: return 65520.0f;
    case DType::bf16: return 0x1.ffp127f;
  }
  return 0.0f;
}

}  // namespace pagekv::inline v0::internal
