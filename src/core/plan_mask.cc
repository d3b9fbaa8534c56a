#include "core/plan_mask.h"

#include <algorithm>
#include <bit>
#include <span>

namespace pagekv::inline v0::internal {

namespace {

constexpr std::int64_t kWordTokens = 64;

std::span<const BidirectionalSpan> spans_of(const PlanState& plan, const PlanSequence& sequence) {
  return {plan.spans.data() + sequence.first_span, static_cast<std::size_t>(sequence.spans)};
}

// The first span that ends behind `position`: the one the position is in, if any is.
auto span_from(std::span<const BidirectionalSpan> spans, std::int64_t position) {
  return std::partition_point(spans.begin(), spans.end(),
                              [&](const auto& span) { return span.end <= position; });
}

// The span that a row is in, or null.
const BidirectionalSpan* span_of_row(std::span<const BidirectionalSpan> spans,
                                     std::int64_t position) {
  const auto found = span_from(spans, position);
  return found == spans.end() || position < found->begin ? nullptr : &*found;
}

bool see_each_other(const BidirectionalSpan& one, const BidirectionalSpan& other) {
  return &one == &other || (one.set != BidirectionalSpan::kAlone && one.set == other.set);
}

// Tokens [begin, end) among the 64 from `start` on.
std::uint64_t bits_of(std::int64_t begin, std::int64_t end, std::int64_t start) {
  const std::int64_t first = std::clamp<std::int64_t>(begin - start, 0, kWordTokens);
  const std::int64_t last = std::clamp<std::int64_t>(end - start, 0, kWordTokens);
  if (first >= last) return 0;
  return ~std::uint64_t{0} >> (kWordTokens - (last - first)) << first;
}

void join(TokenRange& range, TokenRange other) {
  if (other.begin >= other.end) return;
  if (range.begin >= range.end) {
    range = other;
  } else {
    range = {std::min(range.begin, other.begin), std::max(range.end, other.end)};
  }
}

TokenRange range_by_spans(const PlanState& plan, const PlanSequence& sequence, std::int64_t row) {
  TokenRange range = plan.visible(sequence, row);
  const auto spans = spans_of(plan, sequence);
  const BidirectionalSpan* own = span_of_row(spans, sequence.position(row));
  if (own == nullptr) return range;
  for (const BidirectionalSpan& span : spans) {
    if (see_each_other(*own, span)) join(range, {span.begin, span.end});
  }
  return range;
}

TokenRange range_by_matrix(const PlanState& plan, const PlanSequence& sequence, std::int64_t row) {
  const std::uint64_t* words = plan.matrix.data() + sequence.first_word + row * sequence.row_words;
  std::int64_t first = 0;
  std::int64_t end = sequence.row_words;
  while (first < end && words[first] == 0) ++first;
  while (first < end && words[end - 1] == 0) --end;
  if (first == end) return {};
  return {first * kWordTokens + std::countr_zero(words[first]),
          end * kWordTokens - std::countl_zero(words[end - 1])};
}

Status check_matrix(const AttendSpec& spec, const QueryRows& query, std::int64_t index) {
  if (spec.mask != Mask::matrix) {
    if (query.matrix.visible == nullptr) return {};
    return fail(ErrorCode::invalid_argument,
                "entry {0} of the plan has a matrix, which needs the mask `matrix`", {index});
  }
  if (query.matrix.visible == nullptr && query.view.length() > 0) {
    return fail(ErrorCode::invalid_argument, "entry {0} of the plan has no matrix", {index});
  }
  if (query.matrix.row_stride < 0) {
    return fail(ErrorCode::invalid_argument,
                "entry {0} of the plan has a matrix of row stride {1}; legal are 0 and more",
                {index, query.matrix.row_stride});
  }
  return {};
}

Status check_spans(const AttendSpec& spec, const QueryRows& query, std::int64_t index) {
  if (!query.spans.empty() && spec.mask != Mask::causal) {
    return fail(ErrorCode::invalid_argument,
                "entry {0} of the plan has spans, which need the causal mask", {index});
  }
  std::int64_t end_before = 0;
  for (const BidirectionalSpan& span : query.spans) {
    if (span.begin < 0 || span.begin >= span.end || span.end > query.view.length()) {
      return fail(
          ErrorCode::invalid_argument,
          "entry {0} of the plan has a span of tokens [{1}, {2}); legal are such as are not "
          "empty, within its {3} tokens",
          {index, span.begin, span.end, query.view.length()});
    }
    if (span.begin < end_before) {
      return fail(
          ErrorCode::invalid_argument,
          "entry {0} of the plan has a span that begins at token {1} behind one that ends at "
          "token {2}; spans ascend and share no token",
          {index, span.begin, end_before});
    }
    if (span.set < BidirectionalSpan::kAlone) {
      return fail(ErrorCode::invalid_argument,
                  "entry {0} of the plan has a span of set {1}; legal are 0 and more, -1 for alone",
                  {index, span.set});
    }
    end_before = span.end;
  }
  return {};
}

}  // namespace

Status check_mask(const AttendSpec& spec, const QueryRows& query, std::int64_t index) {
  if (auto ok = check_matrix(spec, query, index); !ok) return ok;
  return check_spans(spec, query, index);
}

void clear_masks(PlanState& plan) {
  plan.spans.clear();
  plan.matrix.clear();
}

void add_mask(PlanState& plan, PlanSequence& sequence, const QueryRows& query) {
  if (!query.spans.empty() && query.spans.back().end > sequence.position(0)) {
    sequence.first_span = static_cast<std::int64_t>(plan.spans.size());
    sequence.spans = static_cast<std::int64_t>(query.spans.size());
    plan.spans.insert(plan.spans.end(), query.spans.begin(), query.spans.end());
  }
  if (plan.spec.mask != Mask::matrix) return;
  sequence.first_word = static_cast<std::int64_t>(plan.matrix.size());
  sequence.row_words = (sequence.length + kWordTokens - 1) / kWordTokens;
  plan.matrix.resize(plan.matrix.size() +
                     static_cast<std::size_t>(sequence.rows * sequence.row_words));
  std::uint64_t* words = plan.matrix.data() + sequence.first_word;
  for (std::int64_t row = 0; row < sequence.rows; ++row, words += sequence.row_words) {
    const std::uint8_t* visible = query.matrix.visible + row * query.matrix.row_stride;
    for (std::int64_t token = 0; token < sequence.length; ++token) {
      words[token / kWordTokens] |= std::uint64_t{visible[token] != 0} << (token % kWordTokens);
    }
  }
}

TokenRange masked_rows(const PlanState& plan, const PlanSequence& sequence, std::int64_t first_row,
                       std::int64_t rows) {
  TokenRange range;
  for (std::int64_t row = first_row; row < first_row + rows; ++row) {
    join(range, sequence.row_words > 0 ? range_by_matrix(plan, sequence, row)
                                       : range_by_spans(plan, sequence, row));
  }
  return range;
}

std::uint64_t visible_word(const PlanState& plan, const PlanSequence& sequence, std::int64_t row,
                           std::int64_t start) {
  if (sequence.row_words > 0) {
    if (start >= sequence.row_words * kWordTokens) return 0;
    return plan.matrix[static_cast<std::size_t>(sequence.first_word + row * sequence.row_words +
                                                start / kWordTokens)];
  }
  const TokenRange range = plan.visible(sequence, row);
  std::uint64_t bits = bits_of(range.begin, range.end, start);
  const auto spans = spans_of(plan, sequence);
  const BidirectionalSpan* own = span_of_row(spans, sequence.position(row));
  if (own == nullptr) return bits;
  for (auto span = span_from(spans, start); span != spans.end(); ++span) {
    if (span->begin >= start + kWordTokens) break;
    if (see_each_other(*own, *span)) bits |= bits_of(span->begin, span->end, start);
  }
  return bits;
}

}  // namespace pagekv::inline v0::internal
