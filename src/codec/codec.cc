#include "pagekv/codec.h"

namespace pagekv::inline v0 {

std::vector<Plane> VectorCodec::planes(std::int64_t dim) const {
  return {{PlaneKind::codes, dim * size_bytes(dtype_)}};
}

std::int64_t VectorCodec::bytes_per_vector(std::int64_t dim) const {
  std::int64_t bytes = 0;
  for (const Plane& plane : planes(dim)) bytes += plane.bytes_per_vector;
  return bytes;
}

std::string VectorCodec::name() const {
  return std::string(v0::name(dtype_));
}

Result<Format> Format::parse(std::string_view text) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (text == v0::name(dtype)) {
      return Format{VectorCodec::dense(dtype), VectorCodec::dense(dtype)};
    }
  }
  return fail(ErrorCode::invalid_argument, "unknown page format '{s}'; legal are f32, f16 and bf16",
              {}, std::string(text));
}

std::string Format::name() const {
  return k == v ? k.name() : "k=" + k.name() + ",v=" + v.name();
}

}  // namespace pagekv::inline v0
