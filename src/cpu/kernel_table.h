// KernelTable: every vectorised piece of the CPU device for one instruction set.
//
// The loop nests around these pieces are plain C++ and hold a `const KernelTable*`, so devices with
// different targets live side by side. Kernels have no state and are safe on any thread. All sizes
// are elements unless named otherwise; every dim is a multiple of 8. Kernels that read pages call
// `ask` meanwhile.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "codec/hadamard.h"
#include "core/softmax_state.h"
#include "core/token_range.h"
#include "cpu/ahead.h"
#include "cpu/code_weights.h"
#include "cpu/constants.h"
#include "cpu/head_planes.h"
#include "cpu/matrix_kernels.h"
#include "pagekv/codec.h"
#include "pagekv/dtype.h"

namespace pagekv::inline v0::internal {

inline constexpr std::size_t kDTypes = 3;
constexpr std::size_t dtype_index(DType type) {
  return static_cast<std::size_t>(type);
}

// Kernels are made per codec kind and width; groups and types of scales are arguments.
inline constexpr std::array kAffineWidths = {2, 3, 4, 5, 6, 8};
inline constexpr std::array kCodebookWidths = {1, 2, 3, 4, 5, 8};
inline constexpr std::size_t kFirstAffine = kDTypes;
inline constexpr std::size_t kFirstCodebook = kFirstAffine + kAffineWidths.size();
inline constexpr std::size_t kCodecs = kFirstCodebook + kCodebookWidths.size();
inline constexpr std::size_t kQuantized = kCodecs - kFirstAffine;

constexpr bool is_affine(std::size_t codec) {
  return codec >= kFirstAffine && codec < kFirstCodebook;
}

// REQUIRES: a codec that VectorCodec::resolve() accepts.
std::size_t codec_index(const VectorCodec& codec);

struct ValueBytes;

// One side of a head as it is stored: all that kernels made for its codec's kind and width ask.
struct SideShape {
  std::int64_t dim = 0;
  std::int64_t group = 0;              // elements that share a scale
  std::int64_t groups = 0;             // of a vector
  DType scales = DType::bf16;          // of scales and biases; of dense elements
  ScaleFit fit = ScaleFit::rms;        // of a codebook
  const Rotation* rotation = nullptr;  // null: not rotated
  std::array<std::int64_t, kMaxPlanes> row_bytes{};
};
SideShape side_shape(const VectorCodec& codec, const PlaneLayouts& planes, std::int64_t dim);

// What may be read of one span of one KV head: tokens [begin, end) counted from the span's start,
// which tiles [first_tile, end_tile) hold.
struct SpanTiles {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_tile = 0;
  std::int64_t end_tile = 0;
  std::array<ConstPlanePointers, kSpanTiles> k{};  // in key_tile16 form, all 16 tokens readable
  std::array<ConstPlanePointers, kSpanTiles> v{};  // row 0 of the tile, row-major
  // Worth asking for while keys are scored: the values of these tiles; while values are added: the
  // keys of the span that will be read next.
  Ahead next_values;
  Ahead next_keys;

  // Rows of tile `tile` that may be read, counted from its first.
  TokenRange rows(std::int64_t tile) const {
    return {std::max<std::int64_t>(begin - tile * kTileTokens, 0),
            std::min(end - tile * kTileTokens, kTileTokens)};
  }
  // Codes or elements of a token's value, `row_bytes` bytes; null where it may not be read.
  const std::byte* value_row(std::int64_t token, std::int64_t row_bytes) const {
    if (token < begin || token >= end) return nullptr;
    return v[static_cast<std::size_t>(token / kTileTokens)][0] + token % kTileTokens * row_bytes;
  }
};

// Attention over codes in integers (cpu/code_weights.h). All null where the target has no vectors.
// Arrays by width, in the order of kAffineWidths, or by codec: then those of kCodebookWidths, null
// for what is not looked up (cpu/code_table.h).
struct CodeKernels {
  // Query `query` of a kernel block, of elements q[dim].
  using PackQuery = void(const float* q, const SideShape& shape, std::int64_t query,
                         const CodeQueries& to);
  std::array<PackQuery*, kAffineWidths.size()> pack_query{};
  // Keys can be scored where this divides their groups.
  std::array<std::int64_t, kAffineWidths.size()> key_step{};
  // logits[query][token] of `count` queries, for all tokens of the span's tiles, and which of these
  // have a scale beyond kLarge: their logits mean nothing.
  using Score = void(const SpanTiles& span, const SideShape& shape, const CodeQueries& queries,
                     std::int64_t count, AskAhead& ask, float* logits, SpanBits& large);
  std::array<Score*, kAffineWidths.size()> score{};

  // The same in two steps where the matrix unit multiplies. The key codes of `tiles` as quads of
  // bytes, [tile][quad][16 tokens];
  using SpreadKeys = void(const SpanTiles& span, const SideShape& shape, TokenRange tiles,
                          AskAhead& ask, std::uint8_t* quads);
  std::array<SpreadKeys*, kAffineWidths.size()> spread_keys{};
  // and what one group's totals (MatrixKernels::ByteProduct) of these tiles, for `count` queries,
  // kCodeQueries in each of `queries`, add to their logits.
  using FinishScores = void(const SpanTiles& span, const SideShape& shape, std::int64_t group,
                            const CodeQueries* queries, std::int64_t count, TokenRange tiles,
                            const std::int32_t* totals, float* logits, SpanBits& large);
  FinishScores* finish_scores = nullptr;

  // The span's value rows, whose groups are multiples of 16. Tokens with a scale beyond kLarge are
  // marked and have no part in what add() gives.
  using PrepareRows = void(const SpanTiles& span, const SideShape& shape, AskAhead& ask,
                           CodeRows& rows, SpanBits& large);
  std::array<PrepareRows*, kQuantized> prepare_rows{};
  // Where each dim is in what add() gives; false where they are in order.
  using Positions = bool(const SideShape& shape, std::uint16_t* positions);
  std::array<Positions*, kQuantized> positions{};
  // p[query][token] times scales and biases, of `count` queries.
  using Weigh = void(const SpanTiles& span, const CodeRows& rows, const SideShape& shape,
                     const float* p, std::int64_t count, const CodeWeights& to);
  Weigh* weigh = nullptr;
  // out[query * stride + positions[dim]] = sum over tokens of p[query][token] *
  // element[token][dim]. Writes CodeRows::padded(dim) floats for each query, those of no dim
  // meaning nothing.
  using Add = void(const CodeRows& rows, const SideShape& shape, const CodeWeights& weights,
                   std::int64_t count, AskAhead& ask, std::int64_t stride, float* out);
  Add* add = nullptr;
  // What prepare_rows() does, in two steps, where the target moves bytes (else null) and for the
  // matrix unit: value rows as bytes, tokens [64 * step, 64 * (step + 1)) for each of `steps`,
  // zeros for what may not be read. A vector has 16 dims of all tokens, the next one `vector_bytes`
  // behind it. Codes that are looked up are so where there is `low_bytes`, from their high part to
  // the low.
  using SpreadValues = void(const SpanTiles& span, const SideShape& shape, const ValueBytes& form,
                            TokenRange steps, std::int64_t vector_bytes, std::int64_t low_bytes,
                            AskAhead& ask, std::uint8_t* to);
  SpreadValues* spread_values = nullptr;
  // Scales and biases of the span's tokens,
  // marks as prepare_rows();
  using LoadScales = void(const SpanTiles& span, const SideShape& shape, const CodeRows& rows,
                          SpanBits& large);
  LoadScales* load_scales = nullptr;
  // and out[query * stride + lane] of `count` queries and the vectors of one group, from their
  // totals, factors and sums, which are `groups` apart from query to query.
  using FinishSums = void(const std::int32_t* totals, std::int64_t vectors, std::int64_t count,
                          const float* factors, const float* sums, std::int64_t groups,
                          std::int64_t stride, float* out);
  FinishSums* finish_sums = nullptr;
};

// Attention over codebook values whose centroids are looked up as f32, with scales factored out.
// All null on targets with vectors of less than 8 floats. Arrays in the order of kCodebookWidths.
struct TableKernels {
  // scales[group][token] of the span's tokens. Those beyond kLarge become 0, and their tokens are
  // marked.
  using LoadScales = void(const SpanTiles& span, const SideShape& shape, float* scales,
                          SpanBits& large);
  LoadScales* load_scales = nullptr;
  // weights[group][query][token] = p[query][token] * scales[group][token]
  using Weigh = void(const SpanTiles& span, const SideShape& shape, const float* scales,
                     const float* p, std::int64_t queries, float* weights);
  Weigh* weigh = nullptr;
  // out[query][dim] of 1 to kTableQueries queries.
  using Add = void(const SpanTiles& span, const SideShape& shape, AskAhead& ask,
                   const float* weights, std::int64_t queries, float* out);
  std::array<Add*, kCodebookWidths.size()> add{};
  // The span's centroids as f32 in panels, as widen_values has elements.
  using Spread = void(const SpanTiles& span, const SideShape& shape, std::int64_t panel_dims,
                      float* panels);
  std::array<Spread*, kCodebookWidths.size()> spread{};
};
inline constexpr std::int64_t kTableQueries = 4;

// What a row sees of a span: the tokens of a range, of which `bits` names some, at least one,
// unless it is null.
struct SeenTokens {
  TokenRange range;
  const SpanBits* bits = nullptr;

  bool empty() const { return range.begin >= range.end; }
};

// `factor` without its sign, which the logits of these rows of a span take instead.
inline float positive_factor(float factor, std::int64_t rows, float* logits) {
  if (factor >= 0.0f) return factor;
  for (std::int64_t i = 0; i < rows * kSpanTokens; ++i) logits[i] = -logits[i];
  return -factor;
}

// From a dot product to a logit.
struct LogitMap {
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none

  bool is_capped() const { return softcap > 0.0f; }
  // What brings it, or the capped logit, to base 2.
  float factor() const { return (is_capped() ? 1.0f : scale) * kLog2E; }
};

struct KernelTable {
  const char* name = nullptr;
  std::int64_t target = 0;  // Highway's bit

  // `count` elements (a multiple of 8), rounded to nearest even. Returns whether all stored
  // elements are finite. Equal bytes on every target. [from][to]
  using Convert = bool(const void* from, void* to, std::int64_t count);
  std::array<std::array<Convert*, kDTypes>, kDTypes> convert{};
  // `count` elements (a multiple of 8), finite or not. [from]
  using ToFloat = void(const void* from, float* to, std::int64_t count);
  std::array<ToFloat*, kDTypes> to_float{};

  // ---- Vectors of one head, with the bytes and bits of codec/stored_vector.h.

  // Up to kTileTokens vectors of f32 elements, one after the other and spoiled, into planes whose
  // rows are contiguous. Returns the rows that encode_vector() refuses, a bit each; what is stored
  // of them means nothing. [codec]
  using Encode = std::uint32_t(float* values, std::int64_t rows, const SideShape& shape,
                               const PlanePointers& to);
  std::array<Encode*, kCodecs> encode{};
  // One vector out of planes that are contiguous: rotation undone, saturated at the largest finite
  // value of `type` and rounded to it. False, and nothing written, where a scale (of rotated dense
  // vectors an element) is beyond kLarge and decode_vector() has to do it. [codec]
  using Decode = bool(const ConstPlanePointers& from, const SideShape& shape, DType type,
                      void* vector);
  std::array<Decode*, kCodecs> decode{};
  // In place, as codec/hadamard.h.
  using Rotate = void(const Rotation& rotation, float* values);
  Rotate* rotate = nullptr;
  Rotate* unrotate = nullptr;

  // A plane's rows of 16 tokens, contiguous and one after the other, into a tile of key_tile16
  // form, and back. Of planes in units of 4 bytes.
  using Interleave = void(const std::byte* rows, std::int64_t row_bytes, std::byte* tile);
  Interleave* interleave = nullptr;
  using Deinterleave = void(const std::byte* tile, std::int64_t row_bytes, std::byte* rows);
  Deinterleave* deinterleave = nullptr;

  // ---- Few queries: dense elements straight from the pages, others widened like below.

  // logits[query][token] = dot(q, k) for all tokens of the span's tiles. Queries come packed:
  // [block][key_dim][narrow_queries]. [key type]
  using ScoreNarrow = void(const SpanTiles& span, std::int64_t key_dim, AskAhead& ask,
                           const float* packed_q, std::int64_t queries, float* logits);
  std::array<ScoreNarrow*, kDTypes> score_narrow{};
  std::int64_t narrow_queries = 0;

  // out[query][dim] = sum over t in [span.begin, span.end) of p[query][t] * v[t][dim]. [value type]
  using AddValuesNarrow = void(const SpanTiles& span, std::int64_t value_dim, AskAhead& ask,
                               const float* p, std::int64_t queries, float* out);
  std::array<AddValuesNarrow*, kDTypes> add_values_narrow{};

  // ---- Many queries: the span is widened to f32 once.

  // A key tile in key_tile16 form to [key_dim][16] floats: the stored elements. [key codec]
  using WidenKeys = void(const ConstPlanePointers& tile, const SideShape& shape, float* out);
  std::array<WidenKeys*, kCodecs> widen_keys{};
  // The span's value rows to [panel][token][panel width] floats, panels of `panel_dims` dims (the
  // last may be narrower). [value codec]
  using WidenValues = void(const SpanTiles& span, const SideShape& shape, std::int64_t panel_dims,
                           float* panels);
  std::array<WidenValues*, kCodecs> widen_values{};

  // logits[query][token] for wide_queries queries and the wide_tiles tiles at `tiles`
  // ([tile][key_dim][16]); logits points at the first of these tokens.
  using ScoreWide = void(const float* tiles, std::int64_t key_dim, const float* packed_q,
                         float* logits);
  ScoreWide* score_wide = nullptr;
  std::int64_t wide_queries = 0;
  std::int64_t wide_tiles = 0;

  // out[query][dim of the panel] for wide_values queries; rows of `out` are value_dim apart.
  using AddValuesWide = void(const float* panel, std::int64_t width, std::int64_t begin,
                             std::int64_t end, const float* p, std::int64_t value_dim, float* out);
  AddValuesWide* add_values_wide = nullptr;
  std::int64_t wide_values = 0;  // divides wide_queries
  std::int64_t panel_dims = 0;

  // ---- Arithmetic `fast`: bf16 by the matrix unit, affine codes in integers, codebooks with
  // factored scales.

  MatrixKernels matrix;
  CodeKernels codes;
  TableKernels tables;

  // ---- The softmax of a row.

  // The scaled and capped logits of a row's tokens, in place.
  using CapLogits = void(float* logits, TokenRange range, const LogitMap& map);
  CapLogits* cap_logits = nullptr;
  // Turns the logits of one span, once multiplied with `factor`, in place into p = 2^(logit - max)
  // for what each row sees, and 0 elsewhere; states become the max and the sum of p. Up to
  // kSoftmaxRows rows, kSpanTokens apart. The same bits whether a token is outside the range or has
  // no bit.
  using Softmax = void(float* logits, const SeenTokens* seen, std::int64_t rows, float factor,
                       SoftmaxState* states);
  Softmax* softmax = nullptr;
  // The same for p that are rounded to 16 bits afterwards.
  Softmax* softmax_fast = nullptr;
  // left = fold(left, right) for states with `dims` output values each.
  using Fold = void(SoftmaxState& left, float* left_out, const SoftmaxState& right,
                    const float* right_out, std::int64_t dims);
  Fold* fold = nullptr;
  // values[i] /= divisor
  using Divide = void(float* values, float divisor, std::int64_t count);
  Divide* divide = nullptr;
};

}  // namespace pagekv::inline v0::internal
