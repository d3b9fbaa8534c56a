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

// Chunks behind their prefix that any of rows [first_row, first_row + rows) sees.
ChunkRange chunks_of(const PlanState& plan, const PlanSequence& sequence, std::int64_t first_row,
                     std::int64_t rows, std::int64_t chunk_tokens) {
  const TokenRange seen = plan.visible_rows(sequence, first_row, rows);
  if (seen.begin >= seen.end) return {};
  const std::int64_t shared =
      sequence.prefix < 0 ? 0 : plan.prefixes[static_cast<std::size_t>(sequence.prefix)].chunks;
  const std::int64_t first = std::max(shared, seen.begin / chunk_tokens);
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

// Calls visit(index, first row, rows) for every block of a prefix's rows.
template <typename Visit>
void for_each_shared_block(const PlanState& plan, const AttendCut& cut, Visit visit) {
  for (std::size_t index = 0; index < plan.prefixes.size(); ++index) {
    const std::int64_t end = plan.prefixes[index].rows;
    for (std::int64_t row = 0; row < end; row += cut.rows_per_item) {
      visit(static_cast<std::int32_t>(index), row, std::min(cut.rows_per_item, end - row));
    }
  }
}

// More than a fair piece of all row-chunks, and divisible.
struct Fairness {
  std::int64_t fair = 0;
  int threads = 1;
  bool splits(std::int64_t rows, std::int64_t chunks) const {
    return threads > 1 && chunks > 1 && rows * chunks > fair;
  }
};

Fairness measure(const PlanState& plan, const AttendCut& cut, int threads, int kv_heads) {
  std::int64_t total = 0;
  for (const SharedPrefix& prefix : plan.prefixes) total += prefix.rows * prefix.chunks;
  for_each_block(plan, cut, [&](std::int32_t, std::int64_t, std::int64_t rows, ChunkRange chunks) {
    total += rows * chunks.count;
  });
  return {total * kv_heads / (threads * kPiecesPerThread), threads};
}

void cut_prefixes(PlanState& plan, const AttendCut& cut, const Fairness& fairness) {
  for (SharedPrefix& prefix : plan.prefixes) {
    const bool split = fairness.splits(std::min(prefix.rows, cut.rows_per_item), prefix.chunks);
    prefix.parts = split ? prefix.chunks : 1;
    prefix.partial = plan.partial_slots;
    plan.partial_slots += prefix.rows * prefix.parts;
  }
  for_each_shared_block(plan, cut, [&](std::int32_t index, std::int64_t row, std::int64_t rows) {
    const SharedPrefix& prefix = plan.prefixes[static_cast<std::size_t>(index)];
    const std::int64_t chunks = prefix.chunks / prefix.parts;
    for (std::int64_t part = 0; part < prefix.parts; ++part) {
      plan.shared_items.push_back({index, static_cast<std::int32_t>(rows), row, part * chunks,
                                   chunks, prefix.slot(row, part)});
    }
  });
}

}  // namespace

void cut_work(PlanState& plan, const AttendCut& cut, int threads, int kv_heads) {
  plan.shared_items.clear();
  plan.items.clear();
  plan.merges.clear();
  plan.partial_slots = 0;

  const Fairness fairness = measure(plan, cut, threads, kv_heads);
  cut_prefixes(plan, cut, fairness);
  for_each_block(
      plan, cut,
      [&](std::int32_t sequence, std::int64_t first_row, std::int64_t rows, ChunkRange chunks) {
        const auto narrow_rows = static_cast<std::int32_t>(rows);
        if (!fairness.splits(rows, chunks.count)) {
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
