// The memory of one worker while it attends: carved out of the plan's workspace, nothing allocated.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/softmax_state.h"
#include "cpu/kernel_table.h"

namespace pagekv::inline v0::internal {

struct HeadShape {
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t group = 0;  // query heads of one KV head
};

// Rows whose queries are taken through the pages together.
constexpr std::int64_t rows_per_block(std::int64_t group) {
  return group >= kBlockQueries ? 1 : kBlockQueries / group;
}

struct AttendScratch {
  float* packed_q;  // [query block][key_dim][queries of a block], or [query][key_dim]
  float* logits;    // [query][kSpanTokens]; later p
  float* span_out;  // [query][BlockValues::width()], as are the next two
  float* chunk_out;
  float* row_out;
  float* keys;      // [tile of a span][key_dim][16]; bytes of staged tiles where keys stay narrow
  float* key_tile;  // one staged tile
  float* panels;    // widened values of a span, or its codes in quads
  float* code_queries;       // CodeQueries of all queries
  std::int8_t* query_bytes;  // [kByteQueries of them][part][query][key_dim], for the matrix unit
  std::uint8_t* key_quads;   // [tile][quad][16 tokens]: codes of kByteTiles tiles, for it
  std::int32_t* totals;      // of MatrixKernels::ByteProduct
  float* code_scales;        // [group][kSpanTokens] scales of a span's values, then biases
  float* code_weights;       // CodeWeights of a kernel block, or [group][query][token] p * scale
  SoftmaxState* span_state;  // [query], as are the next two
  SoftmaxState* chunk_state;
  SoftmaxState* row_state;

  // [part][query][matrix_padded(key_dim)] bf16, for the matrix unit.
  std::uint16_t* matrix_queries() const { return reinterpret_cast<std::uint16_t*>(packed_q); }

  // [key_dim][kFewVectors] of one block of them.
  float* few_queries(std::int64_t block, std::int64_t key_dim) const {
    return packed_q + block * key_dim * kFewVectors;
  }

  // Queries there is room for: a block, rounded up to whole kernel blocks.
  static std::int64_t query_room(const KernelTable& kernels, std::int64_t group) {
    const std::int64_t queries = rows_per_block(group) * group;
    const std::int64_t step = kernels.wide_queries;
    return (queries + step - 1) / step * step + kernels.narrow_queries;
  }

  static std::int64_t floats(const KernelTable& kernels, const HeadShape& shape) {
    Cursor cursor;
    AttendScratch scratch{};
    scratch.place(kernels, shape, cursor);
    return cursor.used + kAlignFloats;  // the start is aligned up
  }

  // `memory`: floats(kernels, shape) floats.
  static AttendScratch carve(const KernelTable& kernels, const HeadShape& shape, float* memory) {
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t misaligned = address / sizeof(float) % kAlignFloats;
    Cursor cursor{misaligned == 0 ? memory : memory + (kAlignFloats - misaligned), 0};
    AttendScratch scratch{};
    scratch.place(kernels, shape, cursor);
    return scratch;
  }

 private:
  static constexpr std::int64_t kAlignFloats = 16;  // a cache line
  static constexpr std::int64_t kFloatBytes = sizeof(float);

  // Hands out memory, or only counts it while `base` is null.
  struct Cursor {
    float* base = nullptr;
    std::int64_t used = 0;
    float* take(std::int64_t count) {
      float* taken = base == nullptr ? nullptr : base + used;
      used += (count + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
      return taken;
    }
    SoftmaxState* take_states(std::int64_t count) {
      float* taken = take(count * static_cast<std::int64_t>(sizeof(SoftmaxState) / sizeof(float)));
      if (taken == nullptr) return nullptr;
      auto* states = reinterpret_cast<SoftmaxState*>(taken);
      std::uninitialized_value_construct_n(states, count);
      return states;
    }
  };

  void place(const KernelTable& kernels, const HeadShape& shape, Cursor& cursor) {
    const std::int64_t queries = query_room(kernels, shape.group);
    packed_q = cursor.take(
        std::max(queries * matrix_padded(shape.key_dim), kLeastMatrixQueries * 2 * shape.key_dim));
    logits = cursor.take(queries * kSpanTokens);
    const std::int64_t width = CodeRows::padded(shape.value_dim);
    span_out = cursor.take(queries * width);
    chunk_out = cursor.take(queries * width);
    row_out = cursor.take(queries * width);
    keys = cursor.take(kSpanTokens * shape.key_dim);
    key_tile = cursor.take(kTileTokens * shape.key_dim);
    panels = cursor.take(std::max(kSpanTokens * matrix_padded(shape.value_dim),
                                  CodeRows::code_floats(shape.value_dim)));
    code_queries = cursor.take((queries + kCodeQueries - 1) / kCodeQueries *
                               CodeQueries::floats(shape.key_dim));
    query_bytes = reinterpret_cast<std::int8_t*>(
        cursor.take((queries + kByteQueries) * 2 * shape.key_dim / kFloatBytes));
    key_quads = reinterpret_cast<std::uint8_t*>(
        cursor.take(kByteTiles * kTileTokens * shape.key_dim / kFloatBytes));
    totals = reinterpret_cast<std::int32_t*>(
        cursor.take(std::max(kByteTiles, width / kTileTokens) * kByteTotals));
    // A vector that shares one scale may be shorter than the least group.
    const std::int64_t value_groups = std::max<std::int64_t>(1, shape.value_dim / kLeastCodeGroup);
    code_scales = cursor.take(2 * value_groups * kSpanTokens);
    code_weights = cursor.take(std::max(CodeWeights::floats(kByteQueries, value_groups),
                                        kernels.wide_values * value_groups * kSpanTokens));
    span_state = cursor.take_states(queries);
    chunk_state = cursor.take_states(queries);
    row_state = cursor.take_states(queries);
  }
};

}  // namespace pagekv::inline v0::internal
