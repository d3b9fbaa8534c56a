// The arithmetic between the matrix products: normalisation, gating, sums.
//
// Every function works row by row, and a row's result depends on that row alone, bit for bit: sums
// run in one fixed order whatever the number of rows or threads. All tensors are packed f32.
#pragma once

#include <cstdint>

#include "pagekv/executor.h"

namespace pagekv::inline v0::engine {

// y[row] = x[row] / sqrt(mean(x[row]^2) + epsilon) * weight, with the mean in double.
// x, y: [rows, dim]; weight: [dim]; y may be x.
void rms_norm(Executor& executor, const float* x, std::int64_t rows, std::int64_t dim,
              const float* weight, float epsilon, float* y);

// y = silu(gate) * up, silu(g) = g / (1 + exp(-g)).
// gate_up: [rows, 2, dim], gate first; y: [rows, dim].
void silu_multiply(Executor& executor, const float* gate_up, std::int64_t rows, std::int64_t dim,
                   float* y);

// y += x. x, y: [rows, dim].
void add_rows(Executor& executor, const float* x, std::int64_t rows, std::int64_t dim, float* y);

}  // namespace pagekv::inline v0::engine
