#include "measure.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
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

ReadProbe::ReadProbe(std::int64_t bytes) : words_(static_cast<std::size_t>(bytes / 8), 1) {}

double ReadProbe::bytes_per_second(Executor& executor) {
  constexpr std::int64_t kPieceWords = 1 << 17;  // 1 MiB
  const auto words = static_cast<std::int64_t>(words_.size());
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(executor.threads()) * 8);
  const double elapsed = seconds([&] {
    executor.parallel_for(words / kPieceWords, [&](int worker, std::int64_t piece) {
      const std::uint64_t* at = words_.data() + piece * kPieceWords;
      std::uint64_t lanes[16] = {};  // independent chains; the compiler makes vectors of them
      for (std::int64_t word = 0; word < kPieceWords; word += 16) {
        for (int lane = 0; lane < 16; ++lane) lanes[lane] += at[word + lane];
      }
      for (const std::uint64_t lane : lanes) sums[static_cast<std::size_t>(worker) * 8] += lane;
    });
  });
  volatile std::uint64_t sink = sums[0];  // the reads must not be optimised away
  static_cast<void>(sink);
  return static_cast<double>(words / kPieceWords * kPieceWords * 8) / elapsed;
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
