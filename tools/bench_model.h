// `pagekv bench` of a model.
#pragma once

#include <vector>

#include "pagekv/error.h"
#include "tools/bench.h"
#include "tools/report.h"

namespace pagekv_tool {

// Measures prompts (pp) and generation (tg) for every combination of formats, threads and depths.
// Errors: those of load_model(), make_model_store() and Runner::forward().
pagekv::Result<std::vector<ReportRow>> bench_model(const BenchOptions& options);

}  // namespace pagekv_tool
