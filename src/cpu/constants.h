// The constants that fix the CPU device's arithmetic, and those that only steer its speed.
#pragma once

#include <cstdint>

#include "pagekv/layout.h"

namespace pagekv::inline v0::internal {

// Fixed: changing one changes the bits of results. Both count tokens at absolute positions.
inline constexpr std::int64_t kSpanTokens = 128;   // one partial softmax
inline constexpr std::int64_t kChunkTokens = 512;  // one unit of work along the tokens
inline constexpr std::int64_t kSpanTiles = kSpanTokens / kTileTokens;
static_assert(kChunkTokens % kSpanTokens == 0 && kSpanTokens % kTileTokens == 0);

inline constexpr std::int64_t kLineBytes = 64;  // of a cache: what prefetching goes by

// Speed only. Rounds of lines (cpu/ahead.h) asked for before the softmax of one row of a span.
inline constexpr std::int64_t kSoftmaxRounds = 2;
// Rows whose softmax is one call.
inline constexpr std::int64_t kSoftmaxRows = 16;
// Query rows of one work item, and queries (rows x heads of a group) taken through the
// pages together: what 128 need of q, logits and outputs fits a 1 MiB L2 at 128 dims.
inline constexpr std::int64_t kRowsPerItem = 32;
inline constexpr std::int64_t kBlockQueries = 128;
// From this many queries on it pays to widen a span of keys and values to f32 once: measured with
// AVX-512, where the two nests cross between 40 and 48.
inline constexpr std::int64_t kWideQueries = 48;
// From this many on the matrix unit is used, where there is one; for dense values earlier.
// Measured: below, vectors are faster.
inline constexpr std::int64_t kLeastMatrixQueries = 16;
inline constexpr std::int64_t kLeastValueQueries = 8;

}  // namespace pagekv::inline v0::internal
