// What every benchmark here shares: the clock, order statistics, the read probe, the machine line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pagekv/executor.h"

namespace pagekv::bench {

// Seconds that `function` takes.
double seconds_of(void (*function)(void*), void* context);
template <typename F>
double seconds(F&& function) {
  return seconds_of([](void* context) { (*static_cast<F*>(context))(); }, &function);
}

// The q-quantile of `values`, 0 <= q <= 1; the nearest of them, no interpolation.
double quantile(std::vector<double> values, double q);

// "0.93 (0.91-0.95)": the median and the quartiles.
std::string spread(const std::vector<double>& values);

// Memory for the read probe, larger than any cache and in huge pages where the system has them, as
// pagekv's own pages are; `bytes` of it are read per call, by all threads of the executor, each a
// run of its own at a time.
class ReadProbe {
 public:
  explicit ReadProbe(std::int64_t bytes);
  double bytes_per_second(Executor& executor);  // of one pass
  // The same in pieces of `piece_bytes` (rounded to whole KiB, at most 1 MiB) in random order, as
  // attention meets pages: what a reader of such pages could reach.
  double scattered_bytes_per_second(Executor& executor, std::int64_t piece_bytes);

 private:
  struct Free {
    void operator()(std::uint64_t* words) const;
  };
  // The pieces of the memory, made once.
  const std::vector<std::int64_t>& pieces(std::int64_t piece_words, bool scattered);
  double read(Executor& executor, std::int64_t piece_words, const std::vector<std::int64_t>& order);

  std::unique_ptr<std::uint64_t, Free> words_;
  std::int64_t count_;
  std::map<std::pair<std::int64_t, bool>, std::vector<std::int64_t>> orders_;
};

// Cycles a second of the calling thread's core at this moment, from additions that wait for each
// other, one a cycle on every core pagekv knows.
double cycles_per_second();

// Processor, processors, threads and the like, for the head of a report.
std::string machine_line();

}  // namespace pagekv::bench
