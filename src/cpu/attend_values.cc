#include "cpu/attend_values.h"

#include <algorithm>

#include "cpu/denormals.h"
#include "cpu/value_bytes.h"

namespace pagekv::inline v0::internal {

BlockValues::Way BlockValues::way_of(const BlockQueries& queries, std::size_t codec) {
  const AttendCall& call = queries.call;
  if (takes_matrix(call, codec)) {
    return queries.count >= kLeastValueQueries ? Way::matrix : Way::few;
  }
  const std::int64_t group = call.value_side.group;
  const bool whole_vectors = call.value_side.groups == 1 || group % kLeastCodeGroup == 0;
  if (call.integers && codec >= kFirstAffine && whole_vectors) {
    if (call.kernels.codes.prepare_rows[codec - kFirstAffine] != nullptr) {
      return takes_bytes(queries) ? Way::bytes : Way::codes;
    }
    if (!is_affine(codec) && call.kernels.tables.weigh != nullptr) return Way::tables;
  }
  return queries.count >= kWideQueries ? Way::wide : Way::narrow;
}

std::int64_t BlockValues::width_of(Way way, std::int64_t dim) {
  if (way == Way::matrix) return (dim + kMatrixQueries - 1) / kMatrixQueries * kMatrixQueries;
  return way == Way::codes || way == Way::bytes ? CodeRows::padded(dim) : dim;
}

KernelTable::Softmax* BlockValues::softmax() const {
  switch (way_) {
    case Way::matrix: return kernels_.matrix.softmax_packed;
    case Way::few: return kernels_.matrix.softmax;
    case Way::codes:
    case Way::bytes: return kernels_.softmax_fast;
    default: return kernels_.softmax;
  }
}

BlockValues::BlockValues(const BlockQueries& queries, AttendScratch& scratch)
    : queries_(queries),
      call_(queries.call),
      kernels_(queries.call.kernels),
      scratch_(scratch),
      dim_(queries.call.shape.value_dim),
      codec_(codec_index(queries.call.layer.format.v)),
      way_(way_of(queries, codec_)),
      form_(form_of(way_)),
      width_(width_of(way_, dim_)) {
  if (way_ == Way::codes) {
    moved_ = kernels_.codes.positions[codec_ - kFirstAffine](call_.value_side, position_.data());
  } else if (way_ == Way::bytes && form_->per_byte > 1) {
    moved_ = true;
    for (std::int64_t dim = 0; dim < dim_; ++dim) {
      position_[static_cast<std::size_t>(dim)] = static_cast<std::uint16_t>(form_->position(dim));
    }
  }
}

// Null where codes are not taken as bytes.
const ValueBytes* BlockValues::form_of(Way way) const {
  const bool as_bytes = way == Way::codes || way == Way::bytes;
  if (!as_bytes || kernels_.codes.spread_values == nullptr) return nullptr;
  return &value_bytes(codec_, call_.value_side);
}

const float* BlockValues::in_order(const float* out) {
  if (!moved_) return out;
  for (std::size_t dim = 0; dim < static_cast<std::size_t>(dim_); ++dim) {
    ordered_[dim] = out[position_[dim]];
  }
  return ordered_.data();
}

void BlockValues::from_order(const float* dims, float* out) {
  if (!moved_) {
    if (dims != out) std::copy_n(dims, dim_, out);
    std::fill(out + dim_, out + width_, 0.0f);
    return;
  }
  std::copy_n(dims, dim_, ordered_.data());
  std::fill_n(out, width_, 0.0f);
  for (std::size_t dim = 0; dim < static_cast<std::size_t>(dim_); ++dim) {
    out[position_[dim]] = ordered_[dim];
  }
}

void BlockValues::add(std::int64_t start, SpanTiles& span, AskAhead& ask) {
  switch (way_) {
    case Way::matrix: return add_matrix(start, span, ask);
    case Way::few: return add_few(span, ask);
    case Way::codes: return add_codes(start, span, ask);
    case Way::bytes: return add_bytes(start, span, ask);
    case Way::tables: return add_tables(start, span, ask);
    case Way::narrow: return add_narrow(span, ask);
    case Way::wide: return add_wide(start, span);
  }
}

void BlockValues::add_matrix(std::int64_t start, const SpanTiles& span, AskAhead& ask) {
  if (queries_.count <= kMatrixQueries) {
    const auto add_span = [&](std::int64_t j, std::int64_t count, TokenRange range) {
      kernels_.matrix.add_span(span, dim_, ask, range, scratch_.logits + j * kSpanTokens, count,
                               width_, scratch_.span_out + j * width_);
    };
    return queries_.for_each_seen(start, kMatrixQueries, add_span);
  }
  auto* pairs = reinterpret_cast<std::uint16_t*>(scratch_.panels);
  kernels_.matrix.pair_rows(span, dim_, ask, pairs);
  const auto add = [&](std::int64_t j, std::int64_t count, TokenRange range) {
    kernels_.matrix.add(pairs, dim_, range, scratch_.logits + j * kSpanTokens, count, width_,
                        scratch_.span_out + j * width_);
  };
  queries_.for_each_seen(start, kMatrixQueries, add);
}

void BlockValues::add_few(const SpanTiles& span, AskAhead& ask) {
  const FlushDenormals flush;
  for (std::int64_t j = 0; j < queries_.count; j += kFewQueries) {
    kernels_.matrix.add_few(span, dim_, ask, scratch_.logits + j * kSpanTokens,
                            std::min(kFewQueries, queries_.count - j), width_,
                            scratch_.span_out + j * width_);
  }
}

CodeRows BlockValues::code_rows() const {
  return {.codes = reinterpret_cast<std::uint8_t*>(scratch_.panels),
          .scales = scratch_.code_scales,
          .biases = scratch_.code_scales + call_.value_side.groups * kSpanTokens,
          .table = code_table(codec_)};
}

// Codes that no whole number of fills a byte are moved apart by moves of bytes, where there are
// any.
void BlockValues::prepare_codes(const SpanTiles& span, AskAhead& ask, CodeRows& rows,
                                SpanBits& large) const {
  const SideShape& side = call_.value_side;
  if (form_ == nullptr || !form_->spread) {
    return kernels_.codes.prepare_rows[codec_ - kFirstAffine](span, side, ask, rows, large);
  }
  rows.first_quad = span.begin / kQuad;
  rows.end_quad = (span.end + kQuad - 1) / kQuad;
  kernels_.codes.load_scales(span, side, rows, large);
  spread_codes(span, 0, 2, ask, rows);  // half is asked for while they are added
}

// The span's codes as bytes. Of what is to be asked for, one part in `parts` is so here.
void BlockValues::spread_codes(const SpanTiles& span, std::int64_t low_bytes, std::int64_t parts,
                               AskAhead& ask, const CodeRows& rows) const {
  const SideShape& side = call_.value_side;
  const TokenRange steps = byte_steps(span);
  const std::int64_t chunks = (side.row_bytes[0] + form_->chunk - 1) / form_->chunk;
  ask.spread(parts * (steps.end - steps.begin) * (kByteStepTokens / kQuad) * chunks);
  kernels_.codes.spread_values(span, side, *form_, steps, kByteVector, low_bytes, ask,
                               rows.codes + steps.begin * kByteStepTokens * 16);
}

void BlockValues::add_codes(std::int64_t start, const SpanTiles& span, AskAhead& ask) {
  const SideShape& side = call_.value_side;
  CodeRows rows = code_rows();
  const auto weights = CodeWeights::by_query(scratch_.code_weights, kCodeQueries, side.groups);
  SpanBits large{};
  prepare_codes(span, ask, rows, large);
  const auto add = [&](std::int64_t j, std::int64_t count, TokenRange /* all rows */) {
    kernels_.codes.weigh(span, rows, side, scratch_.logits + j * kSpanTokens, count, weights);
    kernels_.codes.add(rows, side, weights, count, ask, width_, scratch_.span_out + j * width_);
  };
  queries_.for_each_seen(start, kCodeQueries, add);
  add_large(large, span);
}

// ---- tables

void BlockValues::add_tables(std::int64_t start, const SpanTiles& span, AskAhead& ask) {
  const SideShape& side = call_.value_side;
  const TableKernels& tables = kernels_.tables;
  SpanBits large{};
  tables.load_scales(span, side, scratch_.code_scales, large);
  if (queries_.count >= kWideQueries) {
    add_table_panels(start, span);
  } else {
    for (std::int64_t j = 0; j < queries_.count; j += kTableQueries) {
      const std::int64_t count = std::min(kTableQueries, queries_.count - j);
      tables.weigh(span, side, scratch_.code_scales, scratch_.logits + j * kSpanTokens, count,
                   scratch_.code_weights);
      tables.add[codec_ - kFirstCodebook](span, side, ask, scratch_.code_weights, count,
                                          scratch_.span_out + j * dim_);
    }
  }
  add_large(large, span);
}

void BlockValues::add_table_panels(std::int64_t start, const SpanTiles& span) {
  const SideShape& side = call_.value_side;
  const std::int64_t panel = std::min(kernels_.panel_dims, side.group);
  kernels_.tables.spread[codec_ - kFirstCodebook](span, side, panel, scratch_.panels);
  const auto add = [&](std::int64_t j, std::int64_t /* a whole block */, TokenRange range) {
    kernels_.tables.weigh(span, side, scratch_.code_scales, scratch_.logits + j * kSpanTokens,
                          kernels_.wide_values, scratch_.code_weights);
    for (std::int64_t dim = 0; dim < dim_; dim += panel) {
      const std::int64_t group = dim / side.group;
      kernels_.add_values_wide(scratch_.panels + dim * kSpanTokens, std::min(panel, dim_ - dim),
                               range.begin, range.end,
                               scratch_.code_weights + group * kernels_.wide_values * kSpanTokens,
                               dim_, scratch_.span_out + j * dim_ + dim);
    }
  };
  queries_.for_each_seen(start, kernels_.wide_values, add);
}

// Tokens whose elements may exceed f32: they are widened, which saturates.
void BlockValues::add_large(const SpanBits& tokens, const SpanTiles& span) {
  for_each_token(tokens, [&](std::int64_t token) {
    SpanTiles one = span;
    one.begin = token;
    one.end = token + 1;
    kernels_.widen_values[codec_](one, call_.value_side, dim_, scratch_.panels);
    const float* elements = scratch_.panels + token * dim_;
    for (std::int64_t j = 0; j < queries_.count; ++j) {
      const float p = scratch_.logits[j * kSpanTokens + token];
      if (p == 0.0f) continue;
      for (std::int64_t dim = 0; dim < dim_; ++dim) {
        const std::int64_t at = moved_ ? position_[static_cast<std::size_t>(dim)] : dim;
        scratch_.span_out[j * width_ + at] += p * elements[dim];
      }
    }
  });
}

void BlockValues::add_narrow(SpanTiles& span, AskAhead& ask) {
  std::size_t type = codec_;
  if (codec_ >= kDTypes) {
    type = dtype_index(DType::f32);
    kernels_.widen_values[codec_](span, call_.value_side, dim_, scratch_.panels);
    for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
      const float* rows = scratch_.panels + tile * kTileTokens * dim_;
      span.v[static_cast<std::size_t>(tile)] = {reinterpret_cast<const std::byte*>(rows)};
    }
  }
  kernels_.add_values_narrow[type](span, dim_, ask, scratch_.logits, queries_.count,
                                   scratch_.span_out);
}

void BlockValues::add_wide(std::int64_t start, const SpanTiles& span) {
  kernels_.widen_values[codec_](span, call_.value_side, kernels_.panel_dims, scratch_.panels);
  for (std::int64_t dim = 0; dim < dim_; dim += kernels_.panel_dims) {
    const std::int64_t width = std::min(kernels_.panel_dims, dim_ - dim);
    const auto add = [&](std::int64_t j, std::int64_t /* a whole block */, TokenRange range) {
      kernels_.add_values_wide(scratch_.panels + dim * kSpanTokens, width, range.begin, range.end,
                               scratch_.logits + j * kSpanTokens, dim_,
                               scratch_.span_out + j * dim_ + dim);
    };
    queries_.for_each_seen(start, kernels_.wide_values, add);
  }
}

}  // namespace pagekv::inline v0::internal
