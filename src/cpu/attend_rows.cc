#include "cpu/attend_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "codec/hadamard.h"
#include "cpu/row_address.h"

namespace pagekv::inline v0::internal {

void load_query(const AttendCall& call, std::int64_t row, std::int64_t query_head, float* q) {
  const Rows& rows = call.args.q;
  call.kernels.to_float[dtype_index(rows.dtype)](row_address(rows, row, query_head), q,
                                                 call.shape.key_dim);
  if (call.layer.format.k.is_rotated()) call.kernels.rotate(rotation(call.shape.key_dim), q);
}

void write_row(const AttendCall& call, std::int64_t row, std::int64_t query_head,
               SoftmaxState state, float* out) {
  static constexpr std::array<float, kMaxHeadDim> kZeros{};
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  const std::int64_t value_dim = call.shape.value_dim;
  float lse = kMinusInfinity;
  if (state.max == kMinusInfinity) {  // sees no token: 0 and -inf, whatever the sink
    std::fill_n(out, value_dim, 0.0f);
  } else {
    if (call.args.sinks != nullptr) {
      call.kernels.fold(state, out, {call.args.sinks[query_head] * kLog2E, 1.0f}, kZeros.data(),
                        value_dim);
    }
    call.kernels.divide(out, state.sum, value_dim);
    if (call.layer.format.v.is_rotated()) call.kernels.unrotate(rotation(value_dim), out);
    lse = state.max * kLn2 + std::log(state.sum);
  }
  const MutableRows& rows = call.args.out;
  call.kernels.convert[dtype_index(DType::f32)][dtype_index(rows.dtype)](
      out, row_address(rows, row, query_head), value_dim);
  if (call.args.lse != nullptr) call.args.lse[row * call.plan.spec.query_heads + query_head] = lse;
}

}  // namespace pagekv::inline v0::internal
