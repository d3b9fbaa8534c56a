// BlockKeys: the scores of a block's queries with the keys of a span, on the way that suits the
// codec and the number of queries. All ways of one `Arithmetic` and codec give the same bits.
//
//   matrix   bf16 keys, `fast`, where there is a matrix unit (cpu/matrix_kernels.h): with it,
//   few      or for few queries in its arithmetic
//   codes    affine keys, `fast`: the codes as they lie in the pages (cpu/code_weights.h)
//   bytes    the same by the matrix unit, for many queries
//   narrow   few queries: dense elements as they lie in the pages, others widened a tile at a time
//   wide     many queries: the span is widened to f32 once
#pragma once

#include <array>
#include <cstdint>

#include "cpu/block_queries.h"
#include "cpu/span_reader.h"

namespace pagekv::inline v0::internal {

class BlockKeys {
 public:
  BlockKeys(const BlockQueries& queries, const SpanReader& reader, AttendScratch& scratch);

  // Brings the queries into the form that score() wants.
  void pack();
  // scratch.logits[query][token] for all tokens of the span's tiles.
  void score(std::int64_t start, SpanTiles& span);

 private:
  enum class Way : std::uint8_t { matrix, few, codes, bytes, narrow, wide };
  static Way way_of(const BlockQueries& queries, std::size_t codec);

  void split_query(std::int64_t query, std::uint16_t* parts, std::int64_t stride) const;
  void pack_matrix();
  void pack_few();
  void pack_floats();
  void pack_codes();
  CodeQueries code_queries(std::int64_t first) const;

  void score_matrix(std::int64_t start, SpanTiles& span, AskAhead& ask);
  void score_few(std::int64_t start, SpanTiles& span, AskAhead& ask);
  void score_codes(std::int64_t start, SpanTiles& span, AskAhead& ask);
  void pack_bytes();
  void score_bytes(std::int64_t start, SpanTiles& span, AskAhead& ask);
  // Of each of a few tiles, its codes as quads of bytes.
  using TileQuads = std::array<const std::uint8_t*, kByteTiles>;
  std::int64_t step_bytes() const;
  void spread_tiles(const SpanTiles& span, TokenRange tiles, AskAhead& ask, TileQuads& quads);
  void score_tiles(const SpanTiles& span, TokenRange tiles, const TileQuads& quads,
                   std::int64_t first, std::int64_t count, AskAhead& ask, SpanBits& large);
  void score_large(std::int64_t token, const SpanTiles& span);
  void score_narrow(std::int64_t start, SpanTiles& span, AskAhead& ask);
  void score_wide(std::int64_t start, const SpanTiles& span);
  void widen_span(std::int64_t start, const SpanTiles& span);
  void widen_tile(std::int64_t start, std::int64_t tile, const SpanTiles& span, float* to);

  const BlockQueries& queries_;
  const AttendCall& call_;
  const KernelTable& kernels_;
  const SpanReader& reader_;
  AttendScratch& scratch_;
  const std::int64_t dim_;
  const std::size_t codec_;
  const Way way_;
  const std::int64_t parts_;  // bf16 vectors of a query, for the matrix unit
};

}  // namespace pagekv::inline v0::internal
