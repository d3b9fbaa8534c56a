#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/matmul.h"

namespace pagekv::inline v0::engine {
namespace {

constexpr std::int64_t kTileOutputs = 16;
// Weights stream from memory once per decoded token: with 2 MiB pages that is a quarter faster.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kCacheLine = 64;

std::int64_t padded_bytes(std::int64_t outputs, std::int64_t inner, DType dtype) {
  const std::int64_t tiles = (outputs + kTileOutputs - 1) / kTileOutputs;
  return tiles * ((inner + 1) / 2) * 2 * kTileOutputs * size_bytes(dtype);
}

std::byte* allocate(std::size_t bytes) {
  const bool huge = bytes >= kHugePage;
  const std::size_t alignment = huge ? kHugePage : kCacheLine;
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* data = std::aligned_alloc(alignment, rounded);
#ifdef MADV_HUGEPAGE
  if (data != nullptr && huge) madvise(data, rounded, MADV_HUGEPAGE);  // a wish; failure is fine
#endif
  return static_cast<std::byte*>(data);
}

}  // namespace

void PackedMatrix::Release::operator()(std::byte* data) const {
  std::free(data);
}

Result<PackedMatrix> PackedMatrix::make(std::int64_t outputs, std::int64_t inner, DType dtype) {
  constexpr std::int64_t kMaxSide = std::int64_t{1} << 30;
  if (outputs < 1 || inner < 1 || outputs > kMaxSide || inner > kMaxSide) {
    return fail(ErrorCode::invalid_argument, "a matrix of {0} x {1} cannot be packed",
                {outputs, inner});
  }
  if (dtype == DType::f16) {
    return fail(ErrorCode::invalid_argument, "weights are packed as bf16 or f32, not f16");
  }
  const std::int64_t bytes = padded_bytes(outputs, inner, dtype);
  PackedMatrix matrix;
  matrix.data_.reset(allocate(static_cast<std::size_t>(bytes)));
  if (!matrix.data_) {
    return fail(ErrorCode::out_of_memory, "no memory for {0} bytes of weights", {bytes});
  }
  std::memset(matrix.data_.get(), 0, static_cast<std::size_t>(bytes));
  matrix.outputs_ = outputs;
  matrix.inner_ = inner;
  matrix.dtype_ = dtype;
  return matrix;
}

std::int64_t PackedMatrix::bytes() const {
  return padded_bytes(outputs_, inner_, dtype_);
}

std::int64_t PackedMatrix::offset(std::int64_t output, std::int64_t k) const {
  const std::int64_t lane = output % kTileOutputs;
  const std::int64_t pair = (output / kTileOutputs * pairs() + k / 2) * 2 * kTileOutputs;
  return dtype_ == DType::f32 ? pair + k % 2 * kTileOutputs + lane : pair + lane * 2 + k % 2;
}

void PackedMatrix::pack_rows(std::int64_t first, std::int64_t rows, const float* values) {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* source = values + row * inner_;
    if (dtype_ == DType::f32) {
      auto* target = reinterpret_cast<float*>(data_.get());
      for (std::int64_t k = 0; k < inner_; ++k) target[offset(first + row, k)] = source[k];
    } else {
      auto* target = reinterpret_cast<std::uint16_t*>(data_.get());
      for (std::int64_t k = 0; k < inner_; ++k) {
        target[offset(first + row, k)] = bf16_from_f32(source[k]);
      }
    }
  }
}

void PackedMatrix::unpack_row(std::int64_t output, float* values) const {
  if (dtype_ == DType::f32) {
    const auto* source = reinterpret_cast<const float*>(data_.get());
    for (std::int64_t k = 0; k < inner_; ++k) values[k] = source[offset(output, k)];
  } else {
    const auto* source = reinterpret_cast<const std::uint16_t*>(data_.get());
    for (std::int64_t k = 0; k < inner_; ++k) {
      values[k] = f32_from_bf16(source[offset(output, k)]);
    }
  }
}

}  // namespace pagekv::inline v0::engine
