// The pieces of attention over one span of 128 tokens of one KV head with 4 query heads, from L1
// and L2: scores, softmax, values, fold. Times are of one span; `cycles` is per token.
//
//   bench_kernels [--benchmark_filter=codes]        (Google Benchmark's options)
#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "cpu/attend_scratch.h"
#include "cpu/kernel_table.h"
#include "cpu/targets.h"

namespace {

using namespace pagekv;            // NOLINT(google-build-using-namespace): a program, not a header
using namespace pagekv::internal;  // NOLINT(google-build-using-namespace)

constexpr std::int64_t kDim = 128;
constexpr std::int64_t kQueries = 4;

// One span whose planes hold random bytes, but scales that are small and finite.
class Span {
 public:
  explicit Span(const VectorCodec& codec) : codec_(*codec.resolve(kDim)) {
    const std::vector<Plane> planes = codec_.planes(kDim);
    shape_ = {.dim = kDim,
              .group = codec_.kind() == CodecKind::dense ? kDim : codec_.group_elements(kDim),
              .groups = codec_.groups(kDim),
              .scales = codec_.dtype()};
    std::mt19937 random(1);
    for (std::size_t i = 0; i < planes.size(); ++i) {
      shape_.row_bytes[i] = planes[i].bytes_per_vector;
      auto& bytes = planes_[i];
      bytes.resize(static_cast<std::size_t>(shape_.row_bytes[i] * kSpanTokens + 64));
      const bool floats = i > 0 || codec_.kind() == CodecKind::dense;
      for (std::size_t at = 0; at < bytes.size(); ++at) {
        bytes[at] = static_cast<std::byte>(floats && at % 2 == 1 ? 0x3c : random() % 256);
      }
    }
    tiles_.end = kSpanTokens;
    tiles_.end_tile = kSpanTiles;
    for (std::size_t tile = 0; tile < kSpanTiles; ++tile) {
      for (std::size_t i = 0; i < planes.size(); ++i) {
        const auto offset = static_cast<std::int64_t>(tile) * kTileTokens * shape_.row_bytes[i];
        tiles_.k[tile][i] = tiles_.v[tile][i] = planes_[i].data() + offset;
      }
    }
  }
  const SpanTiles& tiles() const { return tiles_; }
  const SideShape& shape() const { return shape_; }
  std::size_t width_index() const { return codec_index(codec_) - kFirstAffine; }

 private:
  VectorCodec codec_;
  SideShape shape_;
  std::array<std::vector<std::byte>, kMaxPlanes> planes_;
  SpanTiles tiles_;
};

const KernelTable& kernels() {
  return *find_kernel_table("");
}

struct Worker {
  Worker() : memory(static_cast<std::size_t>(AttendScratch::floats(kernels(), shape)), 0.1f) {
    scratch = AttendScratch::carve(kernels(), shape, memory.data());
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < kQueries * kDim; ++i) scratch.packed_q[i] = normal(random);
    for (std::int64_t i = 0; i < kQueries * kSpanTokens; ++i) scratch.logits[i] = normal(random);
  }
  HeadShape shape{kDim, kDim, kQueries};
  std::vector<float> memory;
  AttendScratch scratch{};
};

AskAhead nothing;  // all that the kernels read is in cache

// Cycles of a token: iterations a second turned over, times the clock.
void finish(benchmark::State& state) {
  state.counters["cycles"] = benchmark::Counter(
      static_cast<double>(state.iterations()) * kSpanTokens / bench::cycles_per_second(),
      benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void score_dense(benchmark::State& state) {
  const Span span(VectorCodec::dense(DType::bf16));
  const Worker worker;
  for (auto _ : state) {
    kernels().score_narrow[dtype_index(DType::bf16)](
        span.tiles(), kDim, nothing, worker.scratch.packed_q, kQueries, worker.scratch.logits);
  }
  finish(state);
}

void score_codes(benchmark::State& state) {
  const Span span(VectorCodec::affine(static_cast<int>(state.range(0)),
                                      VectorCodec::exactly(static_cast<int>(state.range(1)))));
  const Worker worker;
  const CodeQueries queries = CodeQueries::carve(worker.scratch.code_queries, kDim);
  for (std::int64_t i = 0; i < kQueries; ++i) {
    kernels().codes.pack_query[span.width_index()](worker.scratch.packed_q + i * kDim, span.shape(),
                                                   i, queries);
  }
  SpanBits large{};
  for (auto _ : state) {
    kernels().codes.score[span.width_index()](span.tiles(), span.shape(), queries, kQueries,
                                              nothing, worker.scratch.logits, large);
  }
  finish(state);
}

void softmax(benchmark::State& state) {
  const Worker worker;
  const LogitMap map{.scale = 0.09f};
  const std::vector<float> logits(worker.scratch.logits,
                                  worker.scratch.logits + kQueries * kSpanTokens);
  for (auto _ : state) {
    for (std::int64_t i = 0; i < kQueries; ++i) {
      worker.scratch.span_state[i] =
          kernels().softmax(worker.scratch.logits + i * kSpanTokens, 0, kSpanTokens, nullptr, map);
    }
  }
  finish(state);
}

void add_dense(benchmark::State& state) {
  const Span span(VectorCodec::dense(DType::bf16));
  const Worker worker;
  for (auto _ : state) {
    kernels().add_values_narrow[dtype_index(DType::bf16)](
        span.tiles(), kDim, nothing, worker.scratch.logits, kQueries, worker.scratch.span_out);
  }
  finish(state);
}

struct CodeValues {
  explicit CodeValues(const Worker& worker, const SideShape& shape)
      : rows{.codes = reinterpret_cast<std::uint8_t*>(worker.scratch.panels),
             .scales = worker.scratch.code_scales,
             .biases = worker.scratch.code_scales + shape.groups * kSpanTokens},
        weights(CodeWeights::carve(worker.scratch.code_weights, kCodeQueries, shape.groups)) {}
  CodeRows rows;
  CodeWeights weights;
  SpanBits large{};
};

enum Piece { kPrepare, kWeigh, kAdd };

void values_codes(benchmark::State& state, Piece piece) {
  const Span span(VectorCodec::affine(static_cast<int>(state.range(0)),
                                      VectorCodec::exactly(static_cast<int>(state.range(1)))));
  const Worker worker;
  CodeValues values(worker, span.shape());
  const CodeKernels& codes = kernels().codes;
  const auto prepare = [&] {
    codes.prepare_rows[span.width_index()](span.tiles(), span.shape(), false, nothing, values.rows,
                                           values.large);
  };
  const auto weigh = [&] {
    codes.weigh(span.tiles(), values.rows, span.shape(), worker.scratch.logits, kQueries,
                values.weights);
  };
  prepare();
  weigh();
  for (auto _ : state) {
    if (piece == kPrepare) prepare();
    if (piece == kWeigh) weigh();
    if (piece == kAdd) {
      codes.add(values.rows, span.shape(), values.weights, kQueries, nothing, kDim,
                worker.scratch.span_out);
    }
  }
  finish(state);
}

void fold(benchmark::State& state) {
  const Worker worker;
  SoftmaxState left{1.0f, 1.0f};
  for (auto _ : state) {
    kernels().fold(left, worker.scratch.chunk_out, {0.5f, 1.0f}, worker.scratch.span_out, kDim);
  }
  finish(state);
}

void widths(benchmark::internal::Benchmark* benchmark) {
  for (const int bits : kAffineWidths) benchmark->Args({bits, 128});
  benchmark->Args({4, 64})->Args({4, 32});
}

BENCHMARK(score_dense);
BENCHMARK(score_codes)->Apply(widths);
BENCHMARK(softmax);
BENCHMARK(add_dense);
BENCHMARK_CAPTURE(values_codes, prepare, kPrepare)->Apply(widths);
BENCHMARK_CAPTURE(values_codes, weigh, kWeigh)->Apply(widths);
BENCHMARK_CAPTURE(values_codes, add, kAdd)->Apply(widths);
BENCHMARK(fold);

}  // namespace

BENCHMARK_MAIN();
