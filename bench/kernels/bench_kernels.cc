// The pieces of attention over one span of 128 tokens of one KV head with 4 query heads, from L1
// and L2: scores, softmax, values, fold. Times are of one span; `cycles` is per token.
//
//   bench_kernels [--benchmark_filter=codes]        (Google Benchmark's options)
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "cpu/attend_scratch.h"
#include "cpu/code_table.h"
#include "cpu/denormals.h"
#include "cpu/kernel_table.h"
#include "cpu/targets.h"
#include "cpu/value_bytes.h"

namespace {

using namespace pagekv;            // NOLINT(google-build-using-namespace): a program, not a header
using namespace pagekv::internal;  // NOLINT(google-build-using-namespace)

constexpr std::int64_t kDim = 128;
constexpr std::int64_t kQueries = 4;

// Spans whose planes hold random bytes, but scales that are small and finite. next() goes through
// them in turn: from where they fit, L1 or L2.
class Spans {
 public:
  explicit Spans(const VectorCodec& codec, std::int64_t count = 1)
      : codec_(*codec.resolve(kDim)), tiles_(static_cast<std::size_t>(count)) {
    const std::vector<Plane> planes = codec_.planes(kDim);
    shape_ = {.dim = kDim,
              .group = codec_.kind() == CodecKind::dense ? kDim : codec_.group_elements(kDim),
              .groups = codec_.groups(kDim),
              .scales = codec_.dtype()};
    std::mt19937 random(1);
    for (std::size_t i = 0; i < planes.size(); ++i) {
      shape_.row_bytes[i] = planes[i].bytes_per_vector;
      auto& bytes = planes_[i];
      bytes.resize(static_cast<std::size_t>(count * shape_.row_bytes[i] * kSpanTokens + 64));
      const bool floats = i > 0 || codec_.kind() == CodecKind::dense;
      for (std::size_t at = 0; at < bytes.size(); ++at) {
        bytes[at] = static_cast<std::byte>(floats && at % 2 == 1 ? 0x3c : random() % 256);
      }
    }
    for (std::size_t span = 0; span < tiles_.size(); ++span) {
      SpanTiles& tiles = tiles_[span];
      tiles.end = kSpanTokens;
      tiles.end_tile = kSpanTiles;
      for (std::size_t tile = 0; tile < kSpanTiles; ++tile) {
        for (std::size_t i = 0; i < planes.size(); ++i) {
          const auto first = static_cast<std::int64_t>(span * kSpanTiles + tile) * kTileTokens;
          const std::byte* start = aligned(planes_[i].data());
          tiles.k[tile][i] = tiles.v[tile][i] = start + first * shape_.row_bytes[i];
        }
      }
    }
  }
  const SpanTiles& tiles() const { return tiles_.front(); }
  const SpanTiles& next() {
    at_ = at_ + 1 == tiles_.size() ? 0 : at_ + 1;
    return tiles_[at_];
  }
  const SideShape& shape() const { return shape_; }
  std::size_t width_index() const { return codec_index(codec_) - kFirstAffine; }
  std::size_t codec() const { return codec_index(codec_); }

 private:
  VectorCodec codec_;
  SideShape shape_;
  static const std::byte* aligned(const std::byte* from) {  // as pages are
    return from + (64 - reinterpret_cast<std::uintptr_t>(from) % 64) % 64;
  }

  std::array<std::vector<std::byte>, kMaxPlanes> planes_;
  std::vector<SpanTiles> tiles_;
  std::size_t at_ = 0;
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
  Spans span(VectorCodec::dense(DType::bf16), state.range(0));
  const Worker worker;
  for (auto _ : state) {
    kernels().score_narrow[dtype_index(DType::bf16)](
        span.next(), kDim, nothing, worker.scratch.packed_q, kQueries, worker.scratch.logits);
  }
  finish(state);
}

// bf16 queries and keys in the arithmetic of the matrix unit.
void score_few(benchmark::State& state) {
  Spans span(VectorCodec::dense(DType::bf16), state.range(0));
  const Worker worker;
  const FlushDenormals flush;
  if (kernels().matrix.score_few == nullptr) return state.SkipWithError("no such kernel here");
  for (auto _ : state) {
    kernels().matrix.score_few(span.next(), kDim, worker.scratch.packed_q, kQueries, 1, nothing,
                               worker.scratch.logits);
  }
  finish(state);
}

void add_few(benchmark::State& state) {
  Spans span(VectorCodec::dense(DType::bf16), state.range(0));
  const Worker worker;
  const FlushDenormals flush;
  if (kernels().matrix.add_few == nullptr) return state.SkipWithError("no such kernel here");
  for (auto _ : state) {
    kernels().matrix.add_few(span.next(), kDim, nothing, worker.scratch.logits, kQueries, kDim,
                             worker.scratch.span_out);
  }
  finish(state);
}

void score_codes(benchmark::State& state) {
  Spans span(VectorCodec::affine(static_cast<int>(state.range(0)),
                                 VectorCodec::exactly(static_cast<int>(state.range(1)))),
             state.range(2));
  const Worker worker;
  const CodeQueries queries = CodeQueries::carve(worker.scratch.code_queries, kDim);
  for (std::int64_t i = 0; i < kQueries; ++i) {
    kernels().codes.pack_query[span.width_index()](worker.scratch.packed_q + i * kDim, span.shape(),
                                                   i, queries);
  }
  SpanBits large{};
  for (auto _ : state) {
    kernels().codes.score[span.width_index()](span.next(), span.shape(), queries, kQueries, nothing,
                                              worker.scratch.logits, large);
  }
  finish(state);
}

void softmax(benchmark::State& state) {
  const Worker worker;
  const LogitMap map{.scale = 0.09f};
  std::array<SeenTokens, kQueries> seen;
  seen.fill({{0, kSpanTokens}});
  for (auto _ : state) {
    kernels().softmax_fast(worker.scratch.logits, seen.data(), kQueries, map.factor(),
                           worker.scratch.span_state);
  }
  finish(state);
}

void add_dense(benchmark::State& state) {
  Spans span(VectorCodec::dense(DType::bf16), state.range(0));
  const Worker worker;
  for (auto _ : state) {
    kernels().add_values_narrow[dtype_index(DType::bf16)](
        span.next(), kDim, nothing, worker.scratch.logits, kQueries, worker.scratch.span_out);
  }
  finish(state);
}

struct CodeValues {
  explicit CodeValues(const Worker& worker, const Spans& span)
      : rows{.codes = reinterpret_cast<std::uint8_t*>(worker.scratch.panels),
             .scales = worker.scratch.code_scales,
             .biases = worker.scratch.code_scales + span.shape().groups * kSpanTokens,
             .table = code_table(span.codec())},
        weights(CodeWeights::by_query(worker.scratch.code_weights, kCodeQueries,
                                      span.shape().groups)) {}
  // As BlockValues does.
  void prepare(const SpanTiles& tiles, const Spans& span) {
    const CodeKernels& codes = kernels().codes;
    const ValueBytes& form = value_bytes(span.codec(), span.shape());
    if (codes.spread_values == nullptr || !form.spread) {
      codes.prepare_rows[span.width_index()](tiles, span.shape(), nothing, rows, large);
      return;
    }
    rows.end_quad = kSpanQuads;
    codes.load_scales(tiles, span.shape(), rows, large);
    codes.spread_values(tiles, span.shape(), form, {0, kSpanTokens / kByteStepTokens},
                        kSpanQuads * 64, 0, nothing, rows.codes);
  }
  CodeRows rows;
  CodeWeights weights;
  SpanBits large{};
};

enum Piece { kPrepare, kWeigh, kAdd };

void values_codes(benchmark::State& state, Piece piece, CodecKind kind) {
  const int bits = static_cast<int>(state.range(0));
  const VectorCodec::Group group = VectorCodec::exactly(static_cast<int>(state.range(1)));
  Spans span(kind == CodecKind::affine ? VectorCodec::affine(bits, group)
                                       : VectorCodec::codebook(bits, group),
             state.range(2));
  const Worker worker;
  CodeValues values(worker, span);
  const CodeKernels& codes = kernels().codes;
  if (codes.prepare_rows[span.width_index()] == nullptr) {
    return state.SkipWithError("not by codes here");
  }
  const auto weigh = [&] {
    codes.weigh(span.tiles(), values.rows, span.shape(), worker.scratch.logits, kQueries,
                values.weights);
  };
  values.prepare(span.tiles(), span);
  weigh();
  for (auto _ : state) {
    if (piece == kPrepare) values.prepare(span.next(), span);
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

// Spans gone through in turn: one stays in L1, so many in L2.
constexpr std::int64_t kInL2 = 16;

void sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->Arg(1)->Arg(kInL2);
}

void widths(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t spans : {std::int64_t{1}, kInL2}) {
    for (const int bits : kAffineWidths) benchmark->Args({bits, 128, spans});
    for (const int group : {64, 32}) benchmark->Args({4, group, spans})->Args({8, group, spans});
  }
}

void codebooks(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t spans : {std::int64_t{1}, kInL2}) {
    for (const int bits : {2, 3, 4}) benchmark->Args({bits, 64, spans});
  }
}

BENCHMARK(score_dense)->Apply(sizes);
BENCHMARK(score_few)->Apply(sizes);
BENCHMARK(score_codes)->Apply(widths);
BENCHMARK(softmax);
BENCHMARK(add_dense)->Apply(sizes);
BENCHMARK(add_few)->Apply(sizes);
BENCHMARK_CAPTURE(values_codes, prepare, kPrepare, CodecKind::affine)->Apply(widths);
BENCHMARK_CAPTURE(values_codes, weigh, kWeigh, CodecKind::affine)->Apply(widths);
BENCHMARK_CAPTURE(values_codes, add, kAdd, CodecKind::affine)->Apply(widths);
BENCHMARK_CAPTURE(values_codes, codebook_prepare, kPrepare, CodecKind::codebook)->Apply(codebooks);
BENCHMARK_CAPTURE(values_codes, codebook_weigh, kWeigh, CodecKind::codebook)->Apply(codebooks);
BENCHMARK_CAPTURE(values_codes, codebook_add, kAdd, CodecKind::codebook)->Apply(codebooks);
BENCHMARK(fold);

}  // namespace

BENCHMARK_MAIN();
