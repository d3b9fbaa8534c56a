// Bookkeeping without bytes: what it takes to reserve a row for each of many decoding sequences and
// to commit it, to fork, and to plan. Heads are the smallest there are, so that writing costs
// little; only the named part is timed.
//
//   bench_step [--benchmark_filter=reserve]        (Google Benchmark's options)
#include <benchmark/benchmark.h>

#include <chrono>
#include <vector>

#include "bench/need.h"
#include "pagekv/pagekv.h"

namespace {

using namespace pagekv;  // NOLINT(google-build-using-namespace): a program, not a header
using bench::need;
using Clock = std::chrono::steady_clock;

constexpr int kDim = 8;
constexpr std::int64_t kContext = 4096;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Sequences of different lengths, so that pages end at different steps.
class Batch {
 public:
  explicit Batch(std::int64_t count)
      : store_(make_store(count)), rows_(static_cast<std::size_t>(kContext * kDim), 0.5f) {
    for (std::int64_t i = 0; i < count; ++i) {
      sequences_.push_back(need(store_.create_sequence()));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      const Append append{&sequences_[static_cast<std::size_t>(i)], 1000 + 7 * i};
      Step step = need(store_.reserve({&append, 1}));
      write(step);
      need(step.commit());
    }
    for (Sequence& sequence : sequences_) appends_.push_back({&sequence, 1});
    rewind_to_ = 1000;
  }

  Store& store() { return store_; }
  std::vector<Sequence>& sequences() { return sequences_; }
  const std::vector<Append>& appends() const { return appends_; }
  void write(Step& step) const {
    const Rows rows = Rows::packed(rows_.data(), DType::f32, 1, kDim);
    need(step.write(0, rows, rows));
  }
  // Before the longest sequence is full.
  void rewind() {
    for (Sequence& sequence : sequences_) {
      if (sequence.length() < kContext) continue;
      for (Sequence& each : sequences_) need(each.truncate(rewind_to_));
      return;
    }
  }

 private:
  static Store make_store(std::int64_t count) {
    LayoutSpec spec;
    spec.layers = {{.kv_heads = 1, .key_dim = kDim, .value_dim = kDim}};
    const CacheLayout layout = need(CacheLayout::make(spec));
    const std::int64_t pages = (count + 1) * layout.pages_for(0, kContext);
    return need(Store::make(
        layout, need(make_cpu_device()),
        {.cap_bytes = pages * layout.group(0).page_bytes, .max_sequence_tokens = kContext}));
  }

  Store store_;
  std::vector<float> rows_;
  std::vector<Sequence> sequences_;
  std::vector<Append> appends_;
  std::int64_t rewind_to_ = 0;
};

void reserve_and_commit(benchmark::State& state) {
  Batch batch(state.range(0));
  for (auto _ : state) {
    batch.rewind();
    const auto start = Clock::now();
    Step step = need(batch.store().reserve(batch.appends()));
    double seconds = seconds_since(start);
    batch.write(step);
    const auto written = Clock::now();
    need(step.commit());
    seconds += seconds_since(written);
    state.SetIterationTime(seconds);
  }
}

void replan(benchmark::State& state) {
  Batch batch(state.range(0));
  std::vector<QueryRows> rows;
  for (Sequence& sequence : batch.sequences()) rows.push_back({.view = sequence.ref(), .rows = 1});
  const AttendSpec spec{.query_heads = 4};
  Plan plan = need(batch.store().plan(rows, spec));
  for (auto _ : state) need(batch.store().replan(plan, rows, spec));
}

void fork_and_drop(benchmark::State& state) {
  Batch batch(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(need(batch.sequences().front().fork()));
}

BENCHMARK(reserve_and_commit)->Arg(1)->Arg(64)->Arg(256)->UseManualTime();
BENCHMARK(replan)->Arg(1)->Arg(64)->Arg(256);
BENCHMARK(fork_and_drop)->Arg(1);

}  // namespace

BENCHMARK_MAIN();
