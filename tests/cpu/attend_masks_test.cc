// Masks, bit for bit: however a mask is said, a row that sees the same tokens has the same result;
// and what holds of causal rows, that company, cuts, threads and pages change nothing, holds of
// rows under any mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cpu/paged_cache.h"
#include "support/masks.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

constexpr int kQueryHeads = 6;
constexpr std::int64_t kTokens = 700;

struct Case {
  std::string format;
  Arithmetic arithmetic = Arithmetic::exact;
};

// The scalar target takes many times as long, and has the same code around its kernels.
std::vector<Case> cases(const std::string& target) {
  if (kSanitized || target == "SCALAR" || target == "EMU128") {
    return {{"bf16"}, {"kv4", Arithmetic::fast}};
  }
  std::vector<Case> all = {{"bf16"}, {"k8v3"}, {"k=affine:3:16:rot,v=codebook:2:head:rot"}};
  for (const char* format : {"kv8", "kv4", "k8v4", "k=affine:6:32:rot,v=affine:5:16:rot"}) {
    all.push_back({format, Arithmetic::fast});
  }
  return all;
}

std::ostream& operator<<(std::ostream& to, const Case& each) {
  return to << each.format << (each.arithmetic == Arithmetic::fast ? ", fast" : "");
}

// Sequences of random rows with queries for all of them, one after the other.
class Story {
 public:
  Story(const Case& each, std::vector<std::int64_t> lengths, std::uint64_t seed)
      : lengths_(std::move(lengths)), arithmetic_(each.arithmetic), random_(seed) {
    shape_ = {.kv_heads = 2, .key_dim = 64, .value_dim = 96, .format = format_of(each.format)};
    std::int64_t total = 0;
    for (const std::int64_t length : lengths_) {
      k_.emplace_back(DType::f32, length, 2, 64);
      v_.emplace_back(DType::f32, length, 2, 96);
      k_.back().fill_normal(random_);
      v_.back().fill_normal(random_);
      total += length;
    }
    q_ = Tensor(DType::f32, total, kQueryHeads, 64);
    q_.fill_normal(random_);
  }

  Random& random() { return random_; }
  const CacheShape& shape() const { return shape_; }

  PagedCache store(const std::string& target, int threads, std::int64_t page_tokens,
                   std::int64_t begin = 0) const {
    CacheShape shape = shape_;
    shape.page_tokens = page_tokens;
    PagedCache cache(make_device(target, threads), shape, lengths_, 1);
    for (std::size_t at = 0; at < lengths_.size(); ++at) {
      internal::WriteSpan span{
          .pages = cache.pages(at), .position = begin, .tokens = lengths_[at] - begin};
      cache.backend().encode(cache.address(), {&span, 1}, k_[at].view(begin), v_[at].view(begin),
                             {});
      EXPECT_EQ(span.bad_token, -1);
    }
    return cache;
  }

  AttendResult attend(const PagedCache& cache, const std::vector<Query>& queries, AttendSpec spec,
                      std::int64_t first_row = 0, Cut cut = Cut::as_planned) const {
    spec.query_heads = kQueryHeads;
    spec.arithmetic = arithmetic_;
    spec.logit_softcap = 20.0f;
    return testing::attend(
        cache, {.queries = queries, .spec = spec, .q = &q_, .first_row = first_row, .cut = cut});
  }

 private:
  std::vector<std::int64_t> lengths_;
  Arithmetic arithmetic_;
  Random random_;
  CacheShape shape_;
  std::vector<Tensor> k_;
  std::vector<Tensor> v_;
  Tensor q_{DType::f32, 0, kQueryHeads, 64};
};

// Rows [row, row + rows) of a result.
AttendResult rows_of(const AttendResult& all, std::int64_t row, std::int64_t rows) {
  const auto part = [&](const std::vector<float>& from, std::int64_t width) {
    return std::vector<float>(from.begin() + row * width, from.begin() + (row + rows) * width);
  };
  return {part(all.out, kQueryHeads * 96), part(all.lse, kQueryHeads)};
}

AttendSpec spec_of(Mask mask, std::int64_t window_tokens = 0) {
  AttendSpec spec;
  spec.mask = mask;
  spec.window_tokens = window_tokens;
  return spec;
}

class OnTarget : public ::testing::TestWithParam<std::string> {};

// As ranges, as spans of one token each, and as a matrix.
TEST_P(OnTarget, AMaskHasTheBitsOfItsMatrix) {
  for (const Case& each : cases(GetParam())) {
    Story story(each, {kTokens}, 31);
    const PagedCache cache = story.store(GetParam(), 1, 64);
    for (const std::int64_t rows : {1, 7, 70}) {
      for (const AttendSpec& spec :
           {spec_of(Mask::causal), spec_of(Mask::causal, 150), spec_of(Mask::none),
            spec_of(Mask::local), spec_of(Mask::local, 1), spec_of(Mask::local, 90)}) {
        SCOPED_TRACE(::testing::Message()
                     << each << ", rows " << rows << ", mask " << static_cast<int>(spec.mask)
                     << ", window " << spec.window_tokens);
        Query query{.sequence = 0, .length = kTokens, .rows = rows};
        ReferenceCase reference{.length = kTokens,
                                .rows = rows,
                                .mask = spec.mask,
                                .window_tokens = spec.window_tokens};
        const AttendResult plain = story.attend(cache, {query}, spec);
        query.matrix = matrix_of(reference);
        EXPECT_TRUE(story.attend(cache, {query}, spec_of(Mask::matrix)) == plain);
        if (spec.mask != Mask::causal) continue;
        for (std::int64_t token = kTokens - rows; token < kTokens; ++token) {
          query.spans.push_back({token, token + 1});
        }
        EXPECT_TRUE(story.attend(cache, {query}, spec) == plain) << "spans of a token each";
        query.spans = pick_spans(story.random(), kTokens);
        reference.spans = query.spans;
        query.matrix = matrix_of(reference);
        EXPECT_TRUE(story.attend(cache, {query}, spec) ==
                    story.attend(cache, {query}, spec_of(Mask::matrix)))
            << "spans";
      }
    }
  }
}

// Three sequences under random masks of one kind: alone, their last rows alone, in any cut, with
// any threads, in any pages.
void expect_same_bits(const std::string& target, Story& story, const std::vector<Query>& queries,
                      const AttendSpec& spec) {
  const PagedCache cache = story.store(target, 1, 64);
  const AttendResult together = story.attend(cache, queries, spec);
  std::int64_t first_row = 0;
  for (const Query& query : queries) {
    const AttendResult alone = story.attend(cache, {query}, spec, first_row);
    EXPECT_TRUE(alone == rows_of(together, first_row, query.rows)) << "alone";
    Query last = query;
    last.rows = pick(story.random(), 1, query.rows);
    const std::int64_t skipped = query.rows - last.rows;
    if (!last.matrix.empty()) {
      last.matrix.erase(last.matrix.begin(), last.matrix.begin() + skipped * query.length);
    }
    EXPECT_TRUE(story.attend(cache, {last}, spec, first_row + skipped) ==
                rows_of(alone, skipped, last.rows))
        << "the last rows";
    first_row += query.rows;
  }
  for (const int threads : {1, 2, 4}) {
    for (const Cut cut : {Cut::as_planned, Cut::always_split}) {
      const PagedCache other = story.store(target, threads, threads == 1 ? 16 : 256);
      EXPECT_TRUE(story.attend(other, queries, spec, 0, cut) == together)
          << threads << " threads, cut " << static_cast<int>(cut);
    }
  }
}

TEST_P(OnTarget, CompanyCutsAndPagesKeepBitsUnderAnyMask) {
  const std::vector<std::int64_t> lengths = {kTokens, 130, 1100};
  for (const Case& each : cases(GetParam())) {
    Story story(each, lengths, 41);
    for (const AttendSpec& spec : {spec_of(Mask::matrix), spec_of(Mask::causal),
                                   spec_of(Mask::causal, 200), spec_of(Mask::local, 100)}) {
      SCOPED_TRACE(::testing::Message() << each << ", mask " << static_cast<int>(spec.mask));
      std::vector<Query> queries;
      for (std::size_t at = 0; at < lengths.size(); ++at) {
        Query query{.sequence = at,
                    .length = lengths[at],
                    .rows = pick(story.random(), 1, pick(story.random(), 0, 1) == 0 ? 5 : 90)};
        if (spec.mask == Mask::causal) query.spans = pick_spans(story.random(), query.length);
        if (spec.mask == Mask::matrix) {
          query.matrix = pick_matrix(story.random(), query.rows, query.length);
        }
        queries.push_back(query);
      }
      expect_same_bits(GetParam(), story, queries, spec);
    }
  }
}

// What no row sees need not even be there, and what one row does not see does not touch it.
TEST_P(OnTarget, MaskedTokensDoNotMatter) {
  for (const Case& each : cases(GetParam())) {
    SCOPED_TRACE(::testing::Message() << each);
    Story story(each, {kTokens}, 51);
    for (const std::int64_t rows : {2, 40}) {
      constexpr std::int64_t kFirst = 333;  // in the middle of a tile
      Query query{.sequence = 0, .length = kTokens, .rows = rows};
      query.matrix = pick_matrix(story.random(), rows, kTokens);
      for (std::int64_t row = 0; row < rows; ++row) {
        std::fill_n(query.matrix.begin() + row * kTokens, kFirst, std::uint8_t{0});
      }
      const AttendSpec spec = spec_of(Mask::matrix);
      const AttendResult whole = story.attend(story.store(GetParam(), 1, 64), {query}, spec);
      const PagedCache cut = story.store(GetParam(), 1, 64, kFirst);  // NaN before
      EXPECT_TRUE(story.attend(cut, {query}, spec) == whole);

      for (std::int64_t row = 0; row < rows; ++row) {  // another row sees everything
        std::fill_n(query.matrix.begin() + row * kTokens, kTokens, std::uint8_t{0});
        if (row % 2 == 0) continue;
        std::fill_n(query.matrix.begin() + row * kTokens, kTokens, std::uint8_t{1});
      }
      const AttendResult mixed = story.attend(story.store(GetParam(), 1, 64), {query}, spec);
      const AttendResult blind = rows_of(mixed, 0, 1);
      EXPECT_TRUE(std::ranges::all_of(blind.out, [](float x) { return x == 0.0f; }));
      EXPECT_TRUE(std::ranges::all_of(blind.lse, [](float x) { return x < -1e30f; }));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, OnTarget, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace pagekv::testing
