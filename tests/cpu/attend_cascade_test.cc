// Cascade: sequences that share pages attend them together, and each row keeps the bits that it has
// without, and alone.
#include <gtest/gtest.h>

#include <algorithm>

#include "cpu/paged_cache.h"
#include "support/masks.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

struct Case {
  std::string format;
  Arithmetic arithmetic = Arithmetic::exact;
  int kv_heads = 2;
  int group = 3;  // query heads of a KV head
};

// The scalar target takes many times as long, and has the same code around its kernels.
std::vector<Case> cases(const std::string& target) {
  std::vector<Case> all;
  const std::vector<int> groups = {1, 3, 4, 8};
  for (const char* format : {"bf16", "f32", "k8v3", "k=affine:3:16:rot,v=codebook:2:head:rot",
                             "kv8", "kv4", "k8v4", "affine:4:16", "codebook:5:head:rot"}) {
    for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::fast}) {
      const int group = groups[all.size() % groups.size()];
      all.push_back({format, arithmetic, group == 8 ? 1 : 2, group});
    }
  }
  if (kSanitized || target == "SCALAR" || target == "EMU128") all.resize(6);
  return all;
}

std::ostream& operator<<(std::ostream& to, const Case& each) {
  return to << each.format << (each.arithmetic == Arithmetic::fast ? ", fast" : "") << ", heads "
            << each.kv_heads * each.group << "/" << each.kv_heads;
}

// Sequences of which some begin with the same pages, in no order.
struct Batch {
  std::vector<std::int64_t> lengths;
  std::vector<Query> queries;
  // Of each sequence: whose pages it begins with, or itself; and how many tokens of them.
  std::vector<std::size_t> parents;
  std::vector<std::int64_t> shared;
};

// Groups of sharers: a parent, and children that share more or less of it; some share with a child.
Batch pick_batch(Random& random, std::int64_t page_tokens) {
  Batch batch;
  const auto add = [&](std::size_t parent, std::int64_t shared, std::int64_t length) {
    batch.lengths.push_back(length);
    batch.parents.push_back(parent);
    batch.shared.push_back(shared);
    const std::int64_t kind = pick(random, 0, 3);
    const std::int64_t rows = kind < 2 ? 1 : kind == 2 ? pick(random, 2, 8) : pick(random, 9, 70);
    batch.queries.push_back(
        {.sequence = batch.lengths.size() - 1, .length = length, .rows = std::min(rows, length)});
  };
  for (int group = 0; group < 2; ++group) {
    const std::size_t parent = batch.lengths.size();
    add(parent, 0, pick(random, 1100, 1700));
    const std::int64_t children = pick(random, 1, 4);
    for (std::int64_t child = 0; child < children; ++child) {
      const std::size_t of = pick(random, 0, 2) == 0 ? batch.lengths.size() - 1 : parent;
      const std::int64_t shared = pick(random, 0, batch.lengths[of] / page_tokens) * page_tokens;
      // A child may have nothing of its own, or little.
      add(of, shared,
          std::max<std::int64_t>(1, shared + pick(random, 0, 1) * pick(random, 0, 600)));
    }
  }
  add(batch.lengths.size(), 0, 40);
  std::shuffle(batch.queries.begin(), batch.queries.end(), random);
  return batch;
}

PagedCache store(const Batch& batch, const CacheShape& shape, Device device, std::uint64_t seed) {
  PagedCache cache(std::move(device), shape, batch.lengths, seed);
  for (std::size_t at = 0; at < batch.lengths.size(); ++at) {
    Random random(seed + at);
    const std::int64_t from = batch.shared[at];
    if (from > 0) cache.share(batch.parents[at], at, from);
    const std::int64_t tokens = batch.lengths[at] - from;
    if (tokens == 0) continue;
    Tensor k(DType::f32, tokens, shape.kv_heads, shape.key_dim);
    Tensor v(DType::f32, tokens, shape.kv_heads, shape.value_dim);
    k.fill_normal(random);
    v.fill_normal(random);
    EXPECT_EQ(cache.write(at, from, k, v), -1);
  }
  return cache;
}

struct Setting {
  Case each;
  std::int64_t page_tokens = 64;
  std::int64_t window_tokens = 0;
  bool spans = false;
};

// Returns how many prefixes were shared.
std::size_t expect_same_bits(const std::string& target, const Setting& setting,
                             std::uint64_t seed) {
  Random random(seed);
  const CacheShape shape{.kv_heads = setting.each.kv_heads,
                         .key_dim = 32,
                         .value_dim = 64,
                         .format = format_of(setting.each.format),
                         .page_tokens = setting.page_tokens};
  Batch batch = pick_batch(random, setting.page_tokens);
  const int heads = setting.each.kv_heads * setting.each.group;
  std::int64_t rows = 0;
  for (Query& query : batch.queries) {
    rows += query.rows;
    if (setting.spans) query.spans = pick_spans(random, query.length);
  }
  Tensor q(DType::f32, rows, heads, shape.key_dim);
  q.fill_normal(random);
  const std::vector<float> sinks(static_cast<std::size_t>(heads), 0.5f);
  AttendSpec spec;
  spec.query_heads = heads;
  spec.window_tokens = setting.window_tokens;
  spec.arithmetic = setting.each.arithmetic;
  AttendRequest request{.queries = batch.queries, .spec = spec, .q = &q, .sinks = sinks.data()};
  request.spec.cascade = false;
  const PagedCache cache = store(batch, shape, make_device(target), seed);
  const AttendResult apart = attend(cache, request);
  EXPECT_TRUE(plan_of(cache, request).prefixes.empty());

  request.spec.cascade = true;
  std::size_t prefixes = 0;
  for (const int threads : {1, 2, 4}) {
    const PagedCache threaded = store(batch, shape, make_device(target, threads), seed);
    request.cut = threads == 2 ? Cut::always_split : Cut::as_planned;
    EXPECT_TRUE(attend(threaded, request) == apart) << threads << " threads";
    prefixes = plan_of(threaded, request).prefixes.size();
  }
  request.cut = Cut::as_planned;
  for (const Query& query : batch.queries) {
    request.queries = {query};
    const AttendResult alone = attend(cache, request);
    const auto out = apart.out.begin() + request.first_row * heads * shape.value_dim;
    EXPECT_TRUE(std::equal(alone.out.begin(), alone.out.end(), out)) << "alone";
    request.first_row += query.rows;
  }
  return prefixes;
}

class OnTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(OnTarget, SharersKeepTheirBits) {
  std::size_t prefixes = 0;
  std::uint64_t seed = 80;
  for (const Case& each : cases(GetParam())) {
    for (const std::int64_t page_tokens : {16, 48, 64, 256}) {
      // Of the formats each meets one page size in two.
      if ((++seed + static_cast<std::uint64_t>(page_tokens / 16)) % 2 == 0) continue;
      SCOPED_TRACE(::testing::Message() << each << ", page " << page_tokens << ", seed " << seed);
      prefixes += expect_same_bits(GetParam(), {each, page_tokens}, seed);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(prefixes, 6u) << "nothing was shared, so nothing was tested";
}

TEST_P(OnTarget, WindowsAndSpansKeepTheirBits) {
  std::size_t prefixes = 0;
  for (const Case& each : {Case{"bf16"}, Case{"kv4", Arithmetic::fast, 1, 8}}) {
    for (std::uint64_t seed = 200; seed < 204; ++seed) {
      SCOPED_TRACE(::testing::Message() << each << ", seed " << seed);
      prefixes += expect_same_bits(GetParam(), {.each = each, .window_tokens = 1200}, seed);
      prefixes += expect_same_bits(GetParam(), {.each = each, .spans = true}, seed);
    }
  }
  EXPECT_GT(prefixes, 4u);
}

INSTANTIATE_TEST_SUITE_P(Targets, OnTarget, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace pagekv::testing
