// Value rows as bytes (cpu/value_bytes.h) with AVX-512's instructions that move bytes and look them
// up (VBMI).
#include "cpu/dispatch.h"
#include "cpu/kernel_table.h"
#include "cpu/value_bytes.h"
#include "hwy/highway.h"

#if HWY_ARCH_X86
// g++ 12 says so of what its own intrinsics leave undefined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include <algorithm>
#include <array>

namespace pagekv::inline v0::internal {

namespace {

#define PAGEKV_AVX512_BYTES __attribute__((target("avx512f,avx512bw,avx512vbmi")))

constexpr std::int64_t kQuadBytes = 64;  // of 16 lanes

struct Spread {
  const ValueBytes& form;
  std::int64_t row_bytes;   // from one row to the next
  std::int64_t code_bytes;  // of a row
  std::int64_t vector_bytes;
  std::int64_t low_bytes;
  // Of the form; in registers, since all that is stored could lie where they do.
  __m512i order;
  __m512i shifts;
  __m512i high;
  __m512i low;
};

// A chunk of a row, null for zeros, of which it has the bytes of `mask`.
PAGEKV_AVX512_BYTES inline __m512i load_chunk(const Spread& spread, __mmask64 mask,
                                              const std::byte* from) {
  if (from == nullptr) return _mm512_setzero_si512();
  const __m512i bytes = _mm512_permutexvar_epi8(spread.order, _mm512_maskz_loadu_epi8(mask, from));
  return spread.form.spread ? _mm512_multishift_epi64_epi8(spread.shifts, bytes) : bytes;
}

// Four rows' bytes of one chunk, by bytes: 16 elements in each of `quads`.
PAGEKV_AVX512_BYTES inline void interleave_four(const __m512i* rows, __m512i* quads) {
  const __m512i low01 = _mm512_unpacklo_epi8(rows[0], rows[1]);
  const __m512i high01 = _mm512_unpackhi_epi8(rows[0], rows[1]);
  const __m512i low23 = _mm512_unpacklo_epi8(rows[2], rows[3]);
  const __m512i high23 = _mm512_unpackhi_epi8(rows[2], rows[3]);
  quads[0] = _mm512_unpacklo_epi16(low01, low23);
  quads[1] = _mm512_unpackhi_epi16(low01, low23);
  quads[2] = _mm512_unpacklo_epi16(high01, high23);
  quads[3] = _mm512_unpackhi_epi16(high01, high23);
}

// The codes of a quad's bytes, each as a byte of a vector.
template <int kPerByte, bool kLookedUp>
PAGEKV_AVX512_BYTES inline void store_codes(const Spread& spread, __m512i quad, std::uint8_t* to) {
  for (int part = 0; part < kPerByte; ++part, to += spread.vector_bytes) {
    const __m512i codes = part == 0 ? quad : _mm512_srli_epi32(quad, part * (8 / kPerByte));
    if constexpr (kLookedUp) {  // which looks at the low bits alone
      _mm512_storeu_si512(to, _mm512_permutexvar_epi8(codes, spread.high));
      _mm512_storeu_si512(to + spread.low_bytes, _mm512_permutexvar_epi8(codes, spread.low));
    } else {
      const auto mask = static_cast<char>((1 << spread.form.bits) - 1);
      _mm512_storeu_si512(to, _mm512_and_si512(codes, _mm512_set1_epi8(mask)));
    }
  }
}

template <int kPerByte, bool kLookedUp>
PAGEKV_AVX512_BYTES inline void spread_quad(const Spread& spread, const std::byte* const* rows,
                                            AskAhead& ask, std::uint8_t* to) {
  const std::int64_t code_bits = spread.form.spread ? spread.form.bits : 8;
  for (std::int64_t byte = 0; byte < spread.code_bytes; byte += spread.form.chunk) {
    ask();
    const std::int64_t count = std::min(spread.form.chunk, spread.code_bytes - byte);
    const __mmask64 mask = count == 64 ? ~__mmask64{0} : (__mmask64{1} << count) - 1;
    __m512i four[4];
    for (int i = 0; i < 4; ++i) {
      four[i] = load_chunk(spread, mask, rows[i] == nullptr ? nullptr : rows[i] + byte);
    }
    __m512i quads[4];
    interleave_four(four, quads);
    const std::int64_t elements = count * 8 / code_bits;
    for (int i = 0; i * 16 < elements; ++i, to += kPerByte * spread.vector_bytes) {
      store_codes<kPerByte, kLookedUp>(spread, quads[i], to);
    }
  }
}

// `spread` is a copy, whose address nobody has.
template <int kPerByte, bool kLookedUp>
PAGEKV_AVX512_BYTES void spread_steps(const SpanTiles& span, Spread spread, TokenRange steps,
                                      AskAhead& ask, std::uint8_t* to) {
  for (std::int64_t token = steps.begin * kByteStepTokens; token < steps.end * kByteStepTokens;
       token += 4, to += kQuadBytes) {
    const std::byte* rows[4];
    for (std::int64_t i = 0; i < 4; ++i) rows[i] = span.value_row(token + i, spread.row_bytes);
    spread_quad<kPerByte, kLookedUp>(spread, rows, ask, to);
  }
}

PAGEKV_AVX512_BYTES void spread_values(const SpanTiles& span, const SideShape& shape,
                                       const ValueBytes& form, TokenRange steps,
                                       std::int64_t vector_bytes, std::int64_t low_bytes,
                                       AskAhead& ask, std::uint8_t* to) {
  Spread spread{.form = form,
                .row_bytes = shape.row_bytes[0],
                .code_bytes = shape.dim / 8 * form.bits,
                .vector_bytes = vector_bytes,
                .low_bytes = low_bytes,
                .order = _mm512_load_si512(form.order.data()),
                .shifts = _mm512_load_si512(form.shifts.data()),
                .high = _mm512_setzero_si512(),
                .low = _mm512_setzero_si512()};
  if (low_bytes != 0) {
    spread.high = _mm512_load_si512(form.table->high.data());
    spread.low = _mm512_load_si512(form.table->low.data());
  }
  switch (2 * form.per_byte + (low_bytes != 0 ? 1 : 0)) {
    case 2: return spread_steps<1, false>(span, spread, steps, ask, to);
    case 3: return spread_steps<1, true>(span, spread, steps, ask, to);
    case 4: return spread_steps<2, false>(span, spread, steps, ask, to);
    case 5: return spread_steps<2, true>(span, spread, steps, ask, to);
    case 8: return spread_steps<4, false>(span, spread, steps, ask, to);
    default: return spread_steps<4, true>(span, spread, steps, ask, to);
  }
}

}  // namespace

bool bind_spread_values(KernelTable& table) {
  if (table.target != HWY_AVX3 || __builtin_cpu_supports("avx512vbmi") == 0) return false;
  table.codes.spread_values = spread_values;
  return true;
}

}  // namespace pagekv::inline v0::internal

#else

namespace pagekv::inline v0::internal {

bool bind_spread_values(KernelTable& /* table */) {
  return false;
}

}  // namespace pagekv::inline v0::internal

#endif
