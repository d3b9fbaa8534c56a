// The direct and the gathered arm against float64 over the stored elements, over random shapes and
// formats on every target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cpu/constants.h"
#include "cpu/paged_cache.h"
#include "support/masks.h"
#include "support/reference.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

constexpr double kUlp = 1.0 / (1 << 24);  // half a unit in the last place of f32, relative
// Bounds of docs/numerics.md: of the relative L2 error of an output, and of a log-sum-exp.
constexpr double kExactBound = 1e-5;
constexpr double kFastBound = 3e-3;
constexpr double kLogitFactor = 24.0;  // c in c * 2^-24 * (1 + max |logit|)

double exact_bound(double max_abs_logit) {
  return std::max(kExactBound, kLogitFactor * kUlp * (1.0 + max_abs_logit));
}

double output_rounding(DType type) {
  return type == DType::f32 ? 0.0 : type == DType::f16 ? 1.0 / 2048 : 1.0 / 256;
}

struct Trial {
  CacheShape shape;
  int query_heads = 1;
  std::vector<std::int64_t> lengths;
  std::vector<Query> queries;
  AttendSpec spec;
  DType query_type = DType::f32;
  DType out_type = DType::f32;
  bool sinks = false;
};

std::ostream& operator<<(std::ostream& to, const Trial& trial) {
  const CacheShape& shape = trial.shape;
  to << "kv_heads " << shape.kv_heads << " query_heads " << trial.query_heads << " key_dim "
     << shape.key_dim << " value_dim " << shape.value_dim << ' ' << shape.format.name() << " page "
     << shape.page_tokens << " arrangement " << static_cast<int>(shape.arrangement) << " mask "
     << static_cast<int>(trial.spec.mask) << " window " << trial.spec.window_tokens << " softcap "
     << trial.spec.logit_softcap << " arithmetic " << static_cast<int>(trial.spec.arithmetic)
     << " q " << name(trial.query_type) << " out " << name(trial.out_type) << " sinks "
     << trial.sinks;
  for (const Query& query : trial.queries) {
    to << " [" << query.length << "/" << query.rows << (query.spans.empty() ? "]" : ", spans]");
  }
  return to;
}

// Lengths just around what the kernels care about.
std::int64_t pick_length(Random& random) {
  static const std::vector<std::int64_t> kEdges = {0, 16, 64, 128, 256, 512, 1024};
  if (pick(random, 0, 3) == 0) return pick(random, 1, 700);
  return std::max<std::int64_t>(0, pick_one(random, kEdges) + pick(random, -1, 1));
}

// Of the codecs of keys and values, trial `index` has kinds and widths that follow from it: all of
// them come up on either side within kCodecWidths trials, in other pairs each time.
Format pick_format(Random& random, int index, int key_dim, int value_dim) {
  const int round = index / kCodecWidths;
  return {pick_codec(random, index % kCodecWidths, key_dim),
          pick_codec(random, (7 * index + 4 * round + 2) % kCodecWidths, value_dim)};
}

// Three trials in eight are plainly causal, with a window or without.
void pick_mask(Random& random, Trial& trial) {
  const std::int64_t kind = pick(random, 0, 7);
  AttendSpec& spec = trial.spec;
  spec.mask = kind == 0   ? Mask::none
              : kind == 1 ? Mask::local
              : kind == 2 ? Mask::matrix
              : kind == 4 ? Mask::block
                          : Mask::causal;
  const bool window = spec.mask == Mask::causal || spec.mask == Mask::local;
  spec.window_tokens = window && pick(random, 0, 2) == 0 ? pick(random, 1, 300) : 0;
  for (Query& query : trial.queries) {
    if (kind == 3) query.spans = pick_spans(random, query.length);
    if (kind == 2) query.matrix = pick_matrix(random, query.rows, query.length);
  }
}

Trial pick_trial(Random& random, int index) {
  const std::vector<DType> types = {DType::f32, DType::f16, DType::bf16};
  const std::vector<int> dims = {8, 16, 24, 40, 64, 72, 80, 96, 128, 192, 256, 576};
  const std::vector<int> groups = {1, 1, 2, 3, 4, 5, 7, 8, 16};
  Trial trial;
  trial.shape = {.kv_heads = static_cast<int>(pick(random, 1, 3)),
                 .key_dim = pick_one(random, dims),
                 .value_dim = pick_one(random, dims),
                 .page_tokens = 16 * pick(random, 1, 9),
                 .arrangement = pick(random, 0, 1) == 0 ? TileArrangement::row_major
                                                        : TileArrangement::key_tile16,
                 .order = pick(random, 0, 1) == 0 ? PageOrder::page_major : PageOrder::layer_major};
  trial.shape.format = pick_format(random, index, trial.shape.key_dim, trial.shape.value_dim);
  trial.query_heads = trial.shape.kv_heads * pick_one(random, groups);
  const std::int64_t sequences = pick(random, 1, 3);
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence) {
    const std::int64_t length = pick_length(random);
    const std::int64_t most = std::min<std::int64_t>(length, pick(random, 0, 2) == 0 ? 70 : 4);
    trial.lengths.push_back(length);
    trial.queries.push_back({.sequence = static_cast<std::size_t>(sequence),
                             .length = length,
                             .rows = pick(random, 1, std::max<std::int64_t>(1, most))});
  }
  trial.spec.query_heads = trial.query_heads;
  pick_mask(random, trial);
  trial.spec.logit_softcap = pick(random, 0, 3) == 0 ? 5.0f : 0.0f;
  trial.spec.arithmetic = pick(random, 0, 3) == 0 ? Arithmetic::fast : Arithmetic::exact;
  trial.query_type = pick_one(random, types);
  trial.out_type = pick_one(random, types);
  trial.sinks = pick(random, 0, 2) == 0;
  if (pick(random, 0, 3) == 0) trial.spec.scale = -0.25f;  // any finite scale is legal
  return trial;
}

struct Inputs {
  std::vector<Tensor> k;
  std::vector<Tensor> v;
  Tensor q;
  std::vector<float> sinks;
  Tensor block_k;  // a row for each of q, of Mask::block
  Tensor block_v;
};

Inputs make_inputs(const Trial& trial, Random& random) {
  std::int64_t rows = 0;
  for (const Query& query : trial.queries) rows += query.rows;
  const CacheShape& shape = trial.shape;
  const DType block_type = trial.out_type;  // any
  Inputs inputs{{},
                {},
                Tensor(trial.query_type, rows, trial.query_heads, shape.key_dim),
                {},
                Tensor(block_type, rows, shape.kv_heads, shape.key_dim),
                Tensor(block_type, rows, shape.kv_heads, shape.value_dim)};
  for (Tensor* tensor : {&inputs.q, &inputs.block_k, &inputs.block_v}) tensor->fill_normal(random);
  for (const std::int64_t length : trial.lengths) {
    inputs.k.emplace_back(DType::f32, length, trial.shape.kv_heads, trial.shape.key_dim);
    inputs.v.emplace_back(DType::f32, length, trial.shape.kv_heads, trial.shape.value_dim);
    inputs.k.back().fill_normal(random);
    inputs.v.back().fill_normal(random);
  }
  if (trial.sinks) {
    std::normal_distribution<float> normal(0.0f, 2.0f);
    for (int head = 0; head < trial.query_heads; ++head) inputs.sinks.push_back(normal(random));
  }
  return inputs;
}

// Stores all sequences and puts the elements that are stored in place of the inputs.
void store(PagedCache& cache, Inputs& inputs) {
  for (std::size_t index = 0; index < inputs.k.size(); ++index) {
    const std::int64_t length = inputs.k[index].rows();
    if (length == 0) continue;
    ASSERT_EQ(cache.write(index, 0, inputs.k[index], inputs.v[index]), -1);
    cache.gather(index, 0, length, inputs.k[index], inputs.v[index]);
  }
}

// Rows of `stored`, and `rows` rows of `block` from `first_row` on behind them.
Tensor join(const Tensor& stored, const Tensor& block, std::int64_t first_row, std::int64_t rows) {
  Tensor joint(DType::f32, stored.rows() + rows, stored.heads(), stored.dim());
  for (std::int64_t row = 0; row < joint.rows(); ++row) {
    for (std::int64_t head = 0; head < joint.heads(); ++head) {
      for (std::int64_t dim = 0; dim < joint.dim(); ++dim) {
        joint.set(row, head, dim,
                  row < stored.rows() ? stored.at(row, head, dim)
                                      : block.at(first_row + row - stored.rows(), head, dim));
      }
    }
  }
  return joint;
}

// Compares one query's rows of `got` with float64. Returns the largest logit.
double expect_close(const Trial& trial, const Inputs& inputs, const Query& query,
                    std::int64_t first_row, const AttendResult& got, bool gathered) {
  const std::int64_t block = trial.spec.mask == Mask::block ? query.rows : 0;
  const Tensor k = join(inputs.k[query.sequence], inputs.block_k, first_row, block);
  const Tensor v = join(inputs.v[query.sequence], inputs.block_v, first_row, block);
  const ReferenceResult want =
      reference_attention({.k = &k,
                           .v = &v,
                           .length = query.length + block,
                           .q = &inputs.q,
                           .first_row = first_row,
                           .rows = query.rows,
                           .mask = trial.spec.mask,
                           .window_tokens = trial.spec.window_tokens,
                           .spans = query.spans,
                           .matrix = query.matrix.data(),
                           .scale = scale_of(trial.shape, trial.spec),
                           .logit_softcap = trial.spec.logit_softcap,
                           .sinks = trial.sinks ? inputs.sinks.data() : nullptr});
  const auto out_begin = got.out.begin() + first_row * trial.query_heads * trial.shape.value_dim;
  const std::vector<float> out(out_begin,
                               out_begin + query.rows * trial.query_heads * trial.shape.value_dim);
  const bool fast = trial.spec.arithmetic == Arithmetic::fast && !gathered;
  const double bound = fast ? kFastBound : exact_bound(want.max_abs_logit);
  EXPECT_LE(relative_l2(want.out, out), bound + output_rounding(trial.out_type));
  for (std::size_t i = 0; i < want.lse.size(); ++i) {
    const float lse = got.lse[static_cast<std::size_t>(first_row * trial.query_heads) + i];
    if (std::isinf(want.lse[i])) {
      EXPECT_EQ(lse, -std::numeric_limits<float>::infinity());
    } else {
      EXPECT_NEAR(lse, want.lse[i], bound * (1.0 + std::abs(want.lse[i])));
    }
  }
  return want.max_abs_logit;
}

void run_trial(const Trial& trial, const std::string& target, Random& random) {
  Inputs inputs = make_inputs(trial, random);
  PagedCache cache(make_device(target), trial.shape, trial.lengths, random());
  store(cache, inputs);
  AttendRequest request{.queries = trial.queries,
                        .spec = trial.spec,
                        .q = &inputs.q,
                        .out_type = trial.out_type,
                        .sinks = trial.sinks ? inputs.sinks.data() : nullptr,
                        .block_k = inputs.block_k.view(),
                        .block_v = inputs.block_v.view()};
  const AttendResult direct = attend(cache, request);
  request.spec.arm = ReadArm::gathered;
  const AttendResult gathered = attend(cache, request);
  request.spec.arm = ReadArm::direct;
  request.cut = Cut::always_split;
  EXPECT_TRUE(attend(cache, request) == direct) << "a split changed bits";

  std::int64_t first_row = 0;
  double max_abs_logit = 0.0;
  for (const Query& query : trial.queries) {
    max_abs_logit =
        std::max(max_abs_logit, expect_close(trial, inputs, query, first_row, direct, false));
    expect_close(trial, inputs, query, first_row, gathered, true);
    first_row += query.rows;
  }
  const bool fast = trial.spec.arithmetic == Arithmetic::fast;
  const double bound =
      (fast ? kFastBound : exact_bound(max_abs_logit)) + exact_bound(max_abs_logit);
  const std::vector<double> want(gathered.out.begin(), gathered.out.end());
  EXPECT_LE(relative_l2(want, direct.out), bound + 2 * output_rounding(trial.out_type))
      << "the arms differ";
}

class OnTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(OnTarget, RandomShapesStayWithinTheBounds) {
  // The scalar target takes many times as long; its code is the same template. Every kind and width
  // of codec comes up all the same.
  const bool slow = kSanitized || GetParam() == "SCALAR" || GetParam() == "EMU128";
  const int trials = slow ? kCodecWidths + 5 : 70;
  for (int index = 0; index < trials; ++index) {
    const auto seed = static_cast<std::uint64_t>(1000 + index);
    Random random(seed);
    const Trial trial = pick_trial(random, index);
    SCOPED_TRACE(::testing::Message() << GetParam() << " seed " << seed << ": " << trial);
    run_trial(trial, GetParam(), random);
    if (HasFailure()) break;
  }
}

TEST_P(OnTarget, NormalDataStaysAccurateTo8kTokens) {
  const std::uint64_t seed = 77;
  Random random(seed);
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Trial trial;
  trial.shape = {.kv_heads = 1, .key_dim = 128, .value_dim = 128};
  trial.query_heads = 2;
  trial.spec.query_heads = 2;
  trial.spec.window_tokens = 0;
  trial.lengths = {8192};
  trial.queries = {{.sequence = 0, .length = 8192, .rows = 1}};
  Inputs inputs = make_inputs(trial, random);
  PagedCache cache(make_device(GetParam()), trial.shape, trial.lengths, seed);
  store(cache, inputs);
  for (const std::int64_t length : {1024, 8192}) {
    const std::vector<Query> queries = {{.sequence = 0, .length = length, .rows = 1}};
    const AttendResult got =
        attend(cache, {.queries = queries, .spec = trial.spec, .q = &inputs.q});
    const ReferenceResult want = reference_attention({.k = &inputs.k[0],
                                                      .v = &inputs.v[0],
                                                      .length = length,
                                                      .q = &inputs.q,
                                                      .rows = 1,
                                                      .scale = scale_of(trial.shape, trial.spec)});
    EXPECT_LE(relative_l2(want.out, got.out), 2e-6) << length;
  }
}

TEST_P(OnTarget, LargeLogitsErrByTheirSizeOnly) {
  const std::uint64_t seed = 78;
  Random random(seed);
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  Trial trial;
  trial.shape = {
      .kv_heads = 1, .key_dim = 64, .value_dim = 64, .format = format_of("k=f32,v=bf16")};
  trial.query_heads = 4;
  trial.spec.query_heads = 4;
  trial.spec.window_tokens = 0;
  trial.lengths = {600};
  trial.queries = {{.sequence = 0, .length = 600, .rows = 5}};
  for (const float deviation : {3.0f, 30.0f, 300.0f}) {
    Inputs inputs = make_inputs(trial, random);
    inputs.k[0].fill_normal(random, deviation);
    PagedCache cache(make_device(GetParam()), trial.shape, trial.lengths, seed);
    store(cache, inputs);
    const AttendResult got =
        attend(cache, {.queries = trial.queries, .spec = trial.spec, .q = &inputs.q});
    expect_close(trial, inputs, trial.queries[0], 0, got, false);
  }
}

// Shorter than the groups that `fast` is made for.
TEST_P(OnTarget, TheSmallestHeadsStayWithinTheBounds) {
  for (const char* format : {"kv8", "kv4", "k8v3", "codebook:4:head"}) {
    for (const int dim : {8, 16, 24}) {
      Random random(79);
      Trial trial;
      trial.shape = {.kv_heads = 2, .key_dim = dim, .value_dim = 8, .format = format_of(format)};
      trial.query_heads = 8;
      trial.spec.query_heads = 8;
      trial.spec.window_tokens = 0;
      trial.spec.arithmetic = Arithmetic::fast;
      trial.lengths = {20, 300};
      trial.queries = {{.sequence = 0, .length = 20, .rows = 1},
                       {.sequence = 1, .length = 300, .rows = 15}};
      SCOPED_TRACE(::testing::Message() << GetParam() << ": " << trial);
      run_trial(trial, GetParam(), random);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, OnTarget, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace pagekv::testing
