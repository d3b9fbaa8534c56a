// TileRoom: rows of one tile on their way into an interleaved tile of a page, or out of it. Each
// plane's rows are one after the other there, as kernels take them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/arrangement.h"
#include "cpu/head_planes.h"
#include "cpu/kernel_table.h"
#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

class TileRoom {
 public:
  explicit TileRoom(const HeadSide& side) {
    std::byte* at = bytes_.data();
    for (int i = 0; i < side.planes(); ++i) {
      planes_[static_cast<std::size_t>(i)] = at;
      at += kTileTokens * side.shape(i).row_bytes;
    }
  }

  // First rows of the planes.
  const PlanePointers& planes() const { return planes_; }

  // `rows` rows into a tile, where the first one's planes are at `to`. Touches no other row.
  void interleave(const KernelTable& kernels, const HeadSide& side, std::int64_t rows,
                  const PlanePointers& to) const {
    for (std::size_t i = 0; i < static_cast<std::size_t>(side.planes()); ++i) {
      const PlaneShape& shape = side.shape(static_cast<int>(i));
      if (rows == kTileTokens && shape.unit_bytes == 4) {
        kernels.interleave(planes_[i], shape.row_bytes, to[i]);
        continue;
      }
      for (std::int64_t row = 0; row < rows; ++row) {
        copy_row(shape, planes_[i] + row * shape.row_bytes, shape.unit_bytes,
                 to[i] + row * token_stride(shape), unit_stride(shape));
      }
    }
  }

  // The reverse. Reads no other row.
  void deinterleave(const KernelTable& kernels, const HeadSide& side, std::int64_t rows,
                    const PlanePointers& from) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(side.planes()); ++i) {
      const PlaneShape& shape = side.shape(static_cast<int>(i));
      if (rows == kTileTokens && shape.unit_bytes == 4) {
        kernels.deinterleave(from[i], shape.row_bytes, planes_[i]);
        continue;
      }
      for (std::int64_t row = 0; row < rows; ++row) {
        copy_row(shape, from[i] + row * token_stride(shape), unit_stride(shape),
                 planes_[i] + row * shape.row_bytes, shape.unit_bytes);
      }
    }
  }

 private:
  PlanePointers planes_{};
  // No codec's vector is larger than one of f32.
  alignas(64) std::array<std::byte, kTileTokens * kMaxHeadDim * sizeof(float)> bytes_;
};

}  // namespace pagekv::inline v0::internal
