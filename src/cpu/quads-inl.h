// Quads of codes times quads of integers (cpu/code_weights.h), in 32-bit lanes.
//
// No include guard: codes.cc includes this once per way of multiplying, in a namespace of its own.
// PAGEKV_VNNI is 1 where dot products of bytes may be used: integers are then 256 * high + low, and
// the two words of a quad have the four highs and the four lows. Elsewhere they have pairs of 16
// bits: of codes 0 and 2, and of codes 1 and 3. All give the same sums.

#if PAGEKV_VNNI
// sums += products of unsigned and signed bytes, four in each lane. The instruction itself, since
// around the intrinsic g++ 12 copies sums there and back, which takes longer than the products.
HWY_INLINE void add_products(IntVec& sums, IntVec codes, IntVec words) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(codes.raw), "v"(words.raw));
}

struct QuadCodes {
  IntVec bytes;
};
HWY_INLINE QuadCodes split_codes(IntVec codes) {
  return {codes};
}

// Codes that are looked up (cpu/code_table.h).
struct QuadParts {
  IntVec high;
  IntVec low;
};
class LookUpCodes {
 public:
  explicit LookUpCodes(const CodeTable& table)
      : high_(hn::LoadDup128(ByteTag(), table.high.data())),
        low_(hn::LoadDup128(ByteTag(), table.low.data())) {}
  HWY_INLINE QuadParts operator()(IntVec codes) const {
    const IntTag d;
    const auto bytes = hn::BitCast(ByteTag(), codes);
    return {hn::BitCast(d, hn::TableLookupBytes(high_, bytes)),
            hn::BitCast(d, hn::TableLookupBytes(low_, bytes))};
  }

 private:
  ByteVec high_;
  ByteVec low_;
};
HWY_INLINE void add_quads(IntVec& first, IntVec& second, const QuadCodes& codes, IntVec high,
                          IntVec low) {
  add_products(first, codes.bytes, high);
  add_products(second, codes.bytes, low);
}
// The product of both low parts is left out.
HWY_INLINE void add_quads(IntVec& first, IntVec& second, const QuadParts& codes, IntVec high,
                          IntVec low) {
  add_products(first, codes.high, high);
  add_products(second, codes.high, low);
  add_products(second, codes.low, high);
}
HWY_INLINE IntVec total_of(IntVec first, IntVec second) {
  return hn::Add(hn::ShiftLeft<8>(first), second);
}
HWY_INLINE void pack_quad(const std::int32_t* integers, std::uint32_t* high, std::uint32_t* low) {
  *high = *low = 0;
  for (int i = 0; i < 4; ++i) {
    *high |= (static_cast<std::uint32_t>((integers[i] + 128) >> 8) & 0xff) << (8 * i);
    *low |= (static_cast<std::uint32_t>(integers[i]) & 0xff) << (8 * i);
  }
}
// Vectors of integers that become quads together: 16 of the 64.
inline constexpr std::int64_t kPackVectors = 4;
HWY_INLINE void pack_quads(const IntVec* integers, std::uint32_t* high, std::uint32_t* low) {
  const __m512i first = _mm512_packs_epi32(integers[0].raw, integers[1].raw);
  const __m512i second = _mm512_packs_epi32(integers[2].raw, integers[3].raw);
  const __m512i half = _mm512_set1_epi16(128);
  const __m512i upper = _mm512_packs_epi16(_mm512_srai_epi16(_mm512_add_epi16(first, half), 8),
                                           _mm512_srai_epi16(_mm512_add_epi16(second, half), 8));
  const __m512i byte = _mm512_set1_epi16(255);
  const __m512i lower =
      _mm512_packus_epi16(_mm512_and_si512(first, byte), _mm512_and_si512(second, byte));
  // Block i of 16 bytes has quad i of each vector.
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  _mm512_storeu_si512(high, _mm512_permutexvar_epi32(order, upper));
  _mm512_storeu_si512(low, _mm512_permutexvar_epi32(order, lower));
}
#else
struct QuadCodes {
  IntVec even;
  IntVec odd;
};
HWY_INLINE QuadCodes split_codes(IntVec codes) {
  const IntTag d;
  const hn::RebindToUnsigned<IntTag> du;
  const auto bytes = hn::Set(du, 0x00ff00ffu);
  const auto raw = hn::BitCast(du, codes);
  return {hn::BitCast(d, hn::And(raw, bytes)),
          hn::BitCast(d, hn::And(hn::ShiftRight<8>(raw), bytes))};
}
HWY_INLINE IntVec add_pairs(IntVec sum, IntVec codes, IntVec words) {
#if HWY_ARCH_X86
  const IntTag d;
  const hn::Repartition<std::int16_t, IntTag> d16;
  IntVec unused = hn::Zero(d);  // pairs are added where they are
  return hn::ReorderWidenMulAccumulate(d, hn::BitCast(d16, codes), hn::BitCast(d16, words), sum,
                                       unused);
#else
  const auto lower = hn::ShiftRight<16>(hn::ShiftLeft<16>(words));
  const auto low_code = hn::ShiftRight<16>(hn::ShiftLeft<16>(codes));
  return hn::Add(sum, hn::Add(hn::Mul(low_code, lower),
                              hn::Mul(hn::ShiftRight<16>(codes), hn::ShiftRight<16>(words))));
#endif
}
HWY_INLINE void add_quads(IntVec& first, IntVec& second, const QuadCodes& codes, IntVec even,
                          IntVec odd) {
  first = add_pairs(first, codes.even, even);
  second = add_pairs(second, codes.odd, odd);
}
HWY_INLINE IntVec total_of(IntVec first, IntVec second) {
  return hn::Add(first, second);
}
HWY_INLINE std::uint32_t pack_pair(std::int32_t low, std::int32_t high) {
  return (static_cast<std::uint32_t>(low) & 0xffff) | static_cast<std::uint32_t>(high) << 16;
}
HWY_INLINE void pack_quad(const std::int32_t* integers, std::uint32_t* even, std::uint32_t* odd) {
  *even = pack_pair(integers[0], integers[2]);
  *odd = pack_pair(integers[1], integers[3]);
}
inline constexpr std::int64_t kPackVectors = 1;
HWY_INLINE void pack_quads(const IntVec* integers, std::uint32_t* even, std::uint32_t* odd) {
  alignas(64) std::int32_t lanes[kLanes];
  hn::Store(*integers, IntTag(), lanes);
  for (std::int64_t quad = 0; quad < kLanes / 4; ++quad) {
    pack_quad(lanes + 4 * quad, even + quad, odd + quad);
  }
}
#endif

HWY_INLINE IntVec load_word(const std::uint32_t* word) {
  return hn::Set(IntTag(), static_cast<std::int32_t>(*word));
}

struct SplitCodes {
  HWY_INLINE QuadCodes operator()(IntVec codes) const { return split_codes(codes); }
};
