// Scores of affine keys from their codes (cpu/code_weights.h): tokens in lanes.
//
// No include guard: cpu/codes-inl.h includes it.

// What kBits-wide codes of a key tile come in: `kWords` words of each token have kDims dims, which
// make kDims / 4 quads. dim(quad, i) is where code i of a quad belongs.
template <int kBits>
struct KeyStep {  // of 3, 5 and 6 bits
  static constexpr int kWords = kBits;
  static constexpr int kDims = 32;
  static constexpr int dim(int quad, int i) { return 4 * quad + i; }
  static HWY_INLINE void load(const std::uint32_t* from, IntVec* quads) {
    load_all(from, quads, std::make_index_sequence<8>());
  }

 private:
  using Words = hn::Vec<hn::RebindToUnsigned<FloatTag>>;
  template <std::size_t... kQuads>
  static HWY_INLINE void load_all(const std::uint32_t* from, IntVec* quads,
                                  std::index_sequence<kQuads...> /* 0 to 7 */) {
    const hn::RebindToUnsigned<FloatTag> du;
    Words words[kBits];
    for (int i = 0; i < kBits; ++i) words[i] = hn::LoadU(du, from + i * kTileTokens);
    ((quads[kQuads] = hn::BitCast(IntTag(), quad<kQuads>(words))), ...);
  }
  template <std::size_t kAt>
  static HWY_INLINE Words quad(const Words* words) {
    return hn::Or(hn::Or(code_in_words<kBits, 4 * kAt>(words),
                         hn::ShiftLeft<8>(code_in_words<kBits, 4 * kAt + 1>(words))),
                  hn::Or(hn::ShiftLeft<16>(code_in_words<kBits, 4 * kAt + 2>(words)),
                         hn::ShiftLeft<24>(code_in_words<kBits, 4 * kAt + 3>(words))));
  }
};

template <>
struct KeyStep<8> {
  static constexpr int kWords = 1;
  static constexpr int kDims = 4;
  static constexpr int dim(int /* quad */, int i) { return i; }
  static HWY_INLINE void load(const std::uint32_t* from, IntVec* quads) {
    quads[0] = hn::LoadU(IntTag(), reinterpret_cast<const std::int32_t*>(from));
  }
};

template <>
struct KeyStep<4> {
  static constexpr int kWords = 1;
  static constexpr int kDims = 8;
  static constexpr int dim(int quad, int i) { return 2 * i + quad; }
  static HWY_INLINE void load(const std::uint32_t* from, IntVec* quads) {
    const IntTag d;
    const auto mask = hn::Set(d, 0x0f0f0f0f);
    const auto word = hn::LoadU(d, reinterpret_cast<const std::int32_t*>(from));
    quads[0] = hn::And(word, mask);
    quads[1] = hn::And(hn::ShiftRight<4>(word), mask);
  }
};

template <>
struct KeyStep<2> {
  static constexpr int kWords = 1;
  static constexpr int kDims = 16;
  static constexpr int dim(int quad, int i) { return 4 * i + quad; }
  static HWY_INLINE void load(const std::uint32_t* from, IntVec* quads) {
    const IntTag d;
    const auto mask = hn::Set(d, 0x03030303);
    const auto word = hn::LoadU(d, reinterpret_cast<const std::int32_t*>(from));
    quads[0] = hn::And(word, mask);
    quads[1] = hn::And(hn::ShiftRight<2>(word), mask);
    quads[2] = hn::And(hn::ShiftRight<4>(word), mask);
    quads[3] = hn::And(hn::ShiftRight<6>(word), mask);
  }
};

// Rounds `count` (whole vectors) values to integers; returns what they are multiples of.
template <class D>
HWY_INLINE float to_integers(D d, const float* values, std::int64_t count, std::int32_t* integers) {
  constexpr std::int64_t kStep = kLanesOf<D>;
  auto most = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += kStep) {
    most = hn::Max(most, hn::Abs(hn::LoadU(d, values + i)));
  }
  const Multiples multiples(hn::GetLane(hn::MaxOfLanes(d, most)));
  for (std::int64_t i = 0; i < count; i += kStep) {
    hn::StoreU(multiples.of(d, hn::LoadU(d, values + i)), hn::RebindToSigned<D>(), integers + i);
  }
  return multiples.factor;
}

template <int kBits>
void pack_code_query(const float* q, const SideShape& shape, std::int64_t query,
                     const CodeQueries& to) {
  using Step = KeyStep<kBits>;
  alignas(64) std::int32_t integers[kMaxHeadDim];
  to.factors[query] = to_integers(TailTag(), q, shape.dim, integers);
  std::uint32_t* words = to.words + 2 * query;
  for (std::int64_t dim = 0; dim < shape.dim; dim += Step::kDims) {
    for (int quad = 0; quad < Step::kDims / 4; ++quad) {
      std::int32_t four[4];
      for (int i = 0; i < 4; ++i) four[i] = integers[dim + Step::dim(quad, i)];
      pack_quad(four, words, words + 1);
      words += 2 * kCodeQueries;
    }
  }
  const TailTag d;
  for (std::int64_t group = 0; group < shape.groups; ++group) {
    auto sum = hn::Zero(d);
    for (std::int64_t i = 0; i < shape.group; i += kTailLanes) {
      sum = hn::Add(sum, hn::LoadU(d, q + group * shape.group + i));
    }
    to.sums[group * kCodeQueries + query] = sum_lanes(d, sum);
  }
}

// Products of one group, dims [begin, end), of kLanes tokens of kTiles tiles with all queries:
// totals[tile * kQueries + query].
template <int kBits, int kQueries, int kTiles>
HWY_INLINE void multiply_key_group(const std::uint32_t* const* codes, std::int64_t begin,
                                   std::int64_t end, const std::uint32_t* words, AskAhead& ask,
                                   IntVec* totals) {
  using Step = KeyStep<kBits>;
  constexpr int kQuads = Step::kDims / 4;
  constexpr int kSums = kTiles * kQueries;
  IntVec first[kSums];
  IntVec second[kSums];
  HWY_UNROLL(8)
  for (int i = 0; i < kSums; ++i) first[i] = second[i] = hn::Zero(IntTag());
  const std::uint32_t* at = words + begin / kQuad * kCodeQueries * 2;
  std::int64_t word = begin / Step::kDims * Step::kWords * kTileTokens;
  for (std::int64_t dim = begin; dim < end; dim += Step::kDims) {
    IntVec quads[kTiles * kQuads];
    HWY_UNROLL(2)
    for (int tile = 0; tile < kTiles; ++tile) Step::load(codes[tile] + word, quads + tile * kQuads);
    word += Step::kWords * kTileTokens;
    ask();
    HWY_UNROLL(8)
    for (int quad = 0; quad < kQuads; ++quad) {
      HWY_UNROLL(8)
      for (int i = 0; i < kSums; ++i) {
        const QuadCodes own = split_codes(quads[i / kQueries * kQuads + quad]);
        add_quads(first[i], second[i], own, load_word(at + 2 * (i % kQueries)),
                  load_word(at + 2 * (i % kQueries) + 1));
      }
      at += kCodeQueries * 2;
    }
  }
  HWY_UNROLL(8)
  for (int i = 0; i < kSums; ++i) totals[i] = total_of(first[i], second[i]);
}

// Scores of kTiles neighbouring tiles from `first` on; marks tokens whose scales are beyond kLarge.
template <int kBits, int kQueries, int kTiles>
HWY_INLINE void score_code_tiles(const SpanTiles& span, std::int64_t first, const SideShape& shape,
                                 const CodeQueries& queries, AskAhead& ask, float* logits,
                                 SpanBits& large) {
  const FloatTag d;
  for (std::int64_t lane = 0; lane < kTileTokens; lane += kLanes) {
    const std::uint32_t* codes[kTiles];
    for (int tile = 0; tile < kTiles; ++tile) {
      const std::byte* plane = span.k[static_cast<std::size_t>(first + tile)][0];
      codes[tile] = reinterpret_cast<const std::uint32_t*>(plane) + lane;
    }
    FloatVec sums[kTiles * kQueries];
    HWY_UNROLL(8)
    for (int i = 0; i < kTiles * kQueries; ++i) sums[i] = hn::Zero(d);
    for (std::int64_t group = 0; group < shape.groups; ++group) {
      IntVec totals[kTiles * kQueries];
      multiply_key_group<kBits, kQueries, kTiles>(
          codes, group * shape.group, (group + 1) * shape.group, queries.words, ask, totals);
      HWY_UNROLL(2)
      for (int tile = 0; tile < kTiles; ++tile) {
        const ConstPlanePointers& planes = span.k[static_cast<std::size_t>(first + tile)];
        const std::int64_t at = group * kTileTokens + lane;
        const FloatVec scale = load_as_f32(d, shape.scales, planes[1], at);
        const FloatVec bias = load_as_f32(d, shape.scales, planes[2], at);
        mark_large(d, scale, (first + tile) * kTileTokens + lane, large);
        HWY_UNROLL(4)
        for (int query = 0; query < kQueries; ++query) {
          const int own = tile * kQueries + query;
          const FloatVec product =
              hn::Mul(hn::ConvertTo(d, totals[own]), hn::Set(d, queries.factors[query]));
          const FloatVec sum = hn::Set(d, queries.sums[group * kCodeQueries + query]);
          sums[own] = hn::MulAdd(product, scale, hn::MulAdd(bias, sum, sums[own]));
        }
      }
    }
    HWY_UNROLL(8)
    for (int i = 0; i < kTiles * kQueries; ++i) {
      const std::int64_t token = (first + i / kQueries) * kTileTokens + lane;
      hn::StoreU(sums[i], d, logits + i % kQueries * kSpanTokens + token);
    }
  }
}

template <int kBits>
void spread_keys(const SpanTiles& span, const SideShape& shape, TokenRange tiles, AskAhead& ask,
                 std::uint8_t* to) {
  using Step = KeyStep<kBits>;
  constexpr int kQuads = Step::kDims / 4;
  for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile, to += kTileTokens * shape.dim) {
    const std::byte* plane = span.k[static_cast<std::size_t>(tile)][0];
    for (std::int64_t lane = 0; lane < kTileTokens; lane += kLanes) {
      const auto* codes = reinterpret_cast<const std::uint32_t*>(plane) + lane;
      std::uint8_t* at = to + lane * kQuad;
      for (std::int64_t dim = 0; dim < shape.dim; dim += Step::kDims) {
        IntVec loaded[kQuads];
        ask();
        Step::load(codes, loaded);
        codes += Step::kWords * kTileTokens;
        for (int quad = 0; quad < kQuads; ++quad, at += kTileTokens * kQuad) {
          hn::StoreU(hn::BitCast(ByteTag(), loaded[quad]), ByteTag(), at);
        }
      }
    }
  }
}

inline void finish_scores(const SpanTiles& span, const SideShape& shape, std::int64_t group,
                          const CodeQueries* queries, std::int64_t count, TokenRange tiles,
                          const std::int32_t* totals, float* logits, SpanBits& large) {
  const FloatTag d;
  const IntTag di;
  for (std::int64_t tile = tiles.begin; tile < tiles.end; ++tile, totals += kByteTotals) {
    const ConstPlanePointers& planes = span.k[static_cast<std::size_t>(tile)];
    for (std::int64_t lane = 0; lane < kTileTokens; lane += kLanes) {
      const std::int64_t token = tile * kTileTokens + lane;
      const FloatVec scale = load_as_f32(d, shape.scales, planes[1], group * kTileTokens + lane);
      const FloatVec bias = load_as_f32(d, shape.scales, planes[2], group * kTileTokens + lane);
      mark_large(d, scale, token, large);
      const std::int32_t* first = totals + lane;
      const std::int32_t* second = first + kByteQueries * kTileTokens;
      for (std::int64_t query = 0; query < count; ++query) {
        const CodeQueries& own = queries[query / kCodeQueries];
        const std::int64_t at = query % kCodeQueries;
        const IntVec total = total_of(hn::LoadU(di, first + query * kTileTokens),
                                      hn::LoadU(di, second + query * kTileTokens));
        float* to = logits + query * kSpanTokens + token;
        const FloatVec before = group == 0 ? hn::Zero(d) : hn::LoadU(d, to);
        const FloatVec product = hn::Mul(hn::ConvertTo(d, total), hn::Set(d, own.factors[at]));
        const FloatVec sum = hn::Set(d, own.sums[group * kCodeQueries + at]);
        hn::StoreU(hn::MulAdd(product, scale, hn::MulAdd(bias, sum, before)), d, to);
      }
    }
  }
}

template <int kBits, int kQueries>
HWY_INLINE void score_code_span(const SpanTiles& span, const SideShape& shape,
                                const CodeQueries& queries, AskAhead& ask, float* logits,
                                SpanBits& large) {
  constexpr std::int64_t kTogether = kLanes == 16 ? 2 : 1;
  ask.spread((span.end_tile - span.first_tile) * kTileVectors / kTogether *
             (shape.dim / KeyStep<kBits>::kDims));
  std::int64_t tile = span.first_tile;
  if constexpr (kTogether == 2) {  // two tiles hide the latency of the sums, and fit 32 registers
    for (; tile + 2 <= span.end_tile; tile += 2) {
      score_code_tiles<kBits, kQueries, 2>(span, tile, shape, queries, ask, logits, large);
    }
  }
  for (; tile < span.end_tile; ++tile) {
    score_code_tiles<kBits, kQueries, 1>(span, tile, shape, queries, ask, logits, large);
  }
}

template <int kBits>
void score_codes(const SpanTiles& span, const SideShape& shape, const CodeQueries& queries,
                 std::int64_t count, AskAhead& ask, float* logits, SpanBits& large) {
  switch (count) {
    case 1: return score_code_span<kBits, 1>(span, shape, queries, ask, logits, large);
    case 2: return score_code_span<kBits, 2>(span, shape, queries, ask, logits, large);
    case 3: return score_code_span<kBits, 3>(span, shape, queries, ask, logits, large);
    default: return score_code_span<kBits, 4>(span, shape, queries, ask, logits, large);
  }
}
