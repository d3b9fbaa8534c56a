#include "engine/divergence.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/divergence.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// after highway.h
#include "hwy/contrib/math/math-inl.h"

namespace pagekv::inline v0::engine {
#ifndef PAGEKV_ENGINE_DIVERGENCE_SUMS
#define PAGEKV_ENGINE_DIVERGENCE_SUMS
namespace {

struct Top {
  float value = 0;
  std::int64_t token = -1;  // the lowest that has the value; -1: some logit is not finite
};

// With x = base - max(base) and y = changed - max(changed), over a row.
struct RowSums {
  double base = 0;        // sum exp(x)
  double changed = 0;     // sum exp(y)
  double difference = 0;  // sum exp(x) (x - y)
};

}  // namespace
#endif  // PAGEKV_ENGINE_DIVERGENCE_SUMS
}  // namespace pagekv::inline v0::engine

HWY_BEFORE_NAMESPACE();
namespace pagekv::inline v0::engine {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::CappedTag<double, 8>;
using Floats = hn::Rebind<float, Doubles>;
using Double = hn::Vec<Doubles>;

Top find_top(const float* logits, std::int64_t count) {
  const hn::CappedTag<float, 16> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  // x - x is 0 for what is finite and NaN for all else.
  auto zeros = hn::Zero(d);
  auto most = hn::Set(d, logits[0]);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto x = hn::LoadU(d, logits + i);
    zeros = hn::Add(zeros, hn::Sub(x, x));
    most = hn::Max(most, x);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, zeros));
  float value = hn::GetLane(hn::MaxOfLanes(d, most));
  for (std::int64_t rest = i; rest < count; ++rest) {
    sum += logits[rest] - logits[rest];
    value = std::max(value, logits[rest]);
  }
  if (!(sum == 0)) return {};
  const auto wanted = hn::Set(d, value);
  for (i = 0; i + lanes <= count; i += lanes) {
    const std::int64_t at = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, logits + i), wanted));
    if (at >= 0) return {.value = value, .token = i + at};
  }
  return {.value = value, .token = std::find(logits + i, logits + count, value) - logits};
}

class Sums {
 public:
  Sums(float base_max, float changed_max)
      : base_max_(hn::Set(Doubles(), double{base_max})),
        changed_max_(hn::Set(Doubles(), double{changed_max})),
        base_(hn::Zero(Doubles())),
        changed_(base_),
        difference_(base_) {}

  // Takes the first `count` lanes.
  HWY_INLINE void add(const float* base, const float* changed, std::size_t count) {
    const Doubles d;
    const auto valid = hn::FirstN(d, count);
    const Double x = hn::Sub(hn::PromoteTo(d, hn::LoadU(Floats(), base)), base_max_);
    const Double y = hn::Sub(hn::PromoteTo(d, hn::LoadU(Floats(), changed)), changed_max_);
    const Double weight = hn::IfThenElseZero(valid, hn::Exp(d, x));
    base_ = hn::Add(base_, weight);
    changed_ = hn::Add(changed_, hn::IfThenElseZero(valid, hn::Exp(d, y)));
    difference_ = hn::MulAdd(weight, hn::Sub(x, y), difference_);
  }

  RowSums total() const {
    const Doubles d;
    return {.base = hn::GetLane(hn::SumOfLanes(d, base_)),
            .changed = hn::GetLane(hn::SumOfLanes(d, changed_)),
            .difference = hn::GetLane(hn::SumOfLanes(d, difference_))};
  }

 private:
  Double base_max_;
  Double changed_max_;
  Double base_;
  Double changed_;
  Double difference_;
};

RowSums sum_row(const float* base, float base_max, const float* changed, float changed_max,
                std::int64_t count) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(Doubles()));
  Sums sums(base_max, changed_max);
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    sums.add(base + i, changed + i, static_cast<std::size_t>(lanes));
  }
  if (i < count) {
    float padded[2][8] = {};
    std::copy(base + i, base + count, padded[0]);
    std::copy(changed + i, changed + count, padded[1]);
    sums.add(padded[0], padded[1], static_cast<std::size_t>(count - i));
  }
  return sums.total();
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pagekv::inline v0::engine
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pagekv::inline v0::engine {
namespace {

HWY_EXPORT(find_top);
HWY_EXPORT(sum_row);

// False where a logit is not finite.
bool compare_row(const float* base, const float* changed, std::int64_t vocabulary, Token next,
                 TokenScore& score) {
  const Top base_top = HWY_DYNAMIC_DISPATCH(find_top)(base, vocabulary);
  const Top top = HWY_DYNAMIC_DISPATCH(find_top)(changed, vocabulary);
  if (base_top.token < 0 || top.token < 0) return false;
  const RowSums sums =
      HWY_DYNAMIC_DISPATCH(sum_row)(base, base_top.value, changed, top.value, vocabulary);
  // ln p = x - ln(sum exp x), ln q likewise; sum p = 1.
  const double ln_base = std::log(sums.base);
  const double ln_changed = std::log(sums.changed);
  score.kl = std::max(0.0, sums.difference / sums.base + (ln_changed - ln_base));
  score.nll_base = ln_base - (double{base[next]} - double{base_top.value});
  score.nll = ln_changed - (double{changed[next]} - double{top.value});
  score.dp = std::exp(-score.nll) - std::exp(-score.nll_base);
  score.same_top = base_top.token == top.token;
  return true;
}

Status check_arguments(std::span<const float> base, std::span<const float> changed,
                       std::span<const Token> next, std::span<const TokenScore> scores) {
  const std::size_t rows = next.size();
  const bool fits = base.size() == changed.size() && scores.size() == rows &&
                    (rows == 0 ? base.empty() : !base.empty() && base.size() % rows == 0);
  if (!fits) {
    return fail(ErrorCode::invalid_argument, "{0} and {1} logits for {2} tokens and {3} scores",
                {static_cast<std::int64_t>(base.size()), static_cast<std::int64_t>(changed.size()),
                 static_cast<std::int64_t>(rows), static_cast<std::int64_t>(scores.size())});
  }
  if (rows == 0) return {};
  const auto vocabulary = static_cast<std::int64_t>(base.size() / rows);
  for (const Token token : next) {
    if (token < 0 || token >= vocabulary) {
      return fail(ErrorCode::invalid_argument, "token {0}; the vocabulary has {1}",
                  {token, vocabulary});
    }
  }
  return {};
}

double mean(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

// The error is that of a mean of independent values, with the variance over n.
Estimate estimate(std::span<const double> values) {
  const double center = mean(values);
  double squares = 0;
  for (const double value : values) squares += (value - center) * (value - center);
  const auto count = static_cast<double>(values.size());
  return {.value = center, .error = count > 1 ? std::sqrt(squares / count / (count - 1)) : 0};
}

template <typename F>
std::vector<double> values_of(std::span<const TokenScore> scores, const F& value) {
  std::vector<double> values(scores.size());
  std::transform(scores.begin(), scores.end(), values.begin(), value);
  return values;
}

}  // namespace

Status compare_rows(Executor& executor, std::span<const float> base, std::span<const float> changed,
                    std::span<const Token> next, std::span<TokenScore> scores) {
  if (Status status = check_arguments(base, changed, next, scores); !status) return status;
  if (next.empty()) return {};
  const auto rows = static_cast<std::int64_t>(next.size());
  const std::int64_t vocabulary = static_cast<std::int64_t>(base.size()) / rows;
  std::atomic<bool> finite = true;
  executor.parallel_for(rows, [&](int, std::int64_t row) {
    const auto index = static_cast<std::size_t>(row);
    const std::int64_t offset = row * vocabulary;
    if (!compare_row(base.data() + offset, changed.data() + offset, vocabulary, next[index],
                     scores[index])) {
      finite = false;
    }
  });
  if (finite) return {};
  std::size_t at = 0;
  while (std::isfinite(base[at]) && std::isfinite(changed[at])) ++at;
  const auto place = static_cast<std::int64_t>(at);
  return fail(ErrorCode::not_finite, "the logit of token {1} in row {0} is not finite",
              {place / vocabulary, place % vocabulary});
}

Divergence summarize(std::span<const TokenScore> scores) {
  if (scores.empty()) return {};
  Divergence out;
  out.scored = static_cast<std::int64_t>(scores.size());
  const Estimate nll = estimate(values_of(scores, [](const auto& score) { return score.nll; }));
  out.ppl.value = std::exp(nll.value);
  out.ppl.error = out.ppl.value * nll.error;
  out.ln_ratio =
      estimate(values_of(scores, [](const auto& score) { return score.nll - score.nll_base; }));
  std::vector<double> kl = values_of(scores, [](const auto& score) { return score.kl; });
  out.kl = estimate(kl);
  std::sort(kl.begin(), kl.end());
  out.median_kl = quantile(kl, 0.5);
  out.p99_kl = quantile(kl, 0.99);
  out.p999_kl = quantile(kl, 0.999);
  out.max_kl = kl.back();
  out.dp = estimate(values_of(scores, [](const auto& score) { return score.dp; }));
  const Estimate square =
      estimate(values_of(scores, [](const auto& score) { return score.dp * score.dp; }));
  out.rms_dp.value = std::sqrt(square.value);
  if (square.value > 0) out.rms_dp.error = square.error / (2 * out.rms_dp.value);
  out.same_top =
      estimate(values_of(scores, [](const auto& score) { return score.same_top ? 1.0 : 0.0; }));
  return out;
}

double quantile(std::span<const double> sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

}  // namespace pagekv::inline v0::engine
#endif  // HWY_ONCE
