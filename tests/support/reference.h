// Attention in float64, slow and obvious, over plain dense arrays: what every device is judged by.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pagekv/attend.h"
#include "support/random_data.h"

namespace pagekv::testing {

// One sequence with queries for its last `rows` tokens.
struct ReferenceCase {
  const Tensor* k = nullptr;   // [token, kv_head, key_dim], already rounded to the storage type
  const Tensor* v = nullptr;   // [token, kv_head, value_dim]
  std::int64_t length = 0;     // tokens of k and v that count
  const Tensor* q = nullptr;   // [row, query_head, key_dim]
  std::int64_t first_row = 0;  // of q
  std::int64_t rows = 0;
  Mask mask = Mask::causal;
  std::int64_t window_tokens = 0;  // 0: none
  std::span<const BidirectionalSpan> spans = {};
  const std::uint8_t* matrix = nullptr;  // [row][length]
  float scale = 0.0f;                    // as it multiplies the logits; not 0
  float logit_softcap = 0.0f;
  const float* sinks = nullptr;  // [query_head] or null
};

struct ReferenceResult {
  std::vector<double> out;  // [row, query_head, value_dim]
  std::vector<double> lse;  // [row, query_head]
  double max_abs_logit = 0.0;
};

// Whether row `row` of the case sees a token.
bool is_visible(const ReferenceCase& reference, std::int64_t row, std::int64_t token);

ReferenceResult reference_attention(const ReferenceCase& reference);

// sqrt(sum (got - want)^2 / sum want^2); 0 where both are all zero.
double relative_l2(const std::vector<double>& want, const std::vector<float>& got);

}  // namespace pagekv::testing
