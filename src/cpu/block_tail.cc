#include "cpu/block_tail.h"

#include <algorithm>
#include <array>

#include "cpu/row_address.h"
#include "cpu/span_reader.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t whole_tiles(std::int64_t tokens) {
  return (tokens + kTileTokens - 1) / kTileTokens * kTileTokens;
}

// A tail has less than a span of the view's tokens, and is rounded up to whole tiles.
constexpr std::int64_t kRoomBeside = kSpanTokens + kTileTokens;

// Tokens of room before the tail of the sequence that would be number `index` of the plan.
std::int64_t first_token(std::int64_t first_row, std::int64_t index) {
  return whole_tiles(first_row) + index * kRoomBeside;
}

VectorCodec f32_codec(const VectorCodec& stored) {
  const VectorCodec codec = VectorCodec::dense(DType::f32);
  return stored.is_rotated() ? codec.rotated() : codec;
}

void load_row(const AttendCall& call, const Rows& rows, std::int64_t row, std::int64_t kv_head,
              const SideShape& side, float* to) {
  call.kernels.to_float[dtype_index(rows.dtype)](row_address(rows, row, kv_head), to, side.dim);
  if (side.rotation != nullptr) call.kernels.rotate(*side.rotation, to);
}

// The view's tokens from the tail's first on.
void widen_stored(const AttendCall& call, const PlanSequence& sequence, std::int64_t kv_head,
                  const TailPages& tail, const AttendScratch& scratch) {
  const SpanReader reader(call.layer, kv_head, sequence.pages, {tail.begin(), sequence.length});
  SpanTiles span;
  if (!reader.locate(tail.begin(), span)) return;
  auto* room = reinterpret_cast<std::byte*>(scratch.key_tile);
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    call.kernels.widen_keys[codec_index(call.layer.format.k)](
        reader.stage_tile(tail.begin(), tile, span, room), call.key_side,
        tail.keys(kv_head) + tile * kTileTokens * call.shape.key_dim);
  }
  call.kernels.widen_values[codec_index(call.layer.format.v)](
      span, call.value_side, call.shape.value_dim, tail.values(kv_head));
}

}  // namespace

std::int64_t tail_floats(const PlanState& plan, std::int64_t kv_heads, const HeadShape& shape) {
  if (plan.spec.mask != Mask::block) return 0;
  return first_token(plan.total_rows, static_cast<std::int64_t>(plan.sequences.size())) * kv_heads *
         (shape.key_dim + shape.value_dim);
}

TailPages::TailPages(const AttendCall& call, const PlanSequence& sequence)
    : call_(call),
      base_(call.tails + first_token(sequence.first_row, &sequence - call.plan.sequences.data()) *
                             call.layer.kv_heads * (call.shape.key_dim + call.shape.value_dim)),
      begin_(sequence.length / kSpanTokens * kSpanTokens),
      tokens_(whole_tiles(sequence.end() - begin_)) {}

float* TailPages::keys(std::int64_t kv_head) const {
  return base_ + kv_head * tokens_ * call_.shape.key_dim;
}

float* TailPages::values(std::int64_t kv_head) const {
  return keys(call_.layer.kv_heads) + kv_head * tokens_ * call_.shape.value_dim;
}

LayerAddress TailPages::address() const {
  constexpr std::int64_t kFloat = sizeof(float);
  LayerAddress made = call_.layer;
  made.base = reinterpret_cast<std::byte*>(base_);
  made.page_stride = 0;
  made.page_tokens = tokens_;
  made.arrangement = TileArrangement::key_tile16;
  made.format = {f32_codec(call_.layer.format.k), f32_codec(call_.layer.format.v)};
  const auto plane = [&](const float* first, std::int64_t dim) {
    return PlaneLayout{.offset = (first - base_) * kFloat,
                       .head_stride = tokens_ * dim * kFloat,
                       .row_bytes = dim * kFloat,
                       .unit_bytes = kFloat};
  };
  made.k = {plane(keys(0), call_.shape.key_dim)};
  made.v = {plane(values(0), call_.shape.value_dim)};
  return made;
}

void fill_tail(const AttendCall& call, const PlanSequence& sequence, std::int64_t kv_head,
               const AttendScratch& scratch) {
  const TailPages tail(call, sequence);
  widen_stored(call, sequence, kv_head, tail, scratch);
  const std::int64_t key_dim = call.shape.key_dim;
  alignas(64) std::array<float, kMaxHeadDim> key;
  for (std::int64_t row = 0; row < sequence.rows; ++row) {
    const std::int64_t at = sequence.length + row - tail.begin();
    load_row(call, call.args.block_k, sequence.first_row + row, kv_head, call.key_side, key.data());
    float* tile = tail.keys(kv_head) + at / kTileTokens * kTileTokens * key_dim + at % kTileTokens;
    for (std::int64_t dim = 0; dim < key_dim; ++dim) {
      tile[dim * kTileTokens] = key[static_cast<std::size_t>(dim)];
    }
    load_row(call, call.args.block_v, sequence.first_row + row, kv_head, call.value_side,
             tail.values(kv_head) + at * call.shape.value_dim);
  }
}

}  // namespace pagekv::inline v0::internal
