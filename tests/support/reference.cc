#include "support/reference.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace pagekv::testing {

bool is_visible(const ReferenceCase& reference, std::int64_t row, std::int64_t token) {
  const std::int64_t position = reference.length - reference.rows + row;
  const std::int64_t window = reference.window_tokens;
  switch (reference.mask) {
    case Mask::none:
    case Mask::block: return true;  // of a case whose length counts the block
    case Mask::matrix: return reference.matrix[row * reference.length + token] != 0;
    case Mask::local: return position >= 0 && (window == 0 || std::abs(position - token) < window);
    case Mask::causal: break;
  }
  if (position < 0) return false;
  if (token <= position && (window == 0 || token > position - window)) return true;
  for (const BidirectionalSpan& mine : reference.spans) {
    if (position < mine.begin || position >= mine.end) continue;
    for (const BidirectionalSpan& other : reference.spans) {
      const bool same = &mine == &other || (mine.set >= 0 && mine.set == other.set);
      if (same && token >= other.begin && token < other.end) return true;
    }
  }
  return false;
}

namespace {

// A tensor as doubles, [row, head, dim].
std::vector<double> widen(const Tensor& tensor) {
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(tensor.rows() * tensor.heads() * tensor.dim()));
  const std::int64_t step = size_bytes(tensor.type());
  for (std::size_t at = 0; at < tensor.bytes().size(); at += static_cast<std::size_t>(step)) {
    values.push_back(static_cast<double>(load_element(tensor.type(), tensor.bytes().data() + at)));
  }
  return values;
}

struct Wide {
  std::vector<double> q;
  std::vector<double> k;
  std::vector<double> v;
};

double logit(const ReferenceCase& reference, const Wide& wide, std::int64_t row, std::int64_t head,
             std::int64_t token) {
  const std::int64_t group = reference.q->heads() / reference.k->heads();
  const std::int64_t key_dim = reference.k->dim();
  const double* q =
      wide.q.data() + ((reference.first_row + row) * reference.q->heads() + head) * key_dim;
  const double* k = wide.k.data() + (token * reference.k->heads() + head / group) * key_dim;
  double dot = 0.0;
  for (std::int64_t dim = 0; dim < key_dim; ++dim) dot += q[dim] * k[dim];
  const double scaled = dot * static_cast<double>(reference.scale);
  const double cap = static_cast<double>(reference.logit_softcap);
  return cap > 0.0 ? cap * std::tanh(scaled / cap) : scaled;
}

void attend_row(const ReferenceCase& reference, const Wide& wide, std::int64_t row,
                std::int64_t head, ReferenceResult& result) {
  const std::int64_t group = reference.q->heads() / reference.k->heads();
  const std::int64_t value_dim = reference.v->dim();
  double* out = result.out.data() + (row * reference.q->heads() + head) * value_dim;
  double& lse = result.lse[static_cast<std::size_t>(row * reference.q->heads() + head)];
  std::vector<std::int64_t> tokens;
  for (std::int64_t token = 0; token < reference.length; ++token) {
    if (is_visible(reference, row, token)) tokens.push_back(token);
  }
  if (tokens.empty()) return;  // out stays 0, lse -inf

  std::vector<double> weights;
  for (const std::int64_t token : tokens) {
    weights.push_back(logit(reference, wide, row, head, token));
    result.max_abs_logit = std::max(result.max_abs_logit, std::abs(weights.back()));
  }
  double max = *std::max_element(weights.begin(), weights.end());
  if (reference.sinks != nullptr) max = std::max(max, static_cast<double>(reference.sinks[head]));
  double sum = 0.0;
  if (reference.sinks != nullptr) sum += std::exp(static_cast<double>(reference.sinks[head]) - max);
  for (double& weight : weights) {
    weight = std::exp(weight - max);
    sum += weight;
  }
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    const double weight = weights[at] / sum;
    const double* v =
        wide.v.data() + (tokens[at] * reference.v->heads() + head / group) * value_dim;
    for (std::int64_t dim = 0; dim < value_dim; ++dim) out[dim] += weight * v[dim];
  }
  lse = max + std::log(sum);
}

}  // namespace

ReferenceResult reference_attention(const ReferenceCase& reference) {
  ReferenceResult result;
  const std::int64_t heads = reference.q->heads();
  result.out.assign(static_cast<std::size_t>(reference.rows * heads * reference.v->dim()), 0.0);
  result.lse.assign(static_cast<std::size_t>(reference.rows * heads),
                    -std::numeric_limits<double>::infinity());
  const Wide wide{widen(*reference.q), widen(*reference.k), widen(*reference.v)};
  for (std::int64_t row = 0; row < reference.rows; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      attend_row(reference, wide, row, head, result);
    }
  }
  return result;
}

double relative_l2(const std::vector<double>& want, const std::vector<float>& got) {
  double error = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double difference = static_cast<double>(got[i]) - want[i];
    error += difference * difference;
    norm += want[i] * want[i];
  }
  if (error == 0.0) return 0.0;
  return std::sqrt(error / norm);
}

}  // namespace pagekv::testing
