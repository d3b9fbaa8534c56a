// Products of codes by the matrix unit (cpu/matrix_kernels.h) with AMX.
#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"
#include "cpu/matrix_kernels.h"
#include "hwy/highway.h"

#if HWY_ARCH_X86
#include "cpu/amx.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t kTotalBytes = kByteTotals * static_cast<std::int64_t>(sizeof(std::int32_t));
static_assert(kTotalBytes == AmxConfig::kRows * AmxConfig::kRowBytes);

void configure(std::int64_t rows, std::int64_t bytes) {
  amx_configure(AmxConfig(rows, bytes));
}

void release() {
  amx_release();
}

// One step of each vector, `offset` bytes behind its first.
template <int kVectors, int kAt = 0>
inline void add_step(const MatrixKernels::ByteProduct& product, const std::uint8_t* const* right,
                     std::int64_t offset, AskAhead& ask) {
  if constexpr (kAt < kVectors) {
    ask();
    amx_load<AmxConfig::kRight>(right[kAt] + offset, AmxConfig::kRowBytes);
    amx_add_bytes<kAt, AmxConfig::kLeft, AmxConfig::kRight>();
    if (product.low != nullptr) {
      amx_load<AmxConfig::kRight + 1>(right[kAt] + product.low_bytes + offset,
                                      AmxConfig::kRowBytes);
      amx_add_bytes<kAt, AmxConfig::kLeft + 1, AmxConfig::kRight + 1>();
    }
    add_step<kVectors, kAt + 1>(product, right, offset, ask);
  }
}

template <int kVectors>
void multiply_vectors(const MatrixKernels::ByteProduct& product, const std::uint8_t* const* right,
                      AskAhead& ask, std::int32_t* totals) {
  amx_zero_sums<kVectors>();
  for (std::int64_t step = 0; step < product.steps; ++step) {
    const std::int64_t byte = step * product.step_bytes;
    amx_load<AmxConfig::kLeft>(product.left + byte, product.row_bytes);
    if (product.low != nullptr) {
      amx_load<AmxConfig::kLeft + 1>(product.low + byte, product.row_bytes);
    }
    add_step<kVectors>(product, right, byte * AmxConfig::kRows, ask);
  }
  amx_store_sums<kVectors>(totals, kTotalBytes, AmxConfig::kRowBytes);
}

void multiply_bytes(const MatrixKernels::ByteProduct& product, AskAhead& ask,
                    std::int32_t* totals) {
  const std::uint8_t* const* right = product.right;
  std::int64_t left = product.vectors;
  for (; left >= 4; left -= 4, right += 4, totals += 4 * kByteTotals) {
    multiply_vectors<4>(product, right, ask, totals);
  }
  switch (left) {
    case 3: return multiply_vectors<3>(product, right, ask, totals);
    case 2: return multiply_vectors<2>(product, right, ask, totals);
    case 1: return multiply_vectors<1>(product, right, ask, totals);
    default: return;
  }
}

}  // namespace

void bind_matrix_codes(KernelTable& table) {
  table.matrix.configure = configure;
  table.matrix.release = release;
  table.matrix.multiply_bytes = multiply_bytes;
}

}  // namespace pagekv::inline v0::internal

#else

namespace pagekv::inline v0::internal {

void bind_matrix_codes(KernelTable& /* table */) {}

}  // namespace pagekv::inline v0::internal

#endif
