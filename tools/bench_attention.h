// `pagekv bench --attn`.
#pragma once

#include <vector>

#include "pagekv/error.h"
#include "tools/bench.h"
#include "tools/report.h"

namespace pagekv_tool {

// Measures every combination of the options. Errors: invalid_argument (heads that do not divide, a
// format illegal for a head dim, an unknown target), out_of_memory, and books_broken where an
// answer is wrong: nothing is timed then.
pagekv::Result<std::vector<ReportRow>> bench_attention(const BenchOptions& options);

}  // namespace pagekv_tool
