// Ids that must not be mixed up with counts.
#pragma once

#include <cstdint>

namespace pagekv::inline v0::internal {

// Index of a page in its group's arena: the page's bytes start at base + id * page_stride.
enum class PageId : std::uint32_t {};
inline constexpr PageId kNoPage{0xffffffffu};

constexpr std::int64_t index(PageId page) {
  return static_cast<std::int64_t>(page);
}

}  // namespace pagekv::inline v0::internal
