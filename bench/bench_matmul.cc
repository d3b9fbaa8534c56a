// Speed of engine/matmul beside OpenBLAS sgemm (f32 weights) on the shapes of SmolLM2-135M.
//
//   OPENBLAS_CORETYPE=SkylakeX bench_matmul [threads] [rounds]
//
// The head of the report says which kernels OpenBLAS chose: a release older than the processor
// falls back to very slow ones unless OPENBLAS_CORETYPE names better. Every shape is checked
// against float64 first. The two sides take turns, so that a busy machine hurts both; shown are
// medians, and the ratio's median and quartiles over rounds. A single row is bound by memory: there
// the figure is weight bytes per second, beside a plain read of as many bytes.
#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "engine/matmul.h"

extern "C" char* openblas_get_corename();
extern "C" void openblas_set_num_threads(int threads);

namespace {

using pagekv::DType;
using pagekv::Executor;
using pagekv::bench::quantile;
using pagekv::bench::seconds;
using pagekv::bench::spread;
using pagekv::engine::PackedMatrix;

struct Shape {
  std::int64_t inner;
  std::int64_t outputs;
};
constexpr Shape kShapes[] = {{576, 576}, {576, 192}, {576, 1536}, {1536, 576}, {576, 49152}};
constexpr std::int64_t kManyRows = 512;

struct Problem {
  PackedMatrix packed;
  std::vector<float> w;  // [outputs, inner], the values that `packed` holds
  std::vector<float> x;  // [rows, inner]
  std::vector<float> y;  // [rows, outputs]
  std::int64_t rows = 0;
};

Problem make_problem(const Shape& shape, std::int64_t rows) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Problem problem;
  problem.rows = rows;
  problem.packed = std::move(*PackedMatrix::make(shape.outputs, shape.inner, DType::bf16));
  problem.w.resize(static_cast<std::size_t>(shape.outputs * shape.inner));
  for (float& value : problem.w) {
    value = pagekv::f32_from_bf16(pagekv::bf16_from_f32(normal(random)));
  }
  problem.packed.pack_rows(0, shape.outputs, problem.w.data());
  problem.x.resize(static_cast<std::size_t>(rows * shape.inner));
  for (float& value : problem.x) value = normal(random);
  problem.y.resize(static_cast<std::size_t>(rows * shape.outputs));
  return problem;
}

void run_ours(Executor& executor, Problem& problem) {
  matmul(executor, problem.packed, problem.x.data(), problem.rows, problem.y.data());
}

void run_blas(Problem& problem) {
  const auto rows = static_cast<blasint>(problem.rows);
  const auto inner = static_cast<blasint>(problem.packed.inner());
  const auto outputs = static_cast<blasint>(problem.packed.outputs());
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, outputs, inner, 1.0f, problem.x.data(),
              inner, problem.w.data(), inner, 0.0f, problem.y.data(), outputs);
}

// Largest error over sampled elements, relative to the sum of the products' magnitudes.
double worst_error(const Problem& problem) {
  std::mt19937_64 random(2);
  const std::int64_t inner = problem.packed.inner();
  const std::int64_t outputs = problem.packed.outputs();
  double worst = 0;
  for (int sample = 0; sample < 2000; ++sample) {
    const auto row = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(problem.rows));
    const auto output = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(outputs));
    double sum = 0;
    double magnitude = 0;
    for (std::int64_t k = 0; k < inner; ++k) {
      const double product = double{problem.x[static_cast<std::size_t>(row * inner + k)]} *
                             double{problem.w[static_cast<std::size_t>(output * inner + k)]};
      sum += product;
      magnitude += std::abs(product);
    }
    const double got = problem.y[static_cast<std::size_t>(row * outputs + output)];
    worst = std::max(worst, std::abs(got - sum) / magnitude);
  }
  return worst;
}

// OpenBLAS's threads go on spinning for a while after a product; nobody measures beside them.
void let_threads_sleep() {
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
}

void measure_many(Executor& executor, const Shape& shape, int rounds) {
  Problem problem = make_problem(shape, kManyRows);
  run_blas(problem);
  const double blas_error = worst_error(problem);
  run_ours(executor, problem);
  const double our_error = worst_error(problem);
  const double flops = 2.0 * static_cast<double>(kManyRows * shape.inner * shape.outputs);
  const int repeats = std::max(1, static_cast<int>(1e10 / flops));
  std::vector<double> ours, blas, ratios;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(seconds([&] {
                     for (int i = 0; i < repeats; ++i) run_ours(executor, problem);
                   }) /
                   repeats);
    blas.push_back(seconds([&] {
                     for (int i = 0; i < repeats; ++i) run_blas(problem);
                   }) /
                   repeats);
    ratios.push_back(blas.back() / ours.back());
    let_threads_sleep();
  }
  std::printf("%5lld %6lld %4lld  %8.1f %8.1f  %s   %.1e %.1e\n",
              static_cast<long long>(shape.inner), static_cast<long long>(shape.outputs),
              static_cast<long long>(kManyRows), flops / quantile(ours, 0.5) * 1e-9,
              flops / quantile(blas, 0.5) * 1e-9, spread(ratios).c_str(), our_error, blas_error);
}

void measure_one(Executor& executor, const Shape& shape, int rounds) {
  // As many copies as make up 512 MiB: beyond what a core's caches hold, as a model's layers are.
  constexpr std::int64_t kBytes = std::int64_t{512} << 20;
  Problem problem = make_problem(shape, 1);
  run_ours(executor, problem);
  const double error = worst_error(problem);
  const std::int64_t copies = std::max<std::int64_t>(1, kBytes / problem.packed.bytes());
  std::vector<PackedMatrix> matrices;
  for (std::int64_t copy = 0; copy < copies; ++copy) {
    matrices.push_back(std::move(*PackedMatrix::make(shape.outputs, shape.inner, DType::bf16)));
    matrices.back().pack_rows(0, shape.outputs, problem.w.data());
  }
  const double bytes = static_cast<double>(copies * problem.packed.bytes());
  pagekv::bench::ReadProbe probe(kBytes);
  std::vector<double> ours, reads, ratios;
  for (int round = 0; round < rounds; ++round) {
    ours.push_back(bytes / seconds([&] {
                     for (const PackedMatrix& matrix : matrices) {
                       matmul(executor, matrix, problem.x.data(), 1, problem.y.data());
                     }
                   }));
    reads.push_back(probe.bytes_per_second(executor));
    ratios.push_back(ours.back() / reads.back());
  }
  std::printf("%5lld %6lld    1  %8.1f %8.1f  %s   %.1e\n", static_cast<long long>(shape.inner),
              static_cast<long long>(shape.outputs), quantile(ours, 0.5) * 1e-9,
              quantile(reads, 0.5) * 1e-9, spread(ratios).c_str(), error);
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 1;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 9;
  const auto executor = pagekv::make_thread_executor(threads);
  if (!executor || rounds < 1) {
    std::fprintf(stderr, "usage: bench_matmul [threads >= 1] [rounds >= 1]\n");
    return 2;
  }
  openblas_set_num_threads(threads);
  std::printf("%s; target %s; OpenBLAS core %s; %d threads, %d rounds\n",
              pagekv::bench::machine_line().c_str(), pagekv::engine::matmul_target().c_str(),
              openblas_get_corename(), threads, rounds);
  std::printf("many rows, GFLOP/s         ours    sgemm  ratio (quartiles)  errors of both\n");
  for (const Shape& shape : kShapes) measure_many(**executor, shape, rounds);
  std::printf("one row, weight GB/s       ours     read  ratio (quartiles)  error\n");
  for (const Shape& shape : kShapes) measure_one(**executor, shape, rounds);
  return 0;
}
