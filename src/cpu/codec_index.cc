#include <algorithm>
#include <iterator>

#include "cpu/kernel_table.h"

namespace pagekv::inline v0::internal {

namespace {

template <std::size_t kCount>
std::size_t position_of(const std::array<int, kCount>& widths, int bits) {
  return static_cast<std::size_t>(
      std::distance(widths.begin(), std::find(widths.begin(), widths.end(), bits)));
}

}  // namespace

std::size_t codec_index(const VectorCodec& codec) {
  switch (codec.kind()) {
    case CodecKind::dense: return dtype_index(codec.dtype());
    case CodecKind::affine: return kFirstAffine + position_of(kAffineWidths, codec.bits());
    case CodecKind::codebook: return kFirstCodebook + position_of(kCodebookWidths, codec.bits());
  }
  return kCodecs;
}

SideShape side_shape(const VectorCodec& codec, const PlaneLayouts& planes, std::int64_t dim) {
  SideShape shape{.dim = dim,
                  .group = codec.group_elements(dim),
                  .groups = codec.groups(dim),
                  .scales = codec.dtype(),
                  .fit = codec.fit(),
                  .rotation = codec.is_rotated() ? &rotation(dim) : nullptr};
  for (std::size_t i = 0; i < planes.size(); ++i) shape.row_bytes[i] = planes[i].row_bytes;
  return shape;
}

}  // namespace pagekv::inline v0::internal
