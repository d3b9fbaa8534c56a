#include "engine/matmul.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/matmul.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

namespace pagekv::inline v0::engine {
#ifndef PAGEKV_ENGINE_MATMUL_JOB
#define PAGEKV_ENGINE_MATMUL_JOB
namespace {

constexpr std::int64_t kTileOutputs = 16;

// Rows [row_begin, row_end) times outputs [output_begin, output_end); output_begin starts a tile.
struct Block {
  const void* w = nullptr;
  bool f32_weights = false;
  std::int64_t inner = 0;
  std::int64_t outputs = 0;
  const float* x = nullptr;
  float* y = nullptr;
  std::int64_t row_begin = 0;
  std::int64_t row_end = 0;
  std::int64_t output_begin = 0;
  std::int64_t output_end = 0;
};

}  // namespace
#endif  // PAGEKV_ENGINE_MATMUL_JOB
}  // namespace pagekv::inline v0::engine

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::engine {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, kTileOutputs>;
using Vector = hn::Vec<Lanes>;
constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(Lanes()));

// Accumulators and operands fill the registers: 6 rows need 24 of the 32 that AVX-512 and NEON
// have, 3 rows need 12 of 16.
constexpr int kBlockRows = (HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM) ? 6 : 3;
// Vectors of outputs computed together. More of them for a single row only made decoding slower:
// memory likes few streams.
constexpr int kBlockVectors = 2;

// The 2 * kLanes weights of one vector of outputs at one pair of k.
struct Bf16Weights {
  using Element = std::uint16_t;
  static constexpr std::int64_t kVectorStride =
      2 * kLanes;  // elements to the next vector of a tile
  static HWY_INLINE void load(const Element* w, Vector& even, Vector& odd) {
    const hn::RebindToUnsigned<Lanes> bits;
    const auto both = hn::Load(bits, reinterpret_cast<const std::uint32_t*>(w));
    even = hn::BitCast(Lanes(), hn::ShiftLeft<16>(both));
    odd = hn::BitCast(Lanes(), hn::And(both, hn::Set(bits, 0xffff0000u)));
  }
};

struct F32Weights {
  using Element = float;
  static constexpr std::int64_t kVectorStride = kLanes;
  static HWY_INLINE void load(const Element* w, Vector& even, Vector& odd) {
    even = hn::Load(Lanes(), w);
    odd = hn::Load(Lanes(), w + kTileOutputs);
  }
};

template <class Weights>
const typename Weights::Element* vector_weights(const Block& block, std::int64_t output) {
  const std::int64_t pairs = (block.inner + 1) / 2;
  const std::int64_t in_tile = output % kTileOutputs / kLanes * Weights::kVectorStride;
  return static_cast<const typename Weights::Element*>(block.w) +
         output / kTileOutputs * pairs * 2 * kTileOutputs + in_tile;
}

HWY_INLINE void store(const Block& block, std::int64_t row, std::int64_t output, Vector value) {
  float* y = block.y + row * block.outputs + output;
  if (output + kLanes <= block.outputs) {
    hn::StoreU(value, Lanes(), y);
    return;
  }
  HWY_ALIGN float padded[kLanes];
  hn::Store(value, Lanes(), padded);
  for (std::int64_t lane = 0; output + lane < block.outputs; ++lane) y[lane] = padded[lane];
}

// `rows` rows from `row` times kBlockVectors vectors from `output`: all of k in registers.
template <class Weights, int rows>
HWY_INLINE void multiply(const Block& block, std::int64_t row, std::int64_t output) {
  constexpr int vectors = kBlockVectors;
  const typename Weights::Element* w[vectors];
  HWY_UNROLL(2) for (int v = 0; v < vectors; ++v) {
    // A block that hangs over the last tile computes its first vector twice and stores it once.
    const std::int64_t start = output + v * kLanes;
    w[v] = vector_weights<Weights>(block, start < block.outputs ? start : output);
  }
  const float* x = block.x + row * block.inner;
  Vector even[rows][vectors];
  Vector odd[rows][vectors];
  HWY_UNROLL(6) for (int r = 0; r < rows; ++r) {
    HWY_UNROLL(2) for (int v = 0; v < vectors; ++v) even[r][v] = odd[r][v] = hn::Zero(Lanes());
  }
  const std::int64_t full_pairs = block.inner / 2;
  for (std::int64_t pair = 0; pair < full_pairs; ++pair) {
    Vector w_even[vectors];
    Vector w_odd[vectors];
    HWY_UNROLL(2) for (int v = 0; v < vectors; ++v) {
      Weights::load(w[v] + pair * 2 * kTileOutputs, w_even[v], w_odd[v]);
    }
    HWY_UNROLL(6) for (int r = 0; r < rows; ++r) {
      const Vector x_even = hn::Set(Lanes(), x[r * block.inner + 2 * pair]);
      const Vector x_odd = hn::Set(Lanes(), x[r * block.inner + 2 * pair + 1]);
      HWY_UNROLL(2) for (int v = 0; v < vectors; ++v) {
        even[r][v] = hn::MulAdd(x_even, w_even[v], even[r][v]);
        odd[r][v] = hn::MulAdd(x_odd, w_odd[v], odd[r][v]);
      }
    }
  }
  HWY_UNROLL(2) for (int v = 0; v < vectors; ++v) {
    const std::int64_t start = output + v * kLanes;
    if (start >= block.outputs) break;
    Vector w_even = hn::Zero(Lanes());
    Vector w_odd = hn::Zero(Lanes());
    if (block.inner % 2 != 0) Weights::load(w[v] + full_pairs * 2 * kTileOutputs, w_even, w_odd);
    HWY_UNROLL(6) for (int r = 0; r < rows; ++r) {
      if (block.inner % 2 != 0) {
        const Vector last = hn::Set(Lanes(), x[r * block.inner + block.inner - 1]);
        even[r][v] = hn::MulAdd(last, w_even, even[r][v]);
      }
      store(block, row + r, start, hn::Add(even[r][v], odd[r][v]));
    }
  }
}

template <class Weights>
void multiply_rows(const Block& block, std::int64_t row, std::int64_t rows, std::int64_t output) {
  switch (rows) {
    case 1: return multiply<Weights, 1>(block, row, output);
    case 2: return multiply<Weights, 2>(block, row, output);
    case 3: return multiply<Weights, 3>(block, row, output);
    default: break;
  }
  if constexpr (kBlockRows == 6) {
    switch (rows) {
      case 4: return multiply<Weights, 4>(block, row, output);
      case 5: return multiply<Weights, 5>(block, row, output);
      case 6: return multiply<Weights, 6>(block, row, output);
      default: break;
    }
  }
}

template <class Weights>
void multiply_outputs(const Block& block) {
  for (std::int64_t output = block.output_begin; output < block.output_end;
       output += kBlockVectors * kLanes) {
    for (std::int64_t row = block.row_begin; row < block.row_end; row += kBlockRows) {
      multiply_rows<Weights>(block, row, std::min<std::int64_t>(kBlockRows, block.row_end - row),
                             output);
    }
  }
}

void multiply_block(const Block& block) {
  if (block.f32_weights) {
    multiply_outputs<F32Weights>(block);
  } else {
    multiply_outputs<Bf16Weights>(block);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagekv::inline v0::engine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::engine {
namespace {

HWY_EXPORT(multiply_block);

constexpr std::int64_t kStripOutputs = 2 * kTileOutputs;
// One item's rows of x stay in a 2 MiB second-level cache beside its weights.
constexpr std::int64_t kChunkFloats = 192 * 1024;
// Below this an item costs less than handing it out.
constexpr std::int64_t kItemProducts = 64 * 1024;

}  // namespace

void matmul(Executor& executor, const PackedMatrix& w, const float* x, std::int64_t rows,
            float* y) {
  if (rows == 0) return;
  // Rows are cut into equal chunks of whole register blocks.
  const std::int64_t chunks = (rows * w.inner() + kChunkFloats - 1) / kChunkFloats;
  const std::int64_t chunk_rows = ((rows + chunks - 1) / chunks + 5) / 6 * 6;
  const std::int64_t row_items = (rows + chunk_rows - 1) / chunk_rows;
  const std::int64_t strip_products = std::min(rows, chunk_rows) * w.inner() * kStripOutputs;
  const std::int64_t strips = std::max<std::int64_t>(1, kItemProducts / strip_products);
  const std::int64_t item_outputs = strips * kStripOutputs;
  const std::int64_t output_items = (w.outputs() + item_outputs - 1) / item_outputs;
  executor.parallel_for(row_items * output_items, [&](int, std::int64_t item) {
    const std::int64_t row = item / output_items * chunk_rows;
    const std::int64_t output = item % output_items * item_outputs;
    const Block block = {.w = w.data(),
                         .f32_weights = w.dtype() == DType::f32,
                         .inner = w.inner(),
                         .outputs = w.outputs(),
                         .x = x,
                         .y = y,
                         .row_begin = row,
                         .row_end = std::min(row + chunk_rows, rows),
                         .output_begin = output,
                         .output_end = std::min(output + item_outputs, w.outputs())};
    HWY_DYNAMIC_DISPATCH(multiply_block)(block);
  });
}

std::string matmul_target() {
  return matmul_targets().front();
}

std::vector<std::string> matmul_targets() {
  std::vector<std::string> names;
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

}  // namespace pagekv::inline v0::engine
#endif  // HWY_ONCE
