#include "tools/bench.h"

#include "bench/measure.h"
#include "tools/bench_attention.h"
#include "tools/bench_model.h"
#include "tools/console.h"
#include "tools/report.h"

namespace pagekv_tool {

int bench(const BenchOptions& options) {
  BenchOptions asked = options;
  if (asked.threads.empty()) asked.threads = {all_processors()};
  const auto rows = asked.attention ? bench_attention(asked) : bench_model(asked);
  if (!rows) return report_error(rows.error().message());
  print_note(pagekv::bench::machine_line());
  print_report(*rows, asked.output);
  return kExitOk;
}

}  // namespace pagekv_tool
