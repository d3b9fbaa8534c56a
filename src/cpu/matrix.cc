// The matrix unit's kernels (cpu/matrix_kernels.h) with AMX. Processors that have it have AVX-512,
// whose intrinsics do what lies between two tiles.
#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"
#include "cpu/matrix_kernels.h"
#include "hwy/highway.h"

#if HWY_ARCH_X86
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/amx.h"

namespace pagekv::inline v0::internal {

namespace {

#define PAGEKV_AVX512 __attribute__((target("avx512f,avx512bw")))

constexpr std::int64_t kStepRows = AmxConfig::kRows;  // pairs of elements of a step
constexpr std::int64_t kRowElements = 2 * kTileTokens;
constexpr std::int64_t kStepElements = kStepRows * kRowElements;  // a tile on the right, 1 KiB
constexpr std::int64_t kFloatBytes = sizeof(float);
constexpr std::int64_t kHalfBytes = sizeof(std::uint16_t);

// ---- Scores

// Keys of one tile for the step at `dim`: where they lie, or copied with zeros behind the last.
const std::byte* key_step(const std::byte* tile, std::int64_t dim, std::int64_t dims,
                          std::byte* room) {
  const std::byte* from = tile + dim / 2 * AmxConfig::kRowBytes;
  if (dim + kMatrixDims <= dims) return from;
  const std::int64_t bytes = (dims - dim) / 2 * AmxConfig::kRowBytes;
  std::memcpy(room, from, static_cast<std::size_t>(bytes));
  std::memset(room + bytes, 0, static_cast<std::size_t>(kStepElements * kHalfBytes - bytes));
  return room;
}

struct ScoreCall {
  const SpanTiles& span;
  std::int64_t dim;
  const std::uint16_t* queries;
  std::int64_t parts;
  std::int64_t stride;
  float* logits;
};

template <int kAt, int kTiles>
inline void add_key_tiles(const ScoreCall& call, std::int64_t tile, std::int64_t dim,
                          AskAhead& ask) {
  if constexpr (kAt < kTiles) {
    alignas(64) std::byte room[kStepElements * kHalfBytes];
    const std::byte* keys =
        key_step(call.span.k[static_cast<std::size_t>(tile + kAt)][0], dim, call.dim, room);
    ask();
    amx_load<AmxConfig::kRight + kAt % 2>(keys, AmxConfig::kRowBytes);
    amx_add_bf16<kAt, AmxConfig::kLeft, AmxConfig::kRight + kAt % 2>();
    if (call.parts == 2) amx_add_bf16<kAt, AmxConfig::kLeft + 1, AmxConfig::kRight + kAt % 2>();
    add_key_tiles<kAt + 1, kTiles>(call, tile, dim, ask);
  }
}

template <int kTiles>
void score_tiles(const ScoreCall& call, std::int64_t tile, AskAhead& ask) {
  amx_zero_sums<kTiles>();
  const std::int64_t row_bytes = matrix_padded(call.dim) * kHalfBytes;
  for (std::int64_t dim = 0; dim < call.dim; dim += kMatrixDims) {
    amx_load<AmxConfig::kLeft>(call.queries + dim, row_bytes);
    if (call.parts == 2)
      amx_load<AmxConfig::kLeft + 1>(call.queries + call.stride + dim, row_bytes);
    add_key_tiles<0, kTiles>(call, tile, dim, ask);
  }
  amx_store_sums<kTiles>(call.logits + tile * kTileTokens, kTileTokens * kFloatBytes,
                         kSpanTokens * kFloatBytes);
}

void score(const SpanTiles& span, std::int64_t dim, const std::uint16_t* queries,
           std::int64_t parts, std::int64_t stride, std::int64_t count, TokenRange tiles,
           AskAhead& ask, float* logits) {
  const AmxConfig config(count);
  const AmxTiles configured(config);
  const ScoreCall call{span, dim, queries, parts, stride, logits};
  ask.spread((tiles.end - tiles.begin) * (matrix_padded(dim) / kMatrixDims));
  std::int64_t tile = tiles.begin;
  for (; tile + 4 <= tiles.end; tile += 4) score_tiles<4>(call, tile, ask);
  switch (tiles.end - tile) {
    case 3: return score_tiles<3>(call, tile, ask);
    case 2: return score_tiles<2>(call, tile, ask);
    case 1: return score_tiles<1>(call, tile, ask);
    default: return;
  }
}

// ---- Values

// Elements [dim, dim + 32) of two rows into pairs, of two blocks of 16 dims. `elements`: of these
// that the rows have.
PAGEKV_AVX512 inline void pair_elements(const std::uint16_t* even, const std::uint16_t* odd,
                                        std::int64_t elements, std::uint16_t* first,
                                        std::uint16_t* second) {
  const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8,
                                       39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
  const auto mask = static_cast<__mmask32>(elements >= 32 ? ~0u : (1u << elements) - 1);
  const __m512i a = even == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(mask, even);
  const __m512i b = odd == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi16(mask, odd);
  _mm512_storeu_si512(first, _mm512_permutex2var_epi16(a, low, b));
  if (elements > 16) _mm512_storeu_si512(second, _mm512_permutex2var_epi16(a, high, b));
}

// Rows [32 * step, 32 * (step + 1)) of the span, dims [first, end), as a tile on the right for each
// 16 dims. What may not be read is 0.
PAGEKV_AVX512 void pair_step(const SpanTiles& span, std::int64_t step, std::int64_t dim,
                             TokenRange dims, AskAhead& ask, std::uint16_t* to) {
  for (std::int64_t pair = 0; pair < kStepRows; ++pair, to += kRowElements) {
    const std::int64_t token = step * kMatrixDims + 2 * pair;
    const auto row = [&](std::int64_t at) {
      return reinterpret_cast<const std::uint16_t*>(span.value_row(at, dim * kHalfBytes));
    };
    const std::uint16_t* even = row(token);
    const std::uint16_t* odd = row(token + 1);
    std::uint16_t* blocks = to;
    for (std::int64_t from = dims.begin; from < dims.end; from += 32, blocks += 2 * kStepElements) {
      ask();
      pair_elements(even == nullptr ? nullptr : even + from, odd == nullptr ? nullptr : odd + from,
                    dims.end - from, blocks, blocks + kStepElements);
    }
  }
}

constexpr std::int64_t blocks_of(std::int64_t dim) {
  return (dim + AmxConfig::kRows - 1) / AmxConfig::kRows;
}

TokenRange steps_of(TokenRange tokens) {
  return {tokens.begin / kMatrixDims, (tokens.end + kMatrixDims - 1) / kMatrixDims};
}

// Calls of pair_elements() for these steps.
std::int64_t pairs_of(TokenRange steps, std::int64_t dim) {
  return (steps.end - steps.begin) * kStepRows * (matrix_padded(dim) / kMatrixDims);
}

void pair_rows(const SpanTiles& span, std::int64_t dim, AskAhead& ask, std::uint16_t* pairs) {
  const TokenRange steps = steps_of({span.begin, span.end});
  ask.spread(pairs_of(steps, dim));
  for (std::int64_t step = steps.begin; step < steps.end; ++step) {
    pair_step(span, step, dim, {0, dim}, ask, pairs + step * blocks_of(dim) * kStepElements);
  }
}

struct AddCall {
  TokenRange steps;
  const float* p;
  std::int64_t out_stride;
};

// Adds one step's products to the sums of kBlocks blocks.
template <int kAt, int kBlocks>
inline void add_value_blocks(const std::uint16_t* pairs) {
  if constexpr (kAt < kBlocks) {
    amx_load<AmxConfig::kRight + kAt % 2>(pairs + kAt * kStepElements, AmxConfig::kRowBytes);
    amx_add_bf16<kAt, AmxConfig::kLeft, AmxConfig::kRight + kAt % 2>();
    add_value_blocks<kAt + 1, kBlocks>(pairs);
  }
}

// kBlocks times 16 dims from `block` on; pairs(step): the first of these of a step.
template <int kBlocks, typename Pairs>
inline void add_blocks(const AddCall& call, std::int64_t block, const Pairs& pairs, float* out) {
  amx_zero_sums<kBlocks>();
  const auto* p = reinterpret_cast<const std::byte*>(call.p);
  for (std::int64_t step = call.steps.begin; step < call.steps.end; ++step) {
    const std::uint16_t* from = pairs(step);
    amx_load<AmxConfig::kLeft>(p + step * AmxConfig::kRowBytes, kSpanTokens * kFloatBytes);
    add_value_blocks<0, kBlocks>(from);
  }
  amx_store_sums<kBlocks>(out + block * AmxConfig::kRows, AmxConfig::kRows * kFloatBytes,
                          call.out_stride * kFloatBytes);
}

// Four blocks at a time: as many sums as there are registers for. pairs(first block, blocks, step).
template <typename Pairs>
void add_all_blocks(const AddCall& call, std::int64_t dim, const Pairs& pairs, float* out) {
  const std::int64_t blocks = blocks_of(dim);
  for (std::int64_t block = 0; block < blocks; block += 4) {
    const std::int64_t count = std::min<std::int64_t>(4, blocks - block);
    const auto of_step = [&](std::int64_t step) { return pairs(block, count, step); };
    switch (count) {
      case 1: add_blocks<1>(call, block, of_step, out); break;
      case 2: add_blocks<2>(call, block, of_step, out); break;
      case 3: add_blocks<3>(call, block, of_step, out); break;
      default: add_blocks<4>(call, block, of_step, out);
    }
  }
}

void add(const std::uint16_t* pairs, std::int64_t dim, TokenRange tokens, const float* p,
         std::int64_t count, std::int64_t out_stride, float* out) {
  const AmxConfig config(count);
  const AmxTiles configured(config);
  const auto stored = [&](std::int64_t block, std::int64_t /* blocks */, std::int64_t step) {
    return pairs + (step * blocks_of(dim) + block) * kStepElements;
  };
  add_all_blocks({steps_of(tokens), p, out_stride}, dim, stored, out);
}

void add_span(const SpanTiles& span, std::int64_t dim, AskAhead& ask, TokenRange tokens,
              const float* p, std::int64_t count, std::int64_t out_stride, float* out) {
  const AmxConfig config(count);
  const AmxTiles configured(config);
  ask.spread(pairs_of(steps_of(tokens), dim));
  alignas(64) std::uint16_t room[4 * kStepElements];  // stays in the first cache
  const auto paired = [&](std::int64_t block, std::int64_t blocks, std::int64_t step) {
    const std::int64_t first = block * AmxConfig::kRows;
    pair_step(span, step, dim, {first, std::min(first + blocks * AmxConfig::kRows, dim)}, ask,
              room);
    return static_cast<const std::uint16_t*>(room);
  };
  add_all_blocks({steps_of(tokens), p, out_stride}, dim, paired, out);
}

}  // namespace

bool bind_matrix(KernelTable& table) {
  if (table.target != HWY_AVX3 || !amx_allowed()) return false;
  bind_few_rows(table);
  bind_matrix_codes(table);
  bind_softmax_bf16(table);
  table.matrix.score = score;
  table.matrix.pair_rows = pair_rows;
  table.matrix.add = add;
  table.matrix.add_span = add_span;
  return true;
}

}  // namespace pagekv::inline v0::internal

#else

namespace pagekv::inline v0::internal {

bool bind_matrix(KernelTable& /* table */) {
  return false;
}

}  // namespace pagekv::inline v0::internal

#endif
