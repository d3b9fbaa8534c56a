#include "core/share_prefixes.h"

#include <algorithm>
#include <span>
#include <tuple>

namespace pagekv::inline v0::internal {

namespace {

// Tokens from the front that every row of the sequence sees.
std::int64_t seen_by_all(const PlanState& plan, const PlanSequence& sequence) {
  if (sequence.row_words > 0) return 0;  // a matrix: anything may be masked
  if (plan.visible(sequence, sequence.rows - 1).begin > 0) return 0;
  return std::min(plan.visible(sequence, 0).end, sequence.length);  // spans only add to that
}

std::int64_t chunks_in_common(const PlanState& plan, const Sharer& one, const Sharer& other,
                              const AttendCut& cut, std::int64_t page_tokens) {
  const std::int64_t most = std::min(one.tokens, other.tokens);
  const PageId* pages = plan.sequences[static_cast<std::size_t>(one.sequence)].pages;
  const PageId* others = plan.sequences[static_cast<std::size_t>(other.sequence)].pages;
  const std::int64_t count = (most + page_tokens - 1) / page_tokens;
  const auto differ = std::mismatch(pages, pages + count, others).first;
  return std::min((differ - pages) * page_tokens, most) / cut.chunk_tokens;
}

// How often fewer a chunk is taken from the pages if sharers of so many rows and items go together.
std::int64_t saved_items(const AttendCut& cut, std::int64_t rows, std::int64_t items) {
  return items - (rows + cut.rows_per_item - 1) / cut.rows_per_item;
}

// Of a leader and others in descending order of chunks: how many others to take, for the most
// saved.
std::size_t pick_sharers(const PlanState& plan, std::span<const Sharer> sharers,
                         const AttendCut& cut) {
  std::int64_t rows = 0;
  std::int64_t items = 0;
  std::int64_t most = 0;
  std::size_t picked = 0;
  for (std::size_t at = 0; at < sharers.size(); ++at) {
    const std::int64_t more = plan.sequences[static_cast<std::size_t>(sharers[at].sequence)].rows;
    rows += more;
    items += (more + cut.rows_per_item - 1) / cut.rows_per_item;
    const std::int64_t saved = saved_items(cut, rows, items) * sharers[at].chunks;
    if (at == 0 || saved <= most) continue;
    most = saved;
    picked = at;
  }
  return picked;
}

void add_prefix(PlanState& plan, std::span<const Sharer> sharers) {
  SharedPrefix prefix{.sequence = sharers.front().sequence,
                      .first_row = static_cast<std::int64_t>(plan.shared_rows.size()),
                      .chunks = sharers.back().chunks};
  for (const Sharer& sharer : sharers) {
    PlanSequence& sequence = plan.sequences[static_cast<std::size_t>(sharer.sequence)];
    sequence.prefix = static_cast<std::int32_t>(plan.prefixes.size());
    sequence.prefix_row = prefix.rows;
    for (std::int64_t row = 0; row < sequence.rows; ++row) {
      plan.shared_rows.push_back(sequence.first_row + row);
    }
    prefix.rows += sequence.rows;
  }
  plan.prefixes.push_back(prefix);
}

// Sharers of one first page. A leader takes those with whom it saves most; what is left begins
// anew.
void share(PlanState& plan, std::span<Sharer> sharers, const AttendCut& cut,
           std::int64_t page_tokens) {
  while (sharers.size() > 1) {
    Sharer& leader = sharers.front();
    leader.chunks = leader.tokens / cut.chunk_tokens;
    for (Sharer& other : sharers.subspan(1)) {
      other.chunks = chunks_in_common(plan, leader, other, cut, page_tokens);
    }
    std::sort(sharers.begin() + 1, sharers.end(), [](const Sharer& one, const Sharer& other) {
      return std::tuple(-one.chunks, one.sequence) < std::tuple(-other.chunks, other.sequence);
    });
    const std::size_t picked = pick_sharers(plan, sharers, cut);
    if (picked > 0) add_prefix(plan, sharers.first(picked + 1));
    sharers = sharers.subspan(picked + 1);
  }
}

}  // namespace

void share_prefixes(PlanState& plan, const AttendCut& cut, std::int64_t page_tokens) {
  plan.prefixes.clear();
  plan.shared_rows.clear();
  plan.sharers.clear();
  if (!plan.spec.cascade || plan.spec.arm == ReadArm::gathered) return;
  for (std::size_t index = 0; index < plan.sequences.size(); ++index) {
    const std::int64_t tokens = seen_by_all(plan, plan.sequences[index]);
    if (tokens < cut.chunk_tokens) continue;
    plan.sharers.push_back({.first_page = plan.sequences[index].pages[0],
                            .sequence = static_cast<std::int32_t>(index),
                            .tokens = tokens});
  }
  std::sort(plan.sharers.begin(), plan.sharers.end(), [](const Sharer& one, const Sharer& other) {
    return std::tuple(one.first_page, one.sequence) < std::tuple(other.first_page, other.sequence);
  });
  for (auto run = plan.sharers.begin(); run != plan.sharers.end();) {
    const auto end = std::find_if(run, plan.sharers.end(), [&](const Sharer& sharer) {
      return sharer.first_page != run->first_page;
    });
    share(plan, {run, end}, cut, page_tokens);
    run = end;
  }
}

}  // namespace pagekv::inline v0::internal
