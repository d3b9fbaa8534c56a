#include "core/plan.h"

#include <algorithm>

namespace pagekv::inline v0::internal {

namespace {

// Work is dealt in at least this many pieces per thread, so that the slowest thread has little to
// wait for.
constexpr std::int64_t kPiecesPerThread = 4;

struct ChunkRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

// Chunks that any of rows [first_row, first_row + rows) sees.
ChunkRange chunks_of(const PlanState& plan, const PlanSequence& sequence, std::int64_t first_row,
                     std::int64_t rows, std::int64_t chunk_tokens) {
  const TokenRange seen = plan.visible_rows(sequence, first_row, rows);
  if (seen.begin >= seen.end) return {};
  const std::int64_t first = seen.begin / chunk_tokens;
  return {first, (seen.end + chunk_tokens - 1) / chunk_tokens - first};
}

// Calls visit(sequence index, first row, rows, chunks) for every block of rows.
template <typename Visit>
void for_each_block(const PlanState& plan, const AttendCut& cut, Visit visit) {
  for (std::size_t index = 0; index < plan.sequences.size(); ++index) {
    const PlanSequence& sequence = plan.sequences[index];
    for (std::int64_t row = 0; row < sequence.rows; row += cut.rows_per_item) {
      const std::int64_t rows = std::min(cut.rows_per_item, sequence.rows - row);
      visit(static_cast<std::int32_t>(index), row, rows,
            chunks_of(plan, sequence, row, rows, cut.chunk_tokens));
    }
  }
}

}  // namespace

void cut_work(PlanState& plan, const AttendCut& cut, int threads, int kv_heads) {
  plan.items.clear();
  plan.merges.clear();
  plan.partial_slots = 0;

  // A block is split into chunks where it alone is more than a fair piece of all row-chunks.
  std::int64_t total = 0;
  for_each_block(plan, cut, [&](std::int32_t, std::int64_t, std::int64_t rows, ChunkRange chunks) {
    total += rows * chunks.count;
  });
  const std::int64_t fair = total * kv_heads / (threads * kPiecesPerThread);

  for_each_block(
      plan, cut,
      [&](std::int32_t sequence, std::int64_t first_row, std::int64_t rows, ChunkRange chunks) {
        const auto narrow_rows = static_cast<std::int32_t>(rows);
        if (threads == 1 || chunks.count < 2 || rows * chunks.count <= fair) {
          plan.items.push_back({sequence, narrow_rows, first_row, chunks.first, chunks.count, -1});
          return;
        }
        plan.merges.push_back({sequence, narrow_rows, first_row, chunks.count, plan.partial_slots});
        for (std::int64_t chunk = 0; chunk < chunks.count; ++chunk) {
          plan.items.push_back(
              {sequence, narrow_rows, first_row, chunks.first + chunk, 1, plan.partial_slots});
          plan.partial_slots += rows;
        }
      });
}

}  // namespace pagekv::inline v0::internal
