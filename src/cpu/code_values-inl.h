// Affine values, weighted, from their codes (cpu/code_weights.h): dims in lanes, four tokens in
// each. No include guard: cpu/codes-inl.h includes it.
//
// Rows are interleaved by bytes, four at a time, in chunks of kBytes bytes. A byte has one code,
// or where groups and dims allow all the codes that a byte of the row has, which saves moving them
// apart before. code_positions() has the order of dims that this leaves.

// kFactor (3, 5 or 6) times lanes; there is no product of 64 bits on every target.
template <int kFactor, class V>
HWY_INLINE V times(V lanes) {
  const auto twice = hn::Add(lanes, lanes);
  if constexpr (kFactor == 3) return hn::Add(twice, lanes);
  const auto four_times = hn::Add(twice, twice);
  return hn::Add(four_times, kFactor == 5 ? lanes : twice);
}

// kBytes / 8 streams of 8 codes, one after the other at `from`, each as the low bits of a lane.
// Reads no byte behind them: the last one is read by its end, and moved.
template <int kBits>
HWY_INLINE StreamVec load_streams(const std::uint8_t* from) {
  const StreamTag d;
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  if constexpr (kBytes == 16) {
    const auto first = hn::Set(d, load_stream<kBits>(bytes));
    const auto second = hn::Set(d, load_stream<kBits>(bytes + kBits));
    return hn::IfThenElse(hn::FirstN(d, 1), first, second);
  } else {
    constexpr std::int64_t kLast = kBytes / 8 - 1;
    const hn::RebindToSigned<StreamTag> di;
    const auto lane = hn::Iota(di, 0);
    const auto last = hn::Eq(lane, hn::Set(di, kLast));
    const auto offsets = times<kBits>(lane);
    const auto from_end = hn::Set(di, kBytes / 8 * kBits - 8);
    const auto streams = hn::GatherOffset(d, reinterpret_cast<const std::uint64_t*>(from),
                                          hn::IfThenElse(last, from_end, offsets));
    return hn::IfThenElse(hn::RebindMask(d, last), hn::ShiftRight<64 - 8 * kBits>(streams),
                          streams);
  }
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
  return shape.dim % (kAll * kBytes) == 0 && shape.group % (kAll * 16) == 0 ? kAll : 1;
}

// Where each dim is in what add_codes() gives.
template <int kPerByte>
HWY_INLINE void find_positions(std::int64_t dim, std::uint16_t* positions) {
  for (std::int64_t at = 0; at < dim; ++at) {
    const std::int64_t byte = at / kPerByte % kBytes;
    const std::int64_t part = at / kPerByte / kBytes * 4 + byte / 4 % 4;
    const std::int64_t vector = part * kPerByte + at % kPerByte;
    positions[at] = static_cast<std::uint16_t>(vector * kLanes + byte / 16 * 4 + byte % 4);
  }
}

template <int kBits>
void code_positions(const SideShape& shape, bool single, std::uint16_t* positions) {
  switch (single ? 1 : codes_per_byte<kBits>(shape)) {
    case 1: return find_positions<1>(shape.dim, positions);
    case 2: return find_positions<2>(shape.dim, positions);
    default: return find_positions<4>(shape.dim, positions);
  }
}

// Bytes of chunk `chunk` of a row, null for zeros.
template <int kBits>
HWY_INLINE ByteVec load_chunk(const std::byte* row, const SideShape& shape, std::int64_t per_byte,
                              std::int64_t chunk) {
  const ByteTag d;
  if (row == nullptr) return hn::Zero(d);
  if (per_byte == 1) return load_code_bytes<kBits>(row, chunk, shape.dim);
  return hn::LoadU(d, reinterpret_cast<const std::uint8_t*>(row) + chunk * kBytes);
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

template <int kBits>
void prepare_code_rows(const SpanTiles& span, const SideShape& shape, bool single, AskAhead& ask,
                       CodeRows& rows, SpanBits& large) {
  rows.per_byte = single ? 1 : codes_per_byte<kBits>(shape);
  rows.first_quad = span.begin / kQuad;
  rows.end_quad = (span.end + kQuad - 1) / kQuad;
  if (span.end_tile - span.first_tile < kSpanTiles) {
    std::fill_n(rows.scales, shape.groups * kSpanTokens, 0.0f);
    std::fill_n(rows.biases, shape.groups * kSpanTokens, 0.0f);
  }
  load_span_scales(span, shape, rows.scales, rows.biases, large);
  ask.spread(kRestOfValues * (rows.end_quad - rows.first_quad));
  for (std::int64_t tile = span.first_tile; tile < span.end_tile; ++tile) {
    const ConstPlanePointers& planes = span.v[static_cast<std::size_t>(tile)];
    const std::int64_t start = tile * kTileTokens;
    const auto [begin, end] = span.rows(tile);
    for (std::int64_t token = begin / kQuad * kQuad; token < end; token += kQuad) {
      ask();
      const std::byte* four[kQuad];
      for (std::int64_t i = 0; i < kQuad; ++i) {
        const bool readable = token + i >= begin && token + i < end;
        four[i] = readable ? planes[0] + (token + i) * shape.row_bytes[0] : nullptr;
      }
      interleave_rows<kBits>(four, shape, rows.per_byte,
                             rows.codes + (start + token) / kQuad * kBytes);
    }
  }
}

// The weights of one query and group: p * scale of all tokens as integers. Returns what they are
// multiples of.
HWY_INLINE float weigh_group(const float* p, const float* scales, std::uint32_t* first,
                             std::uint32_t* second) {
  const FloatTag d;
  constexpr std::int64_t kVectors = kSpanTokens / kLanes;
  FloatVec weights[kVectors];
  FloatVec most = hn::Zero(d);
  HWY_UNROLL(8)
  for (std::int64_t i = 0; i < kVectors; ++i) {
    weights[i] = hn::Mul(hn::LoadU(d, p + i * kLanes), hn::LoadU(d, scales + i * kLanes));
    most = hn::Max(most, hn::Abs(weights[i]));
  }
  const Multiples multiples(hn::GetLane(hn::MaxOfLanes(d, most)));
  HWY_UNROLL(8)
  for (std::int64_t i = 0; i < kVectors; ++i) {
    pack_quads(multiples.of(d, weights[i]), first + i * kLanes / kQuad,
               second + i * kLanes / kQuad);
  }
  return multiples.factor;
}

void weigh_codes(const SpanTiles& span, const CodeRows& rows, const SideShape& shape,
                 const float* p, std::int64_t count, const CodeWeights& to) {
  for (std::int64_t query = 0; query < count; ++query) {
    for (std::int64_t group = 0; group < shape.groups; ++group) {
      const float* own = p + query * kSpanTokens;
      std::uint32_t* words = to.words + (2 * query * shape.groups + group) * kSpanQuads;
      const std::int64_t at = query * shape.groups + group;
      to.factors[at] = weigh_group(own, rows.scales + group * kSpanTokens, words,
                                   words + shape.groups * kSpanQuads);
      to.sums[at] = weigh_biases(span, own, rows.biases + group * kSpanTokens);
    }
  }
}

// Blocks of 16 bytes of a vector that have a group to themselves: kGroups of them, from
// values[0], values[stride], ... on.
template <int kGroups, class D, class T>
HWY_INLINE hn::Vec<D> spread_groups(D d, const T* values, std::int64_t stride) {
  auto spread = hn::Set(d, static_cast<hn::TFromD<D>>(values[0]));
  if constexpr (kGroups > 1) {
    constexpr std::size_t kEach = static_cast<std::size_t>(kLanes) / kGroups;
    for (std::size_t group = 1; group < kGroups; ++group) {
      const auto own =
          hn::Set(d, static_cast<hn::TFromD<D>>(values[static_cast<std::int64_t>(group) * stride]));
      spread = hn::IfThenElse(hn::FirstN(d, group * kEach), spread, own);
    }
  }
  return spread;
}

// Vector kVector of a chunk, of the quads at `codes`.
template <int kPerByte, int kVector>
HWY_INLINE QuadCodes load_code_vector(const std::uint8_t* codes) {
  const IntTag d;
  const ByteVec bytes = hn::LoadU(ByteTag(), codes + kVector / kPerByte * kSpanQuads * kBytes);
  if constexpr (kPerByte == 1) {
    return split_codes(hn::BitCast(d, bytes));
  } else {
    constexpr int kBits = 8 / kPerByte;
    const auto mask = hn::Set(d, 0x01010101 * ((1 << kBits) - 1));
    const auto moved = hn::ShiftRight<kVector % kPerByte * kBits>(hn::BitCast(d, bytes));
    return split_codes(hn::And(moved, mask));
  }
}

// Products of one pair of vectors with all queries' weights of groups from `group` on, and what
// they amount to.
template <int kQueries, int kGroups, int kPerByte, int kPair>
HWY_INLINE void add_code_pair(const CodeRows& rows, const std::uint8_t* codes,
                              const CodeWeights& weights, std::int64_t groups, std::int64_t group,
                              AskAhead& ask, std::int64_t stride, float* out) {
  const IntTag d;
  constexpr int kSums = 2 * kQueries;  // [query][vector of the pair]
  IntVec sums[kSums];
  IntVec others[kSums];
  HWY_UNROLL(8)
  for (int i = 0; i < kSums; ++i) sums[i] = others[i] = hn::Zero(d);
  for (std::int64_t quad = rows.first_quad; quad < rows.end_quad; ++quad) {
    ask();
    const auto first_codes = load_code_vector<kPerByte, 2 * kPair>(codes + quad * kBytes);
    const auto second_codes = load_code_vector<kPerByte, 2 * kPair + 1>(codes + quad * kBytes);
    HWY_UNROLL(4)
    for (int query = 0; query < kQueries; ++query) {
      const std::uint32_t* words = weights.words + (2 * query * groups + group) * kSpanQuads + quad;
      const IntVec first = spread_groups<kGroups>(d, words, kSpanQuads);
      const IntVec second = spread_groups<kGroups>(d, words + groups * kSpanQuads, kSpanQuads);
      add_quads(sums[2 * query], others[2 * query], first_codes, first, second);
      add_quads(sums[2 * query + 1], others[2 * query + 1], second_codes, first, second);
    }
  }
  const FloatTag df;
  HWY_UNROLL(4)
  for (int query = 0; query < kQueries; ++query) {
    const std::int64_t at = query * groups + group;
    const FloatVec factor = spread_groups<kGroups>(df, weights.factors + at, 1);
    const FloatVec bias = spread_groups<kGroups>(df, weights.sums + at, 1);
    for (int i = 0; i < 2; ++i) {
      const FloatVec total =
          hn::ConvertTo(df, total_of(sums[2 * query + i], others[2 * query + i]));
      hn::StoreU(hn::MulAdd(total, factor, bias), df, out + query * stride + i * kLanes);
    }
  }
}

inline void finish_sums(const std::int32_t* totals, std::int64_t vectors, std::int64_t count,
                        const float* factors, const float* sums, std::int64_t factor_stride,
                        std::int64_t stride, float* out) {
  const FloatTag d;
  const IntTag di;
  constexpr std::int64_t kTotals = kMatrixQueries * kTileTokens;
  for (std::int64_t query = 0; query < count; ++query) {
    const FloatVec factor = hn::Set(d, factors[query * factor_stride]);
    const FloatVec bias = hn::Set(d, sums[query * factor_stride]);
    for (std::int64_t lane = 0; lane < vectors * kTileTokens; lane += kLanes) {
      const std::int32_t* first =
          totals + lane / kTileTokens * kTotals + query * kTileTokens + lane % kTileTokens;
      const IntVec total =
          total_of(hn::LoadU(di, first), hn::LoadU(di, first + kMatrixTiles * kTotals));
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, total), factor, bias), d, out + query * stride + lane);
    }
  }
}

template <int kQueries, int kGroups, int kPerByte, int kPair = 0>
HWY_INLINE void add_code_chunk(const CodeRows& rows, const std::uint8_t* codes,
                               const CodeWeights& weights, std::int64_t groups, std::int64_t group,
                               AskAhead& ask, std::int64_t stride, float* out) {
  if constexpr (kPair < 2 * kPerByte) {
    add_code_pair<kQueries, kGroups, kPerByte, kPair>(rows, codes, weights, groups, group, ask,
                                                      stride, out + 2 * kPair * kLanes);
    add_code_chunk<kQueries, kGroups, kPerByte, kPair + 1>(rows, codes, weights, groups, group, ask,
                                                           stride, out);
  }
}

template <int kQueries, int kGroups, int kPerByte>
void add_code_chunks(const CodeRows& rows, const SideShape& shape, const CodeWeights& weights,
                     AskAhead& ask, std::int64_t stride, float* out) {
  constexpr std::int64_t kDims = kBytes * kPerByte;
  ask.spread((rows.end_quad - rows.first_quad) * (shape.dim + kDims - 1) / kDims * 2 * kPerByte);
  for (std::int64_t dim = 0; dim < shape.dim; dim += kDims) {
    add_code_chunk<kQueries, kGroups, kPerByte>(
        rows, rows.codes + dim / kDims * 4 * kSpanQuads * kBytes, weights, shape.groups,
        dim / shape.group, ask, stride, out + dim);
  }
}

template <int kQueries, int kPerByte>
HWY_INLINE void add_code_groups(const CodeRows& rows, const SideShape& shape,
                                const CodeWeights& weights, AskAhead& ask, std::int64_t stride,
                                float* out) {
  constexpr std::int64_t kDims = kBytes * kPerByte;
  if (shape.group >= kDims) {
    return add_code_chunks<kQueries, 1, kPerByte>(rows, shape, weights, ask, stride, out);
  }
  if constexpr (kBytes >= 32) {
    if (2 * shape.group == kDims) {
      return add_code_chunks<kQueries, 2, kPerByte>(rows, shape, weights, ask, stride, out);
    }
  }
  if constexpr (kBytes >= 64) {
    return add_code_chunks<kQueries, 4, kPerByte>(rows, shape, weights, ask, stride, out);
  }
}

template <int kQueries>
HWY_INLINE void add_code_bytes(const CodeRows& rows, const SideShape& shape,
                               const CodeWeights& weights, AskAhead& ask, std::int64_t stride,
                               float* out) {
  switch (rows.per_byte) {
    case 1: return add_code_groups<kQueries, 1>(rows, shape, weights, ask, stride, out);
    case 2: return add_code_groups<kQueries, 2>(rows, shape, weights, ask, stride, out);
    default: return add_code_groups<kQueries, 4>(rows, shape, weights, ask, stride, out);
  }
}

void add_codes(const CodeRows& rows, const SideShape& shape, const CodeWeights& weights,
               std::int64_t count, AskAhead& ask, std::int64_t stride, float* out) {
  switch (count) {
    case 1: return add_code_bytes<1>(rows, shape, weights, ask, stride, out);
    case 2: return add_code_bytes<2>(rows, shape, weights, ask, stride, out);
    case 3: return add_code_bytes<3>(rows, shape, weights, ask, stride, out);
    default: return add_code_bytes<4>(rows, shape, weights, ask, stride, out);
  }
}
