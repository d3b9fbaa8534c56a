// Plain code on purpose: nothing is shared with the direct arm but the scalar conversions, and with
// the kernels only the reference codecs, so that a mistake there does not hide here. Vectors are
// decoded into their own domain: a rotation is undone per vector, not on the output. Sums are
// double; a row depends on nothing but itself.
#include "cpu/attend_gathered.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "codec/arrangement.h"
#include "codec/stored_vector.h"
#include "core/plan_mask.h"

namespace pagekv::inline v0::internal {

namespace {

float element_f32(DType type, const std::byte* element) {
  if (type == DType::f32) {
    float value;
    std::memcpy(&value, element, sizeof(value));
    return value;
  }
  std::uint16_t bits;
  std::memcpy(&bits, element, sizeof(bits));
  return type == DType::f16 ? f32_from_f16(bits) : f32_from_bf16(bits);
}

// One head of a row of the caller's.
void load_f32(const Rows& rows, std::int64_t row, std::int64_t head, std::int64_t dim, float* to) {
  const std::int64_t at = row * rows.token_stride + head * rows.head_stride;
  for (std::int64_t i = 0; i < dim; ++i) {
    to[i] = element_f32(
        rows.dtype, static_cast<const std::byte*>(rows.data) + (at + i) * size_bytes(rows.dtype));
  }
}

void store_f32(DType type, float value, std::byte* element) {
  if (type == DType::f32) {
    std::memcpy(element, &value, sizeof(value));
    return;
  }
  const std::uint16_t bits = type == DType::f16 ? f16_from_f32(value) : bf16_from_f32(value);
  std::memcpy(element, &bits, sizeof(bits));
}

// Tokens [begin, end) decoded: keys [token][key_dim], values [token][value_dim].
struct Contiguous {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  float* keys = nullptr;
  float* values = nullptr;
  float* weights = nullptr;  // [token], of the row at hand
};

// One row: the tokens it sees are among [range.begin, range.end).
struct GatheredRow {
  const PlanState& plan;
  const PlanSequence& sequence;
  std::int64_t row;  // within the sequence
  TokenRange range;

  bool sees(std::int64_t token) const {
    if (!sequence.is_masked()) return true;
    const std::int64_t at = token % 64;
    return (visible_word(plan, sequence, row, token - at) >> at & 1) != 0;
  }
};

using PlaneShapes = std::array<PlaneShape, kMaxPlanes>;

PlaneShapes key_shapes(const LayerAddress& layer) {
  PlaneShapes shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    shapes[i] = key_shape(layer.k[i], layer.arrangement);
  }
  return shapes;
}

PlaneShapes value_shapes(const LayerAddress& layer) {
  PlaneShapes shapes;
  for (std::size_t i = 0; i < shapes.size(); ++i) shapes[i] = value_shape(layer.v[i]);
  return shapes;
}

// One vector out of its planes, byte by byte by the formula of the arrangement.
void decode_one(const VectorCodec& codec, const PlaneLayouts& planes, const PlaneShapes& shapes,
                const std::byte* page, std::int64_t kv_head, std::int64_t row, std::int64_t dim,
                float* values) {
  std::array<std::array<std::byte, kMaxHeadDim * sizeof(float)>, kMaxPlanes> bytes;
  for (std::size_t i = 0; i < kMaxPlanes; ++i) {
    const std::byte* plane = page + planes[i].offset + kv_head * planes[i].head_stride;
    for (std::int64_t byte = 0; byte < planes[i].row_bytes; ++byte) {
      bytes[i][static_cast<std::size_t>(byte)] = plane[byte_offset(shapes[i], row, byte)];
    }
  }
  decode_vector(codec, {bytes[0].data(), bytes[1].data(), bytes[2].data()}, dim, values);
}

Contiguous decode(const AttendCall& call, const PlanSequence& sequence, std::int64_t kv_head,
                  float* scratch) {
  Contiguous rows;
  const TokenRange seen = call.plan.visible_rows(sequence, 0, sequence.rows);
  rows.begin = seen.begin;
  rows.end = std::max(seen.begin, seen.end);
  const std::int64_t tokens = rows.end - rows.begin;
  const HeadShape& shape = call.shape;
  rows.keys = scratch;
  rows.values = rows.keys + tokens * shape.key_dim;
  rows.weights = rows.values + tokens * shape.value_dim;

  const LayerAddress& layer = call.layer;
  const std::int64_t stored = std::min(tokens, sequence.length - rows.begin);
  for (std::int64_t token = 0; token < stored; ++token) {
    const std::int64_t position = rows.begin + token;
    const std::int64_t row = position % layer.page_tokens;
    const std::byte* page =
        layer.base + index(sequence.pages[position / layer.page_tokens]) * layer.page_stride;
    decode_one(layer.format.k, layer.k, key_shapes(layer), page, kv_head, row, shape.key_dim,
               rows.keys + token * shape.key_dim);
    decode_one(layer.format.v, layer.v, value_shapes(layer), page, kv_head, row, shape.value_dim,
               rows.values + token * shape.value_dim);
  }
  for (std::int64_t token = stored; token < tokens; ++token) {  // of a block read
    const std::int64_t row = sequence.first_row + token - stored;
    load_f32(call.args.block_k, row, kv_head, shape.key_dim, rows.keys + token * shape.key_dim);
    load_f32(call.args.block_v, row, kv_head, shape.value_dim,
             rows.values + token * shape.value_dim);
  }
  return rows;
}

// Eight running sums, so that the loop can be vectorised without reordering anything.
double dot(const float* a, const float* b, std::int64_t count) {
  std::array<double, 8> sums{};
  for (std::int64_t i = 0; i < count; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) {
      const auto at = i + static_cast<std::int64_t>(lane);
      sums[lane] += static_cast<double>(a[at]) * static_cast<double>(b[at]);
    }
  }
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

// Logits of the tokens the row sees into rows.weights; returns their max.
float score_row(const AttendCall& call, const Contiguous& rows, const GatheredRow& row,
                const float* q) {
  const std::int64_t key_dim = call.shape.key_dim;
  const double scale = static_cast<double>(call.map.scale);
  const double cap = static_cast<double>(call.map.softcap);
  float max = -std::numeric_limits<float>::infinity();
  for (std::int64_t token = row.range.begin; token < row.range.end; ++token) {
    if (!row.sees(token)) continue;
    const std::int64_t at = token - rows.begin;
    double logit = dot(q, rows.keys + at * key_dim, key_dim) * scale;
    if (cap > 0.0) logit = cap * std::tanh(logit / cap);
    rows.weights[at] = static_cast<float>(logit);
    max = std::max(max, rows.weights[at]);
  }
  return max;
}

void attend_row(const AttendCall& call, const Contiguous& rows, const GatheredRow& gathered,
                std::int64_t query_head) {
  const TokenRange range = gathered.range;
  const std::int64_t row = gathered.sequence.first_row + gathered.row;
  const HeadShape& shape = call.shape;
  const MutableRows& out_rows = call.args.out;
  const std::int64_t out_at = row * out_rows.token_stride + query_head * out_rows.head_stride;
  std::array<float, kMaxHeadDim> q;
  load_f32(call.args.q, row, query_head, shape.key_dim, q.data());
  const bool empty = range.begin >= range.end;
  const bool has_sink = call.args.sinks != nullptr && !empty;
  float max = score_row(call, rows, gathered, q.data());
  if (has_sink) max = std::max(max, call.args.sinks[query_head]);

  double sum = has_sink ? std::exp(static_cast<double>(call.args.sinks[query_head] - max)) : 0.0;
  std::array<double, kMaxHeadDim> out{};
  for (std::int64_t token = range.begin; token < range.end; ++token) {
    if (!gathered.sees(token)) continue;
    const std::int64_t at = token - rows.begin;
    const double weight =
        std::exp(static_cast<double>(rows.weights[at]) - static_cast<double>(max));
    sum += weight;
    const float* value = rows.values + at * shape.value_dim;
    for (std::int64_t dim = 0; dim < shape.value_dim; ++dim) {
      out[static_cast<std::size_t>(dim)] += weight * static_cast<double>(value[dim]);
    }
  }
  for (std::int64_t dim = 0; dim < shape.value_dim; ++dim) {
    const double value = empty ? 0.0 : out[static_cast<std::size_t>(dim)] / sum;
    store_f32(out_rows.dtype, static_cast<float>(value),
              static_cast<std::byte*>(out_rows.data) + (out_at + dim) * size_bytes(out_rows.dtype));
  }
  if (call.args.lse != nullptr) {
    call.args.lse[row * call.plan.spec.query_heads + query_head] =
        empty ? -std::numeric_limits<float>::infinity()
              : static_cast<float>(static_cast<double>(max) + std::log(sum));
  }
}

}  // namespace

std::int64_t gathered_floats(std::int64_t length, const HeadShape& shape) {
  return length * (shape.key_dim + shape.value_dim + 1);
}

void attend_gathered(const AttendCall& call, const PlanSequence& sequence, std::int64_t kv_head,
                     float* scratch) {
  const Contiguous rows = decode(call, sequence, kv_head, scratch);
  for (std::int64_t row = 0; row < sequence.rows; ++row) {
    const GatheredRow gathered{call.plan, sequence, row, call.plan.visible_rows(sequence, row, 1)};
    for (std::int64_t head = 0; head < call.shape.group; ++head) {
      attend_row(call, rows, gathered, kv_head * call.shape.group + head);
    }
  }
}

}  // namespace pagekv::inline v0::internal
