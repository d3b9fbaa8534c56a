// How large a value a type can store, and how large one can be computed with.
#pragma once

#include <limits>

#include "pagekv/dtype.h"

namespace pagekv::inline v0::internal {

// Elements or scales beyond kLarge are computed kShrink times as large: no product, and no sum of a
// rotation, can overflow then.
inline constexpr float kLarge = 0x1p96f;
inline constexpr float kShrink = 0x1p-32f;

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
