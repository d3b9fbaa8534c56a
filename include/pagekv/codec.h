// How one head's vector is stored: VectorCodec, and the pair {k, v} of them that a layer uses.
//
// A codec depends on nothing but the vector (equal vectors have equal bytes). It names
// the planes a page carries for it; today's dense codecs have one plane, the elements themselves.
// Value types, no state: safe on any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pagekv/dtype.h"
#include "pagekv/error.h"

namespace pagekv::inline v0 {

// Numeric ids are part of layouts and files: never renumbered.
enum class CodecKind : std::uint8_t { dense = 0 };
enum class PlaneKind : std::uint8_t { codes = 0 };

struct Plane {
  PlaneKind kind;
  std::int64_t bytes_per_vector;
};

class PAGEKV_API VectorCodec {
 public:
  static VectorCodec dense(DType dtype) { return VectorCodec(CodecKind::dense, dtype); }

  CodecKind kind() const { return kind_; }
  DType dtype() const { return dtype_; }  // of the stored elements

  // The planes of one vector of `dim` elements, in storage order.
  std::vector<Plane> planes(std::int64_t dim) const;
  std::int64_t bytes_per_vector(std::int64_t dim) const;  // over all planes
  std::string name() const;                               // "bf16"

  bool operator==(const VectorCodec&) const = default;

 private:
  VectorCodec(CodecKind kind, DType dtype) : kind_(kind), dtype_(dtype) {}

  CodecKind kind_;
  DType dtype_;
};

struct PAGEKV_API Format {
  VectorCodec k = VectorCodec::dense(DType::bf16);
  VectorCodec v = VectorCodec::dense(DType::bf16);

  // Reads a preset name: "f32", "f16" or "bf16". The error lists the legal names.
  static Result<Format> parse(std::string_view text);
  std::string name() const;  // the preset, or "k=f16,v=bf16" where the two differ

  bool operator==(const Format&) const = default;
};

}  // namespace pagekv::inline v0
