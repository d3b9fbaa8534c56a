// How one head's vector is stored: VectorCodec, and the pair {k, v} of them that a layer uses.
//
// A codec depends on nothing but the vector (equal vectors have equal bytes), whatever the page,
// the batch, the device. It names the planes that a page carries for it. What a stored element is
// worth, and how vectors become bytes: docs/codecs.md.
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
//   dense     the elements, rounded to a type
//   affine    per group of elements code * scale + bias (MLX's affine quantization)
//   codebook  per group table[code] * scale (TurboQuant: Lloyd-Max tables of the unit normal)
enum class CodecKind : std::uint8_t { dense = 0, affine = 1, codebook = 2 };
enum class PlaneKind : std::uint8_t { codes = 0, scales = 1, biases = 2 };

// How a codebook's scale is found when a vector is encoded; costs nothing when it is read. Numeric
// ids are stable.
//   rms     the group's root mean square
//   norm    so that the decoded group has the length of the group
//   search  of several scales that of least squared error
enum class ScaleFit : std::uint8_t { rms = 0, norm = 1, search = 2 };

struct Plane {
  PlaneKind kind = PlaneKind::codes;
  std::int64_t bytes_per_vector = 0;  // a multiple of unit_bytes
  std::int64_t unit_bytes = 0;        // what an arrangement moves in one piece
};

class PAGEKV_API VectorCodec {
 public:
  // A group is a run of elements that share a scale. Either an exact size, or the largest legal one
  // up to `most` that divides the head dim, chosen when a layout is made.
  struct Group {
    int elements = 0;  // kWholeHead: all of them
    bool at_most = false;
    bool operator==(const Group&) const = default;
  };
  static constexpr int kWholeHead = 0;
  static constexpr Group exactly(int elements) { return {elements, false}; }
  static constexpr Group whole_head() { return {kWholeHead, false}; }
  static constexpr Group up_to(int most) { return {most, true}; }

  static VectorCodec dense(DType dtype);
  // `bits` 2, 3, 4, 5, 6, 8; groups of 8, 16, 32, 64, 128. Scales and biases are stored in
  // `scales`; rows of that type get the bytes of mlx.core.quantize.
  static VectorCodec affine(int bits, Group group = up_to(128), DType scales = DType::bf16);
  // `bits` 1, 2, 3, 4, 5, 8; groups of 32, 64, 128 or the whole head (up_to() falls back to it).
  static VectorCodec codebook(int bits, Group group = up_to(64), ScaleFit fit = ScaleFit::search,
                              DType scales = DType::bf16);
  // The same on vectors turned by the signed Hadamard rotation of their dim. Turned elements can be
  // as large as the vector is long: where they exceed the largest value of the codec's type they
  // are set to it, which f16 makes possible from elements of 65504 / sqrt(dim) on.
  VectorCodec rotated() const;

  CodecKind kind() const { return kind_; }
  DType dtype() const { return dtype_; }  // of dense elements; else of scales and biases
  int bits() const;                       // of one code or element
  Group group() const { return group_; }  // meaningless for dense
  ScaleFit fit() const { return fit_; }   // of a codebook
  bool is_rotated() const { return rotated_; }

  // This codec with its group settled for vectors of `dim` elements; codecs that store such vectors
  // alike come out equal. Errors: invalid_argument naming what is illegal and what would be legal.
  Result<VectorCodec> resolve(std::int64_t dim) const;

  // Of one vector of `dim` elements. REQUIRES (all four): what resolve(dim) returned.
  std::int64_t group_elements(std::int64_t dim) const;
  std::int64_t groups(std::int64_t dim) const;            // scales of a vector; 0 for dense
  std::vector<Plane> planes(std::int64_t dim) const;      // in storage order
  std::int64_t bytes_per_vector(std::int64_t dim) const;  // over all planes

  // "bf16", "affine:4:64", "affine:8", "codebook:3:head:f16:norm:rot": what parse() reads. What is
  // the default is left out; a group that is not settled is left out or "max32".
  std::string name() const;
  // Errors: invalid_argument saying which part was not understood.
  static Result<VectorCodec> parse(std::string_view text);

  bool operator==(const VectorCodec&) const = default;

 private:
  VectorCodec(CodecKind kind, DType dtype) : kind_(kind), dtype_(dtype) {}
  friend struct Format;
  Status check_bits() const;
  Status check() const;  // refuses bits and groups that no head makes legal

  CodecKind kind_;
  DType dtype_;
  int bits_ = 0;
  Group group_{};
  ScaleFit fit_ = ScaleFit::rms;
  bool rotated_ = false;
};

struct PAGEKV_API Format {
  VectorCodec k = VectorCodec::dense(DType::bf16);
  VectorCodec v = VectorCodec::dense(DType::bf16);

  // Reads a preset or the long form.
  //   f32, f16, bf16         dense
  //   kv2 .. kv8             affine keys and values of that many bits (2, 3, 4, 5, 6, 8)
  //   k8v3, k4v4, ...        TurboQuant: affine keys (2, 3, 4, 5, 6, 8 bits, groups up to 32),
  //                          rotated codebook values (1, 2, 3, 4, 5, 8 bits)
  //   kv4:rot, kv8:f16:rot   the same with both sides rotated, with scales of that type
  //   k=affine:8:64,v=codebook:3:rot   any codec on either side, as VectorCodec::parse() reads it
  //   affine:4:64:rot                  the same codec on both sides
  // Errors: invalid_argument naming what was not understood and the legal forms.
  static Result<Format> parse(std::string_view text);
  std::string name() const;  // the preset, or the long form where there is none

  // Stored bits per element over keys and values, scales and biases counted. REQUIRES: codecs that
  // are legal for these dims.
  double bits_per_element(std::int64_t key_dim, std::int64_t value_dim) const;

  bool operator==(const Format&) const = default;
};

// One format per layer: `base` for all but those that `overrides` names, such as
// "0-1,28-29=bf16" or "0=f32;1-3=kv8". Errors: invalid_argument (a text that makes no sense, a
// layer that is not there or is named twice).
PAGEKV_API Result<std::vector<Format>> parse_layer_formats(const Format& base,
                                                           std::string_view overrides,
                                                           int layer_count);

}  // namespace pagekv::inline v0
