#include "cpu/attend_keys.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "cpu/attend_rows.h"
#include "cpu/denormals.h"

namespace pagekv::inline v0::internal {

namespace {

bool takes_codes(const AttendCall& call, std::size_t codec) {
  if (!call.integers || !is_affine(codec)) return false;
  const std::int64_t step = call.kernels.codes.key_step[codec - kFirstAffine];
  return step != 0 && call.key_side.group % step == 0;
}

TokenRange tiles_of(TokenRange tokens) {
  return {tokens.begin / kTileTokens, (tokens.end + kTileTokens - 1) / kTileTokens};
}

// Queries that are bf16 as they are given need no second part.
std::int64_t query_parts(const AttendCall& call) {
  return call.args.q.dtype == DType::bf16 && !call.layer.format.k.is_rotated() ? 1 : 2;
}

}  // namespace

BlockKeys::Way BlockKeys::way_of(const BlockQueries& queries, std::size_t codec) {
  if (takes_matrix(queries.call, codec)) {
    return queries.count >= kLeastMatrixQueries ? Way::matrix : Way::few;
  }
  if (takes_codes(queries.call, codec)) {
    const bool bytes = takes_bytes(queries) && queries.call.key_side.group % kLeastCodeGroup == 0;
    return bytes ? Way::bytes : Way::codes;
  }
  return queries.count >= kWideQueries ? Way::wide : Way::narrow;
}

BlockKeys::BlockKeys(const BlockQueries& queries, const SpanReader& reader, AttendScratch& scratch)
    : queries_(queries),
      call_(queries.call),
      kernels_(queries.call.kernels),
      reader_(reader),
      scratch_(scratch),
      dim_(queries.call.shape.key_dim),
      codec_(codec_index(queries.call.layer.format.k)),
      way_(way_of(queries, codec_)),
      parts_(query_parts(queries.call)) {}

void BlockKeys::pack() {
  switch (way_) {
    case Way::matrix: return pack_matrix();
    case Way::few: return pack_few();
    case Way::codes: return pack_codes();
    case Way::bytes: return pack_bytes();
    case Way::narrow:
    case Way::wide: return pack_floats();
  }
}

void BlockKeys::score(std::int64_t start, SpanTiles& span) {
  AskAhead ask = span.next_values.lines();
  switch (way_) {
    case Way::matrix: return score_matrix(start, span, ask);
    case Way::few: return score_few(start, span, ask);
    case Way::codes: return score_codes(start, span, ask);
    case Way::bytes: return score_bytes(start, span, ask);
    case Way::narrow: return score_narrow(start, span, ask);
    case Way::wide: return score_wide(start, span);
  }
}

// ---- matrix

// A query as the sum of parts_ bf16 vectors of matrix_padded(dim_) elements, `stride` apart.
void BlockKeys::split_query(std::int64_t query, std::uint16_t* parts, std::int64_t stride) const {
  constexpr float kLargest = 0x1.fep127f;  // of bf16: what is more goes into the second part
  alignas(64) std::array<float, kMaxHeadDim> q;
  load_query(call_, queries_.row(query), queries_.head(query), q.data());
  const auto to_bf16 = kernels_.convert[dtype_index(DType::f32)][dtype_index(DType::bf16)];
  if (!to_bf16(q.data(), parts, dim_)) {
    for (std::int64_t i = 0; i < dim_; ++i) {
      parts[i] = bf16_from_f32(std::clamp(q[static_cast<std::size_t>(i)], -kLargest, kLargest));
    }
  }
  std::fill(parts + dim_, parts + matrix_padded(dim_), std::uint16_t{0});
  if (parts_ == 1) return;
  for (std::int64_t i = 0; i < dim_; ++i) {
    q[static_cast<std::size_t>(i)] -= f32_from_bf16(parts[i]);
  }
  to_bf16(q.data(), parts + stride, dim_);
  std::fill(parts + stride + dim_, parts + stride + matrix_padded(dim_), std::uint16_t{0});
}

void BlockKeys::pack_matrix() {
  const std::int64_t width = matrix_padded(dim_);
  for (std::int64_t j = 0; j < queries_.count; ++j) {
    split_query(j, scratch_.matrix_queries() + j * width, queries_.count * width);
  }
}

void BlockKeys::pack_few() {
  alignas(64) std::array<std::uint16_t, 2 * matrix_padded(kMaxHeadDim)> parts;
  const std::int64_t stride = matrix_padded(dim_);
  const std::int64_t step = kFewVectors / parts_;
  for (std::int64_t j = 0; j < queries_.count; ++j) {
    split_query(j, parts.data(), stride);
    float* to = scratch_.few_queries(j / step, dim_) + j % step * parts_;
    for (std::int64_t dim = 0; dim < dim_; ++dim) {
      for (std::int64_t part = 0; part < parts_; ++part) {
        to[dim * kFewVectors + part] =
            f32_from_bf16(parts[static_cast<std::size_t>(part * stride + dim)]);
      }
    }
  }
}

void BlockKeys::score_matrix(std::int64_t start, SpanTiles& span, AskAhead& ask) {
  reader_.stage(start, span, reinterpret_cast<std::byte*>(scratch_.keys));
  const std::int64_t width = matrix_padded(dim_);
  const auto score = [&](std::int64_t j, std::int64_t count, TokenRange range) {
    kernels_.matrix.score(span, dim_, scratch_.matrix_queries() + j * width, parts_,
                          queries_.count * width, count, tiles_of(range), ask,
                          scratch_.logits + j * kSpanTokens);
  };
  queries_.for_each_seen(start, kMatrixQueries, score);
}

void BlockKeys::score_few(std::int64_t start, SpanTiles& span, AskAhead& ask) {
  reader_.stage(start, span, reinterpret_cast<std::byte*>(scratch_.keys));
  const FlushDenormals flush;
  const std::int64_t step = kFewVectors / parts_;
  for (std::int64_t j = 0; j < queries_.count; j += step) {
    kernels_.matrix.score_few(span, dim_, scratch_.few_queries(j / step, dim_),
                              std::min(step, queries_.count - j), parts_, ask,
                              scratch_.logits + j * kSpanTokens);
  }
}

// ---- codes

CodeQueries BlockKeys::code_queries(std::int64_t first) const {
  return CodeQueries::carve(
      scratch_.code_queries + first / kCodeQueries * CodeQueries::floats(dim_), dim_);
}

void BlockKeys::pack_codes() {
  const CodeKernels::PackQuery* pack_query = kernels_.codes.pack_query[codec_ - kFirstAffine];
  for (std::int64_t j = 0; j < queries_.count; ++j) {
    float* q = scratch_.packed_q + j * dim_;  // kept for tokens that take no integers
    load_query(call_, queries_.row(j), queries_.head(j), q);
    pack_query(q, call_.key_side, j % kCodeQueries, code_queries(j));
  }
}

void BlockKeys::score_codes(std::int64_t start, SpanTiles& span, AskAhead& ask) {
  reader_.stage(start, span, reinterpret_cast<std::byte*>(scratch_.keys));
  SpanBits large{};
  const auto score = [&](std::int64_t j, std::int64_t count, TokenRange /* all tiles */) {
    kernels_.codes.score[codec_ - kFirstAffine](span, call_.key_side, code_queries(j), count, ask,
                                                scratch_.logits + j * kSpanTokens, large);
  };
  queries_.for_each_seen(start, kCodeQueries, score);
  for_each_token(large, [&](std::int64_t token) { score_large(token, span); });
}

// A token whose elements may exceed f32: they are widened, which saturates, and multiplied one by
// one.
void BlockKeys::score_large(std::int64_t token, const SpanTiles& span) {
  const std::int64_t tile = token / kTileTokens;
  kernels_.widen_keys[codec_](span.k[static_cast<std::size_t>(tile)], call_.key_side,
                              scratch_.key_tile);
  for (std::int64_t j = 0; j < queries_.count; ++j) {
    const float* q = scratch_.packed_q + j * dim_;
    float sums[2] = {0.0f, 0.0f};
    for (std::int64_t dim = 0; dim < dim_; ++dim) {
      sums[dim % 2] += q[dim] * scratch_.key_tile[dim * kTileTokens + token % kTileTokens];
    }
    scratch_.logits[j * kSpanTokens + token] = sums[0] + sums[1];
  }
}

// ---- narrow and wide

void BlockKeys::pack_floats() {
  const std::int64_t width = way_ == Way::wide ? kernels_.wide_queries : kernels_.narrow_queries;
  alignas(64) std::array<float, kMaxHeadDim> q;
  for (std::int64_t j = 0; j < (queries_.count + width - 1) / width * width; ++j) {
    if (j < queries_.count) {
      load_query(call_, queries_.row(j), queries_.head(j), q.data());
    } else {
      q.fill(0.0f);  // fills the last kernel block; its results are not looked at
    }
    float* to = scratch_.packed_q + j / width * width * dim_ + j % width;
    for (std::int64_t dim = 0; dim < dim_; ++dim)
      to[dim * width] = q[static_cast<std::size_t>(dim)];
  }
}

void BlockKeys::score_narrow(std::int64_t start, SpanTiles& span, AskAhead& ask) {
  std::size_t type = codec_;
  if (codec_ < kDTypes) {
    reader_.stage(start, span, reinterpret_cast<std::byte*>(scratch_.keys));
  } else {
    type = dtype_index(DType::f32);  // [key_dim][16] floats are f32 keys in key_tile16 form
    for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
      float* to = scratch_.keys + tile * kTileTokens * dim_;
      widen_tile(start, tile, span, to);
      span.k[static_cast<std::size_t>(tile)] = {reinterpret_cast<const std::byte*>(to)};
    }
  }
  kernels_.score_narrow[type](span, dim_, ask, scratch_.packed_q, queries_.count, scratch_.logits);
}

void BlockKeys::score_wide(std::int64_t start, const SpanTiles& span) {
  widen_span(start, span);
  const std::int64_t step = kernels_.wide_tiles;
  for (std::int64_t tile = span.first_tile / step * step; tile < span.end_tile; tile += step) {
    for (std::int64_t j = 0; j < queries_.count; j += kernels_.wide_queries) {
      const TokenRange range = queries_.visible_in(start, j, kernels_.wide_queries);
      if (range.end <= tile * kTileTokens || range.begin >= (tile + step) * kTileTokens) continue;
      kernels_.score_wide(scratch_.keys + tile * kTileTokens * dim_, dim_,
                          scratch_.packed_q + j * dim_,
                          scratch_.logits + j * kSpanTokens + tile * kTileTokens);
    }
  }
}

void BlockKeys::widen_span(std::int64_t start, const SpanTiles& span) {
  const std::int64_t tile_floats = kTileTokens * dim_;
  const std::int64_t step = kernels_.wide_tiles;
  const std::int64_t first = span.first_tile / step * step;
  const std::int64_t end = (span.end_tile + step - 1) / step * step;
  for (std::int64_t tile = first; tile < end; ++tile) {
    float* to = scratch_.keys + tile * tile_floats;
    if (tile < span.first_tile || tile >= span.end_tile) {
      std::fill_n(to, tile_floats, 0.0f);  // scored beside its neighbour, then masked
    } else {
      widen_tile(start, tile, span, to);
    }
  }
}

void BlockKeys::widen_tile(std::int64_t start, std::int64_t tile, const SpanTiles& span,
                           float* to) {
  const ConstPlanePointers keys =
      reader_.stage_tile(start, tile, span, reinterpret_cast<std::byte*>(scratch_.key_tile));
  kernels_.widen_keys[codec_](keys, call_.key_side, to);
}

}  // namespace pagekv::inline v0::internal
