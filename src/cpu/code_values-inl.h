// Quantized values, weighted, from their codes (cpu/code_weights.h): dims in lanes, four tokens in
// each. No include guard: cpu/codes-inl.h includes it.
//
// Rows are interleaved by bytes, four at a time, in chunks of kBytes bytes, so that a vector has
// kLanes neighbouring bytes of them. A byte has one code, or where groups allow all the codes that
// a byte of the row has, which saves moving them apart before. Either way all that a vector has is
// of one group. code_positions() has the order of dims that this leaves.

// kBytes / 8 streams of 8 codes, kBits bytes each, one after the other at `from`: each as the low
// bits of a lane. Reads no byte behind them.
template <int kBits>
HWY_INLINE StreamVec load_streams(const std::uint8_t* from) {
  alignas(64) std::uint64_t streams[kBytes / 8];
  for (std::int64_t i = 0; i < kBytes / 8; ++i) {
    streams[i] = load_stream<kBits>(reinterpret_cast<const std::byte*>(from) + i * kBits);
  }
  return hn::Load(StreamTag(), streams);
}

// codes_to_bytes() in lanes.
template <int kBits>
HWY_INLINE StreamVec spread_streams(StreamVec x) {
  const StreamTag d;
  const auto halves = hn::Set(d, every<4 * kBits, 64>());
  x = hn::Or(hn::And(x, halves),
             hn::ShiftLeft<32 - 4 * kBits>(hn::And(x, hn::ShiftLeft<4 * kBits>(halves))));
  const auto quarters = hn::Set(d, every<2 * kBits, 32>());
  x = hn::Or(hn::And(x, quarters),
             hn::ShiftLeft<16 - 2 * kBits>(hn::And(x, hn::ShiftLeft<2 * kBits>(quarters))));
  const auto eighths = hn::Set(d, every<kBits, 16>());
  return hn::Or(hn::And(x, eighths),
                hn::ShiftLeft<8 - kBits>(hn::And(x, hn::ShiftLeft<kBits>(eighths))));
}

// Codes [kBytes * chunk, kBytes * (chunk + 1)) of a row, one byte each, zeros past the last.
template <int kBits>
HWY_INLINE ByteVec load_code_bytes(const std::byte* row, std::int64_t chunk, std::int64_t dim) {
  const ByteTag d;
  const std::int64_t first = chunk * kBytes;
  if (first + kBytes <= dim) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(row) + first / 8 * kBits;
    if constexpr (kBits == 8) {
      return hn::LoadU(d, from);
    } else if constexpr (kBits == 4) {
      const hn::Repartition<std::uint16_t, ByteTag> d16;
      const hn::Rebind<std::uint8_t, decltype(d16)> d8;
      const auto two = hn::PromoteTo(d16, hn::LoadU(d8, from));
      const auto apart = hn::Or(two, hn::ShiftLeft<4>(two));
      return hn::BitCast(d, hn::And(apart, hn::Set(d16, 0x0f0f)));
    } else if constexpr (kBits == 2) {
      const hn::Repartition<std::uint32_t, ByteTag> d32;
      const hn::Rebind<std::uint8_t, decltype(d32)> d8;
      const auto four = hn::PromoteTo(d32, hn::LoadU(d8, from));
      const auto halves = hn::Or(four, hn::ShiftLeft<12>(four));
      const auto apart = hn::Or(halves, hn::ShiftLeft<6>(halves));
      return hn::BitCast(d, hn::And(apart, hn::Set(d32, 0x03030303u)));
    } else {
      return hn::BitCast(d, spread_streams<kBits>(load_streams<kBits>(from)));
    }
  }
  alignas(64) std::uint8_t bytes[kBytes] = {};
  const std::int64_t end = std::min(dim, first + kBytes);
  for (std::int64_t at = first; at < end; at += 8) {
    const std::uint64_t eight = codes_to_bytes<kBits>(load_stream<kBits>(row + at / 8 * kBits));
    std::memcpy(bytes + (at - first), &eight, sizeof eight);
  }
  return hn::Load(d, bytes);
}

// Codes that a byte of interleaved rows has.
template <int kBits>
HWY_INLINE std::int64_t codes_per_byte(const SideShape& shape) {
  constexpr std::int64_t kAll = kBits == 2 || kBits == 4 ? 8 / kBits : 1;
  return shape.group % (kAll * kLanes) == 0 ? kAll : 1;
}

// Where each dim is in what add_codes() gives.
template <int kPerByte>
HWY_INLINE void find_positions(std::int64_t dim, std::uint16_t* positions) {
  for (std::int64_t byte = 0; byte < dim / kPerByte; ++byte) {
    for (std::int64_t part = 0; part < kPerByte; ++part) {
      const std::int64_t vector = byte / kLanes * kPerByte + part;
      positions[byte * kPerByte + part] =
          static_cast<std::uint16_t>(vector * kLanes + byte % kLanes);
    }
  }
}

template <int kBits>
bool code_positions(const SideShape& shape, std::uint16_t* positions) {
  switch (codes_per_byte<kBits>(shape)) {
    case 1: return false;
    case 2: find_positions<2>(shape.dim, positions); return true;
    default: find_positions<4>(shape.dim, positions); return true;
  }
}

// Vectors of interleaved bytes of a row.
HWY_INLINE std::int64_t byte_vectors(const SideShape& shape, std::int64_t per_byte) {
  return (shape.dim + kLanes * per_byte - 1) / (kLanes * per_byte);
}

// Bytes [chunk * kBytes, ...) of a row of `count`, zeros past the last.
HWY_INLINE ByteVec load_row_bytes(const std::byte* row, std::int64_t count, std::int64_t chunk) {
  const ByteTag d;
  const auto* from = reinterpret_cast<const std::uint8_t*>(row) + chunk * kBytes;
  const std::int64_t left = count - chunk * kBytes;
  if (left >= kBytes) return hn::LoadU(d, from);
  if constexpr (kBytes == 64) {
    return hn::MaskedLoad(hn::FirstN(d, static_cast<std::size_t>(left)), d, from);
  } else {
    alignas(64) std::uint8_t bytes[kBytes] = {};
    std::memcpy(bytes, from, static_cast<std::size_t>(left));
    return hn::Load(d, bytes);
  }
}

inline constexpr auto kFours = [] {
  std::array<std::int32_t, kLanes> from{};
  for (std::size_t at = 0; at < from.size(); ++at) {
    from[at] = static_cast<std::int32_t>(at % 4 * (from.size() / 4) + at / 4);
  }
  return from;
}();

// Interleaving takes bytes [16 * block + 4 * i, ... + 4) of all blocks of 16 into vector i: bytes
// in the order that makes these neighbours.
HWY_INLINE ByteVec in_fours(ByteVec bytes) {
  if constexpr (kBytes == 16) {
    return bytes;
  } else {
    const IntTag d;
    const auto order = hn::SetTableIndices(d, kFours.data());
    return hn::BitCast(ByteTag(), hn::TableLookupLanes(hn::BitCast(d, bytes), order));
  }
}

// Bytes of chunk `chunk` of a row, null for zeros.
template <int kBits>
HWY_INLINE ByteVec load_chunk(const std::byte* row, const SideShape& shape, std::int64_t per_byte,
                              std::int64_t chunk) {
  if (row == nullptr) return hn::Zero(ByteTag());
  if (per_byte == 1 && kBits != 8) return in_fours(load_code_bytes<kBits>(row, chunk, shape.dim));
  return in_fours(load_row_bytes(row, shape.row_bytes[0], chunk));
}

// Four rows into quads.
template <int kBits>
HWY_INLINE void interleave_rows(const std::byte* const* rows, const SideShape& shape,
                                std::int64_t per_byte, std::uint8_t* to) {
  const ByteTag d;
  const hn::Repartition<std::uint16_t, ByteTag> d16;
  constexpr std::int64_t kStride = kSpanQuads * kBytes;
  for (std::int64_t chunk = 0; chunk * kBytes * per_byte < shape.dim; ++chunk, to += 4 * kStride) {
    const ByteVec row0 = load_chunk<kBits>(rows[0], shape, per_byte, chunk);
    const ByteVec row1 = load_chunk<kBits>(rows[1], shape, per_byte, chunk);
    const ByteVec row2 = load_chunk<kBits>(rows[2], shape, per_byte, chunk);
    const ByteVec row3 = load_chunk<kBits>(rows[3], shape, per_byte, chunk);
    const auto low01 = hn::BitCast(d16, hn::InterleaveLower(d, row0, row1));
    const auto high01 = hn::BitCast(d16, hn::InterleaveUpper(d, row0, row1));
    const auto low23 = hn::BitCast(d16, hn::InterleaveLower(d, row2, row3));
    const auto high23 = hn::BitCast(d16, hn::InterleaveUpper(d, row2, row3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d16, low01, low23)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d16, low01, low23)), d, to + kStride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d16, high01, high23)), d, to + 2 * kStride);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d16, high01, high23)), d, to + 3 * kStride);
  }
}

// Of what is to be asked for, prepare_code_rows() asks for one part in so many; add_codes() for the
// rest.
inline constexpr std::int64_t kRestOfValues = 2;

// Scales and biases of all the span's tokens, 0 where there are none. Of codes that are looked up,
// an element is scale * (first + step * code).
void load_code_scales(const SpanTiles& span, const SideShape& shape, const CodeRows& rows,
                      SpanBits& large) {
  if (span.end_tile - span.first_tile < kSpanTiles) {
    std::fill_n(rows.scales, shape.groups * kSpanTokens, 0.0f);
    std::fill_n(rows.biases, shape.groups * kSpanTokens, 0.0f);
  }
  load_span_scales(span, shape, rows.scales, rows.biases, large);
  if (rows.table == nullptr) return;
  const FloatTag d;
  for (std::int64_t i = 0; i < shape.groups * kSpanTokens; i += kLanes) {
    const FloatVec scale = hn::LoadU(d, rows.scales + i);
    hn::StoreU(hn::Mul(scale, hn::Set(d, rows.table->first)), d, rows.biases + i);
    hn::StoreU(hn::Mul(scale, hn::Set(d, rows.table->step)), d, rows.scales + i);
  }
}

template <int kBits>
void prepare_code_rows(const SpanTiles& span, const SideShape& shape, AskAhead& ask, CodeRows& rows,
                       SpanBits& large) {
  rows.per_byte = codes_per_byte<kBits>(shape);
  rows.first_quad = span.begin / kQuad;
  rows.end_quad = (span.end + kQuad - 1) / kQuad;
  load_code_scales(span, shape, rows, large);
  ask.spread(kRestOfValues * (rows.end_quad - rows.first_quad));
  for (std::int64_t quad = rows.first_quad; quad < rows.end_quad; ++quad) {
    ask();
    const std::byte* four[kQuad];
    for (std::int64_t i = 0; i < kQuad; ++i) {
      four[i] = span.value_row(quad * kQuad + i, shape.row_bytes[0]);
    }
    interleave_rows<kBits>(four, shape, rows.per_byte, rows.codes + quad * kBytes);
  }
}

// The largest p * scale of all tokens.
HWY_INLINE float most_weight(const float* p, const float* scales) {
  const FloatTag d;
  FloatVec most = hn::Zero(d);
  HWY_UNROLL(8)
  for (std::int64_t i = 0; i < kSpanTokens; i += kLanes) {
    most = hn::Max(most, hn::Abs(hn::Mul(hn::LoadU(d, p + i), hn::LoadU(d, scales + i))));
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// p * scale of all tokens as such multiples.
HWY_INLINE void weigh_group(const Multiples& multiples, const float* p, const float* scales,
                            std::uint32_t* first, std::uint32_t* second) {
  const FloatTag d;
  HWY_UNROLL(8)
  for (std::int64_t i = 0; i < kSpanTokens; i += kPackVectors * kLanes) {
    IntVec integers[kPackVectors];
    for (std::int64_t j = 0; j < kPackVectors; ++j) {
      const std::int64_t at = i + j * kLanes;
      const FloatVec weights = hn::Mul(hn::LoadU(d, p + at), hn::LoadU(d, scales + at));
      integers[j] = multiples.of(d, weights);
    }
    pack_quads(integers, first + i / kQuad, second + i / kQuad);
  }
}

// One step for all queries after the other, so that none waits for the one before.
template <int kQueries>
HWY_INLINE void weigh_queries(const SpanTiles& span, const CodeRows& rows, std::int64_t groups,
                              std::int64_t group, const float* p, std::int64_t query,
                              const CodeWeights& to) {
  const float* scales = rows.scales + group * kSpanTokens;
  const float* biases = rows.biases + group * kSpanTokens;
  float most[kQueries];
  for (int i = 0; i < kQueries; ++i) most[i] = most_weight(p + i * kSpanTokens, scales);
  for (int i = 0; i < kQueries; ++i) {
    const Multiples multiples(most[i]);
    std::uint32_t* words = to.of(query + i, group);
    to.factors[(query + i) * groups + group] = multiples.factor;
    weigh_group(multiples, p + i * kSpanTokens, scales, words, words + to.part_words);
  }
  for (int i = 0; i < kQueries; ++i) {
    to.sums[(query + i) * groups + group] = weigh_biases(span, p + i * kSpanTokens, biases);
  }
}

void weigh_codes(const SpanTiles& span, const CodeRows& rows, const SideShape& shape,
                 const float* p, std::int64_t count, const CodeWeights& to) {
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    std::int64_t query = 0;
    for (; query + 4 <= count; query += 4) {
      weigh_queries<4>(span, rows, shape.groups, group, p + query * kSpanTokens, query, to);
    }
    for (; query < count; ++query) {
      weigh_queries<1>(span, rows, shape.groups, group, p + query * kSpanTokens, query, to);
    }
  }
}

// Vector kPart of the codes at `bytes`.
template <int kPerByte, int kPart>
HWY_INLINE IntVec load_code_vector(const std::uint8_t* bytes) {
  const IntTag d;
  const auto codes = hn::BitCast(d, hn::LoadU(ByteTag(), bytes));
  if constexpr (kPerByte == 1) {
    return codes;
  } else {
    constexpr int kBits = 8 / kPerByte;
    const auto mask = hn::Set(d, 0x01010101 * ((1 << kBits) - 1));
    return hn::And(hn::ShiftRight<kPart * kBits>(codes), mask);
  }
}

// Products of kVectors vectors with all queries' weights of one group, and what they amount to:
// parts kPart on of the bytes at `codes`, or where a byte has one code, of the vectors from there.
template <int kQueries, int kPerByte, int kVectors, int kPart, class Worth>
HWY_INLINE void add_code_vectors(const CodeRows& rows, const Worth& worth,
                                 const std::uint8_t* codes, const CodeWeights& weights,
                                 std::int64_t groups, std::int64_t group, AskAhead& ask,
                                 std::int64_t stride, float* out) {
  const IntTag d;
  constexpr int kSums = kVectors * kQueries;  // [query][vector]
  constexpr std::int64_t kNext = kPerByte == 1 ? kSpanQuads * kBytes : 0;
  const std::uint32_t* first_words = weights.of(0, group);
  IntVec sums[kSums];
  IntVec others[kSums];
  HWY_UNROLL(8)
  for (int i = 0; i < kSums; ++i) sums[i] = others[i] = hn::Zero(d);
  for (std::int64_t quad = rows.first_quad; quad < rows.end_quad; ++quad) {
    ask();
    constexpr int kSecond = kPerByte == 1 ? 0 : kPart + kVectors - 1;
    const std::uint8_t* at = codes + quad * kBytes;
    const auto first = worth(load_code_vector<kPerByte, kPart>(at));
    const auto second =
        kVectors == 1 ? first : worth(load_code_vector<kPerByte, kSecond>(at + kNext));
    HWY_UNROLL(4)
    for (int query = 0; query < kQueries; ++query) {
      const std::uint32_t* words = first_words + 2 * query * kSpanQuads + quad;  // by_query()
      const IntVec high = load_word(words);
      const IntVec low = load_word(words + kSpanQuads);
      const int sum = query * kVectors;
      add_quads(sums[sum], others[sum], first, high, low);
      if constexpr (kVectors == 2) add_quads(sums[sum + 1], others[sum + 1], second, high, low);
    }
  }
  const FloatTag df;
  HWY_UNROLL(4)
  for (int query = 0; query < kQueries; ++query) {
    const FloatVec factor = hn::Set(df, weights.factors[query * groups + group]);
    const FloatVec bias = hn::Set(df, weights.sums[query * groups + group]);
    for (int i = 0; i < kVectors; ++i) {
      const int sum = query * kVectors + i;
      const FloatVec total = hn::ConvertTo(df, total_of(sums[sum], others[sum]));
      hn::StoreU(hn::MulAdd(total, factor, bias), df, out + query * stride + i * kLanes);
    }
  }
}

// All that a vector of bytes has, or two where a byte has one code.
template <int kQueries, int kPerByte, int kVectors, class Worth, int kPart = 0>
HWY_INLINE void add_code_bytes(const CodeRows& rows, const Worth& worth, const std::uint8_t* codes,
                               const CodeWeights& weights, std::int64_t groups, std::int64_t group,
                               AskAhead& ask, std::int64_t stride, float* out) {
  if constexpr (kPart < kPerByte) {
    add_code_vectors<kQueries, kPerByte, kVectors, kPart>(rows, worth, codes, weights, groups,
                                                          group, ask, stride, out + kPart * kLanes);
    add_code_bytes<kQueries, kPerByte, kVectors, Worth, kPart + 2>(rows, worth, codes, weights,
                                                                   groups, group, ask, stride, out);
  }
}

template <int kQueries, int kPerByte, class Worth>
void add_code_rows(const CodeRows& rows, const Worth& worth, const SideShape& shape,
                   const CodeWeights& weights, AskAhead& ask, std::int64_t stride, float* out) {
  constexpr std::int64_t kDims = kLanes * kPerByte;  // of a vector of bytes
  constexpr std::int64_t kTogether = kPerByte == 1 ? 2 : 1;
  const std::int64_t vectors = byte_vectors(shape, kPerByte);
  ask.spread((rows.end_quad - rows.first_quad) * vectors * kPerByte / 2);
  std::int64_t vector = 0;
  if (shape.group % (kTogether * kDims) == 0 || shape.groups == 1) {
    for (; vector + kTogether <= vectors; vector += kTogether) {
      add_code_bytes<kQueries, kPerByte, 2>(rows, worth, rows.codes + vector * kSpanQuads * kBytes,
                                            weights, shape.groups, vector * kDims / shape.group,
                                            ask, stride, out + vector * kDims);
    }
  }
  for (; kPerByte == 1 && vector < vectors; ++vector) {
    add_code_bytes<kQueries, 1, 1>(rows, worth, rows.codes + vector * kSpanQuads * kBytes, weights,
                                   shape.groups, vector * kDims / shape.group, ask, stride,
                                   out + vector * kDims);
  }
}

template <int kQueries, class Worth>
HWY_INLINE void add_codes_of(const CodeRows& rows, const Worth& worth, const SideShape& shape,
                             const CodeWeights& weights, AskAhead& ask, std::int64_t stride,
                             float* out) {
  switch (rows.per_byte) {
    case 1: return add_code_rows<kQueries, 1>(rows, worth, shape, weights, ask, stride, out);
    case 2: return add_code_rows<kQueries, 2>(rows, worth, shape, weights, ask, stride, out);
    default: return add_code_rows<kQueries, 4>(rows, worth, shape, weights, ask, stride, out);
  }
}

template <class Worth>
HWY_INLINE void add_codes_worth(const CodeRows& rows, const Worth& worth, const SideShape& shape,
                                const CodeWeights& weights, std::int64_t count, AskAhead& ask,
                                std::int64_t stride, float* out) {
  switch (count) {
    case 1: return add_codes_of<1>(rows, worth, shape, weights, ask, stride, out);
    case 2: return add_codes_of<2>(rows, worth, shape, weights, ask, stride, out);
    case 3: return add_codes_of<3>(rows, worth, shape, weights, ask, stride, out);
    default: return add_codes_of<4>(rows, worth, shape, weights, ask, stride, out);
  }
}

void add_codes(const CodeRows& rows, const SideShape& shape, const CodeWeights& weights,
               std::int64_t count, AskAhead& ask, std::int64_t stride, float* out) {
#if PAGEKV_VNNI
  if (rows.table != nullptr) {
    const LookUpCodes look_up(*rows.table);
    return add_codes_worth(rows, look_up, shape, weights, count, ask, stride, out);
  }
#endif
  add_codes_worth(rows, SplitCodes(), shape, weights, count, ask, stride, out);
}

inline void finish_sums(const std::int32_t* totals, std::int64_t vectors, std::int64_t count,
                        const float* factors, const float* sums, std::int64_t groups,
                        std::int64_t stride, float* out) {
  const FloatTag d;
  const IntTag di;
  for (std::int64_t query = 0; query < count; ++query) {
    const FloatVec factor = hn::Set(d, factors[query * groups]);
    const FloatVec bias = hn::Set(d, sums[query * groups]);
    for (std::int64_t lane = 0; lane < vectors * kTileTokens; lane += kLanes) {
      const std::int32_t* first =
          totals + lane / kTileTokens * kByteTotals + query * kTileTokens + lane % kTileTokens;
      const IntVec total =
          total_of(hn::LoadU(di, first), hn::LoadU(di, first + kByteQueries * kTileTokens));
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, total), factor, bias), d, out + query * stride + lane);
    }
  }
}
