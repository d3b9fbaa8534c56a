// The ways of BlockKeys and BlockValues that multiply codes as bytes by the matrix unit
// (cpu/matrix_kernels.h).
#include <algorithm>
#include <array>
#include <cstring>

#include "cpu/attend_keys.h"
#include "cpu/attend_values.h"
#include "cpu/value_bytes.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t kMostStepBytes = 64;

std::size_t tile_count(TokenRange tiles) {
  return static_cast<std::size_t>(tiles.end - tiles.begin);
}

}  // namespace

// ---- Keys

// [kByteQueries of them][part][query][dim].
void BlockKeys::pack_bytes() {
  pack_codes();
  for (std::int64_t j = 0; j < queries_.count; ++j) {
    const std::uint32_t* words = code_queries(j).words + j % kCodeQueries * 2;
    std::int8_t* to =
        scratch_.query_bytes + (j / kByteQueries * 2 * kByteQueries + j % kByteQueries) * dim_;
    for (std::int64_t quad = 0; quad < dim_ / kQuad; ++quad, words += 2 * kCodeQueries) {
      std::memcpy(to + quad * kQuad, words, kQuad);
      std::memcpy(to + kByteQueries * dim_ + quad * kQuad, words + 1, kQuad);
    }
  }
}

// Bytes of a row that are multiplied at once.
std::int64_t BlockKeys::step_bytes() const {
  return std::min<std::int64_t>(call_.key_side.group, kMostStepBytes);
}

void BlockKeys::score_bytes(std::int64_t start, SpanTiles& span, AskAhead& ask) {
  reader_.stage(start, span, reinterpret_cast<std::byte*>(scratch_.keys));
  const bool as_stored = kAffineWidths[codec_ - kFirstAffine] == 8;
  const std::int64_t dims = kernels_.codes.key_step[codec_ - kFirstAffine];
  ask.spread((span.end_tile - span.first_tile) * dim_ / (as_stored ? step_bytes() : dims));
  const MatrixTiles configured(kernels_.matrix, 2 * kByteQueries, step_bytes());
  SpanBits large{};
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; tile += kByteTiles) {
    const TokenRange tiles{tile, std::min(tile + kByteTiles, span.end_tile)};
    TileQuads quads{};
    if (as_stored) {
      for (std::size_t i = 0; i < tile_count(tiles); ++i) {
        const std::byte* codes = span.k[static_cast<std::size_t>(tile) + i][0];
        quads[i] = reinterpret_cast<const std::uint8_t*>(codes);
      }
    } else {
      spread_tiles(span, tiles, ask, quads);
    }
    const auto score = [&](std::int64_t j, std::int64_t count, TokenRange range) {
      if (range.begin >= tiles.end * kTileTokens || range.end <= tiles.begin * kTileTokens) return;
      score_tiles(span, tiles, quads, j, count, ask, large);
    };
    queries_.for_each_seen(start, kByteQueries, score);
  }
  for_each_token(large, [&](std::int64_t token) { score_large(token, span); });
}

void BlockKeys::spread_tiles(const SpanTiles& span, TokenRange tiles, AskAhead& ask,
                             TileQuads& quads) {
  kernels_.codes.spread_keys[codec_ - kFirstAffine](span, call_.key_side, tiles, ask,
                                                    scratch_.key_quads);
  for (std::size_t i = 0; i < tile_count(tiles); ++i) {
    quads[i] = scratch_.key_quads + static_cast<std::int64_t>(i) * kTileTokens * dim_;
  }
}

// Scores of these tiles for queries [first, first + count).
void BlockKeys::score_tiles(const SpanTiles& span, TokenRange tiles, const TileQuads& quads,
                            std::int64_t first, std::int64_t count, AskAhead& ask,
                            SpanBits& large) {
  const SideShape& side = call_.key_side;
  std::array<CodeQueries, kByteQueries / kCodeQueries> blocks;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i] = code_queries(first + static_cast<std::int64_t>(i) * kCodeQueries);
  }
  TileQuads right = quads;
  for (std::int64_t group = 0; group < side.groups; ++group) {
    kernels_.matrix.multiply_bytes(
        {.left = scratch_.query_bytes + first * 2 * dim_ + group * side.group,
         .row_bytes = dim_,
         .right = right.data(),
         .vectors = tiles.end - tiles.begin,
         .steps = side.group / step_bytes(),
         .step_bytes = step_bytes()},
        ask, scratch_.totals);
    kernels_.codes.finish_scores(span, side, group, blocks.data(), count, tiles, scratch_.totals,
                                 scratch_.logits + first * kSpanTokens, large);
    for (std::size_t i = 0; i < tile_count(tiles); ++i) right[i] += side.group * kTileTokens;
  }
}

// ---- Values

void BlockValues::add_bytes(std::int64_t start, const SpanTiles& span, AskAhead& ask) {
  const SideShape& side = call_.value_side;
  const CodeRows rows = code_rows();
  SpanBits large{};
  kernels_.codes.load_scales(span, side, rows, large);
  const TokenRange steps = byte_steps(span);
  const std::int64_t low_bytes = form_->table == nullptr ? 0 : form_->vectors(dim_) * kByteVector;
  spread_codes(span, low_bytes, 1, ask, rows);
  const auto weights = CodeWeights::by_part(scratch_.code_weights, kByteQueries, side.groups);
  for (std::int64_t group = 0; group < side.groups; ++group) {
    std::fill_n(weights.of(0, group) - weights.part_words, weights.part_words, std::uint32_t{0});
  }
  ByteVectors vectors;
  for (std::int64_t i = 0; i < form_->vectors(dim_); ++i) {
    vectors[static_cast<std::size_t>(i)] =
        rows.codes + i * kByteVector + steps.begin * kByteStepTokens * 16;
  }
  const MatrixTiles configured(kernels_.matrix, 2 * kByteQueries, kByteStepTokens);
  const auto add = [&](std::int64_t j, std::int64_t count, TokenRange /* all rows */) {
    kernels_.codes.weigh(span, rows, side, scratch_.logits + j * kSpanTokens, count, weights);
    multiply_bytes(weights, steps, vectors);
    finish_bytes(weights, count, scratch_.span_out + j * width_);
  };
  queries_.for_each_seen(start, kByteQueries, add);
  add_large(large, span);
}

// The totals of all vectors.
void BlockValues::multiply_bytes(const CodeWeights& weights, TokenRange steps,
                                 const ByteVectors& first) const {
  AskAhead nothing;
  const std::int64_t groups = call_.value_side.groups;
  const std::int64_t vectors = form_->vectors(dim_);
  const std::int64_t each = vectors / groups;
  for (std::int64_t group = 0; group < groups; ++group) {
    const std::uint32_t* words = weights.of(0, group) + steps.begin * (kByteStepTokens / kQuad);
    const std::uint32_t* low = form_->table == nullptr ? nullptr : words - weights.part_words;
    kernels_.matrix.multiply_bytes({.left = reinterpret_cast<const std::int8_t*>(words),
                                    .row_bytes = kSpanTokens,
                                    .right = first.data() + group * each,
                                    .vectors = each,
                                    .steps = steps.end - steps.begin,
                                    .step_bytes = kByteStepTokens,
                                    .low = reinterpret_cast<const std::int8_t*>(low),
                                    .low_bytes = vectors * kByteVector},
                                   nothing, scratch_.totals + group * each * kByteTotals);
  }
}

void BlockValues::finish_bytes(const CodeWeights& weights, std::int64_t count, float* out) const {
  const std::int64_t groups = call_.value_side.groups;
  const std::int64_t each = form_->vectors(dim_) / groups;
  for (std::int64_t group = 0; group < groups; ++group) {
    kernels_.codes.finish_sums(scratch_.totals + group * each * kByteTotals, each, count,
                               weights.factors + group, weights.sums + group, groups, width_,
                               out + group * each * 16);
  }
}

}  // namespace pagekv::inline v0::internal
