#include "bench/measure.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <numeric>
#include <random>
#include <thread>

namespace pagekv::bench {

double seconds_of(void (*function)(void*), void* context) {
  const auto start = std::chrono::steady_clock::now();
  function(context);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double quantile(std::vector<double> values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

std::string spread(const std::vector<double>& values) {
  char text[64];
  std::snprintf(text, sizeof text, "%.2f (%.2f-%.2f)", quantile(values, 0.5),
                quantile(values, 0.25), quantile(values, 0.75));
  return text;
}

void ReadProbe::Free::operator()(std::uint64_t* words) const {
  std::free(words);
}

ReadProbe::ReadProbe(std::int64_t bytes) : count_(bytes / 8) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const std::size_t rounded =
      (static_cast<std::size_t>(bytes) + kHugePage - 1) / kHugePage * kHugePage;
  words_.reset(static_cast<std::uint64_t*>(std::aligned_alloc(kHugePage, rounded)));
  if (!words_) throw std::bad_alloc();
  madvise(words_.get(), rounded, MADV_HUGEPAGE);  // where it is refused, ordinary pages do
  std::fill_n(words_.get(), count_, 1);
}

namespace {

constexpr std::int64_t kMostPieceWords = 1 << 17;  // 1 MiB

__attribute__((always_inline)) inline std::uint64_t sum_in_lanes(const std::uint64_t* at,
                                                                 std::int64_t words) {
  constexpr int kLanes = 32;  // independent chains; the compiler makes vectors of them
  std::uint64_t lanes[kLanes] = {};
  for (std::int64_t word = 0; word < words; word += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += at[word + lane];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : lanes) sum += lane;
  return sum;
}

using SumWords = std::uint64_t(const std::uint64_t* at, std::int64_t words);

// With the widest vectors the processor has: the fewer instructions a line takes, the more lines
// the processor looks ahead.
std::uint64_t sum_plainly(const std::uint64_t* at, std::int64_t words) {
  return sum_in_lanes(at, words);
}
#if defined(__x86_64__)
__attribute__((target("avx2"))) std::uint64_t sum_avx2(const std::uint64_t* at,
                                                       std::int64_t words) {
  return sum_in_lanes(at, words);
}
__attribute__((target("avx512f"))) std::uint64_t sum_avx512(const std::uint64_t* at,
                                                            std::int64_t words) {
  return sum_in_lanes(at, words);
}
SumWords* widest_sum() {
  if (__builtin_cpu_supports("avx512f") != 0) return sum_avx512;
  return __builtin_cpu_supports("avx2") != 0 ? sum_avx2 : sum_plainly;
}
#else
SumWords* widest_sum() {
  return sum_plainly;
}
#endif

}  // namespace

const std::vector<std::int64_t>& ReadProbe::pieces(std::int64_t piece_words, bool scattered) {
  auto& order = orders_[{piece_words, scattered}];
  if (order.empty()) {
    order.resize(static_cast<std::size_t>(count_ / piece_words));
    std::iota(order.begin(), order.end(), 0);
    if (scattered) std::shuffle(order.begin(), order.end(), std::mt19937(4));
  }
  return order;
}

double ReadProbe::bytes_per_second(Executor& executor) {
  return read(executor, kMostPieceWords, pieces(kMostPieceWords, false));
}

double ReadProbe::scattered_bytes_per_second(Executor& executor, std::int64_t piece_bytes) {
  const std::int64_t piece_words =
      std::clamp<std::int64_t>(piece_bytes >> 10 << 7, 1 << 7, kMostPieceWords);
  return read(executor, piece_words, pieces(piece_words, true));
}

double ReadProbe::read(Executor& executor, std::int64_t piece_words,
                       const std::vector<std::int64_t>& order) {
  // Small pieces are handed out together: handing them out must not be what is measured.
  const std::int64_t together = kMostPieceWords / piece_words;
  const auto count = static_cast<std::int64_t>(order.size());
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(executor.threads()) * 8);
  SumWords* const sum_words = widest_sum();
  const double elapsed = seconds([&] {
    executor.parallel_for((count + together - 1) / together, [&](int worker, std::int64_t item) {
      const std::int64_t end = std::min((item + 1) * together, count);
      for (std::int64_t piece = item * together; piece < end; ++piece) {
        sums[static_cast<std::size_t>(worker) * 8] += sum_words(
            words_.get() + order[static_cast<std::size_t>(piece)] * piece_words, piece_words);
      }
    });
  });
  volatile std::uint64_t sink = sums[0];  // the reads must not be optimised away
  static_cast<void>(sink);
  return static_cast<double>(count * piece_words * 8) / elapsed;
}

double cycles_per_second() {
  constexpr int kSteps = 1 << 20;
  double best = 1e9;
  for (int round = 0; round < 3; ++round) {
    best = std::min(best, seconds([] {
                      std::uint64_t sum = 0;
                      for (int step = 0; step < kSteps; ++step) {
                        ++sum;
                        asm volatile("" : "+r"(sum));  // one by one
                      }
                    }));
  }
  return kSteps / best;
}

std::string machine_line() {
  std::string model = "unknown processor";
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) == 0 && line.find(": ") != std::string::npos) {
      model = line.substr(line.find(": ") + 2);
      break;
    }
  }
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) + " processors";
}

}  // namespace pagekv::bench
