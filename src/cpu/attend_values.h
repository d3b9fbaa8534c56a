// BlockValues: the values of a span, weighted by p of a block's queries, on the way that suits the
// codec and the number of queries. As in cpu/attend_keys.h.
#pragma once

#include <array>
#include <cstdint>

#include "cpu/block_queries.h"

namespace pagekv::inline v0::internal {

class BlockValues {
 public:
  BlockValues(const BlockQueries& queries, AttendScratch& scratch);

  // What turns logits into the p that add() takes.
  KernelTable::Softmax* softmax() const;
  // scratch.span_out[query][width()] from scratch.logits, which has p; of queries that see nothing
  // of the span it means nothing. In an order of dims of its own.
  void add(std::int64_t start, SpanTiles& span, AskAhead& ask);
  std::int64_t width() const { return width_; }
  // From that order to dims, value_dim of them.
  const float* in_order(const float* out);
  // The reverse; `dims` may be where `out` is, or before it.
  void from_order(const float* dims, float* out);

 private:
  enum class Way : std::uint8_t { matrix, few, codes, bytes, tables, narrow, wide };
  static Way way_of(const BlockQueries& queries, std::size_t codec);
  static std::int64_t width_of(Way way, std::int64_t dim);

  void add_matrix(std::int64_t start, const SpanTiles& span, AskAhead& ask);
  void add_few(const SpanTiles& span, AskAhead& ask);
  void add_codes(std::int64_t start, const SpanTiles& span, AskAhead& ask);
  void add_tables(std::int64_t start, const SpanTiles& span, AskAhead& ask);
  void add_table_panels(std::int64_t start, const SpanTiles& span);
  CodeRows code_rows() const;
  const ValueBytes* form_of(Way way) const;
  void prepare_codes(const SpanTiles& span, AskAhead& ask, CodeRows& rows, SpanBits& large) const;
  void spread_codes(const SpanTiles& span, std::int64_t low_bytes, std::int64_t parts,
                    AskAhead& ask, const CodeRows& rows) const;
  void add_bytes(std::int64_t start, const SpanTiles& span, AskAhead& ask);
  // The span's first byte of each vector.
  using ByteVectors = std::array<const std::uint8_t*, kMaxHeadDim / 16>;
  void multiply_bytes(const CodeWeights& weights, TokenRange steps, const ByteVectors& first) const;
  void finish_bytes(const CodeWeights& weights, std::int64_t count, float* out) const;
  void add_large(const SpanBits& tokens, const SpanTiles& span);
  void add_narrow(SpanTiles& span, AskAhead& ask);
  void add_wide(std::int64_t start, const SpanTiles& span);

  const BlockQueries& queries_;
  const AttendCall& call_;
  const KernelTable& kernels_;
  AttendScratch& scratch_;
  const std::int64_t dim_;
  const std::size_t codec_;
  const Way way_;
  const ValueBytes* const form_;
  const std::int64_t width_;
  bool moved_ = false;                               // whether dims are in an order of their own
  std::array<std::uint16_t, kMaxHeadDim> position_;  // of a dim, if so
  alignas(64) std::array<float, kMaxHeadDim> ordered_;
};

}  // namespace pagekv::inline v0::internal
