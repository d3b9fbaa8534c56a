// Matrix products of the engine: y[row, output] = sum over k of x[row, k] * w[output, k].
//
// x and y are f32; w is packed once into tiles of 16 outputs, in bf16 or f32. Every output is one
// vector lane with two chains of fused multiply-adds, one over the even k and one over the odd,
// added at the end. So the bits of an output depend on its own row of x and of w and on the SIMD
// target, but not on how many rows are computed together, how many threads compute, or whether bf16
// values are stored as bf16 or as f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pagekv/dtype.h"
#include "pagekv/error.h"
#include "pagekv/executor.h"

namespace pagekv::inline v0::engine {

// w[output][k], packed as
//   bf16  [output / 16][k / 2][output % 16][k % 2]   (a 4-byte lane holds an even and an odd k)
//   f32   [output / 16][k / 2][k % 2][output % 16]
// with outputs padded to 16 and k to 2 by zeros. Move-only.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // All zeros. Errors: invalid_argument (sizes below 1, f16), out_of_memory.
  static Result<PackedMatrix> make(std::int64_t outputs, std::int64_t inner, DType dtype);

  std::int64_t outputs() const { return outputs_; }
  std::int64_t inner() const { return inner_; }
  std::int64_t pairs() const { return (inner_ + 1) / 2; }
  DType dtype() const { return dtype_; }
  std::int64_t bytes() const;
  const std::byte* data() const { return data_.get(); }

  // Rows [first, first + rows) of w from `values` [rows, inner], rounded to the type. Calls for
  // different rows may run at the same time.
  void pack_rows(std::int64_t first, std::int64_t rows, const float* values);
  // One row of w as it is stored: an embedding, when input and output share the matrix.
  void unpack_row(std::int64_t output, float* values) const;

 private:
  struct Release {
    void operator()(std::byte* data) const;
  };
  // Element (output, k), counted in elements from data().
  std::int64_t offset(std::int64_t output, std::int64_t k) const;

  std::unique_ptr<std::byte[], Release> data_;
  std::int64_t outputs_ = 0;
  std::int64_t inner_ = 0;
  DType dtype_ = DType::bf16;
};

// x is [rows, w.inner()] and y is [rows, w.outputs()], both packed; they must not overlap.
void matmul(Executor& executor, const PackedMatrix& w, const float* x, std::int64_t rows, float* y);

// The instruction set matmul() uses here, and all that are compiled in and supported, best first.
std::string matmul_target();
std::vector<std::string> matmul_targets();

}  // namespace pagekv::inline v0::engine
