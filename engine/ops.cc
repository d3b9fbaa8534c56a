#include "engine/ops.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// after highway.h
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::engine {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// silu through exp(-|g|), which cannot overflow.
template <class D>
HWY_INLINE hn::Vec<D> gated(D d, hn::Vec<D> gate, hn::Vec<D> up) {
  const auto one = hn::Set(d, 1.0f);
  const auto decay = hn::Exp(d, hn::Neg(hn::Abs(gate)));
  const auto numerator = hn::IfThenElse(hn::Lt(gate, hn::Zero(d)), decay, one);
  return hn::Mul(hn::Mul(gate, hn::Div(numerator, hn::Add(one, decay))), up);
}

void silu_multiply_row(const float* gate, const float* up, std::int64_t dim, float* y) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= dim; i += lanes) {
    hn::StoreU(gated(d, hn::LoadU(d, gate + i), hn::LoadU(d, up + i)), d, y + i);
  }
  if (i == dim) return;
  // The tail takes the same path through padded vectors, so a value's bits do not depend on its
  // lane.
  HWY_ALIGN float padded[3][16] = {};
  for (std::int64_t lane = 0; i + lane < dim; ++lane) {
    padded[0][lane] = gate[i + lane];
    padded[1][lane] = up[i + lane];
  }
  hn::Store(gated(d, hn::Load(d, padded[0]), hn::Load(d, padded[1])), d, padded[2]);
  for (std::int64_t lane = 0; i + lane < dim; ++lane) y[i + lane] = padded[2][lane];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagekv::inline v0::engine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::engine {
namespace {

HWY_EXPORT(silu_multiply_row);

// Rows that one item takes: fewer would cost more to hand out than to compute.
constexpr std::int64_t kItemRows = 8;

template <typename F>
void for_each_row(Executor& executor, std::int64_t rows, const F& row_function) {
  const std::int64_t items = (rows + kItemRows - 1) / kItemRows;
  executor.parallel_for(items, [&](int, std::int64_t item) {
    const std::int64_t end = std::min(rows, (item + 1) * kItemRows);
    for (std::int64_t row = item * kItemRows; row < end; ++row) row_function(row);
  });
}

// Sum of squares: eight interleaved chains, then a tree over them.
double sum_of_squares(const float* x, std::int64_t dim) {
  constexpr int kChains = 8;
  double chains[kChains] = {};
  std::int64_t i = 0;
  for (; i + kChains <= dim; i += kChains) {
    for (int chain = 0; chain < kChains; ++chain) {
      const double value = x[i + chain];
      chains[chain] += value * value;
    }
  }
  for (; i < dim; ++i) chains[i % kChains] += double{x[i]} * double{x[i]};
  return ((chains[0] + chains[4]) + (chains[1] + chains[5])) +
         ((chains[2] + chains[6]) + (chains[3] + chains[7]));
}

}  // namespace

void rms_norm(Executor& executor, const float* x, std::int64_t rows, std::int64_t dim,
              const float* weight, float epsilon, float* y) {
  for_each_row(executor, rows, [&](std::int64_t row) {
    const float* in = x + row * dim;
    float* out = y + row * dim;
    const double mean = sum_of_squares(in, dim) / static_cast<double>(dim);
    const auto factor = static_cast<float>(1.0 / std::sqrt(mean + double{epsilon}));
    for (std::int64_t i = 0; i < dim; ++i) out[i] = in[i] * factor * weight[i];
  });
}

void silu_multiply(Executor& executor, const float* gate_up, std::int64_t rows, std::int64_t dim,
                   float* y) {
  for_each_row(executor, rows, [&](std::int64_t row) {
    const float* gate = gate_up + row * 2 * dim;
    HWY_DYNAMIC_DISPATCH(silu_multiply_row)(gate, gate + dim, dim, y + row * dim);
  });
}

void add_rows(Executor& executor, const float* x, std::int64_t rows, std::int64_t dim, float* y) {
  for_each_row(executor, rows, [&](std::int64_t row) {
    for (std::int64_t i = row * dim; i < (row + 1) * dim; ++i) y[i] += x[i];
  });
}

}  // namespace pagekv::inline v0::engine
#endif  // HWY_ONCE
