// Hand-made pages and plans: the backend without store and steps.
//
// Sequences get pages in random physical order. All memory starts as NaN, and so does everything
// past a sequence's length, so a read of a row that nobody stored shows in the result.
#pragma once

#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/plan.h"
#include "pagekv/device.h"
#include "support/codecs.h"
#include "support/random_data.h"

namespace pagekv::testing {

using internal::LayerAddress;
using internal::PageId;
using internal::PlanState;

struct CacheShape {
  int kv_heads = 1;
  int key_dim = 64;
  int value_dim = 64;
  Format format{};  // bf16
  std::int64_t page_tokens = 64;
  TileArrangement arrangement = TileArrangement::key_tile16;
  PageOrder order = PageOrder::page_major;
};

// REQUIRES: a text that Format::parse() reads.
Format format_of(const std::string& text);

Device make_device(const std::string& target = {}, int threads = 1);

class PagedCache {
 public:
  // Room for sequences of the given lengths. The tested layer is the second of two.
  PagedCache(Device device, const CacheShape& shape, const std::vector<std::int64_t>& lengths,
             std::uint64_t seed);

  internal::Backend& backend() const { return device_.backend(); }
  const CacheShape& shape() const { return shape_; }
  const CacheLayout& layout() const { return layout_; }
  const LayerAddress& address() const { return address_; }
  const PageId* pages(std::size_t sequence) const { return tables_[sequence].data(); }

  // From now on `to` begins with the pages of `from` that hold its first `tokens` tokens, whole
  // pages.
  void share(std::size_t from, std::size_t to, std::int64_t tokens);
  // Stores rows [0, k.rows()) at `position`. Returns WriteSpan::bad_token.
  std::int64_t write(std::size_t sequence, std::int64_t position, const Tensor& k, const Tensor& v);
  void gather(std::size_t sequence, std::int64_t begin, std::int64_t end, Tensor& k,
              Tensor& v) const;
  // Every byte of the layer's planes of one page, those of keys first.
  std::vector<std::byte> page_bytes(PageId page) const;
  // Where a vector is that is stored at `position`: the bytes of each of its planes, in their
  // order within a row.
  EncodedVector stored(std::size_t sequence, std::int64_t position, std::int64_t kv_head,
                       bool keys) const;
  // The settled codec of a side, and its dim.
  const VectorCodec& codec(bool keys) const { return keys ? address_.format.k : address_.format.v; }
  std::int64_t dim(bool keys) const { return keys ? shape_.key_dim : shape_.value_dim; }

 private:
  Device device_;
  CacheShape shape_;
  CacheLayout layout_;
  std::unique_ptr<internal::Arena> arena_;
  LayerAddress address_;
  std::vector<std::vector<PageId>> tables_;
};

struct Query {
  std::size_t sequence = 0;
  std::int64_t length = 0;
  std::int64_t rows = 1;
  std::vector<BidirectionalSpan> spans = {};
  std::vector<std::uint8_t> matrix = {};  // [row][length], of Mask::matrix
};

// How the work is cut: by the backend's own rules, or against them.
enum class Cut { as_planned, never_split, always_split };

struct AttendRequest {
  std::vector<Query> queries;
  AttendSpec spec;  // window_tokens already resolved; scale 0 means 1 / sqrt(key_dim)
  const Tensor* q = nullptr;
  std::int64_t first_row = 0;  // of q
  DType out_type = DType::f32;
  const float* sinks = nullptr;
  Cut cut = Cut::as_planned;
  Rows block_k = {};
  Rows block_v = {};
};

struct AttendResult {
  std::vector<float> out;                            // [row, query_head, value_dim]
  std::vector<float> lse;                            // [row, query_head]
  bool operator==(const AttendResult& other) const;  // bit for bit
};

AttendResult attend(const PagedCache& cache, const AttendRequest& request);
// What attend() runs.
PlanState plan_of(const PagedCache& cache, const AttendRequest& request);

float scale_of(const CacheShape& shape, const AttendSpec& spec);

}  // namespace pagekv::testing
