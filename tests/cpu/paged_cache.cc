#include "cpu/paged_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "codec/arrangement.h"
#include "core/plan_mask.h"
#include "core/share_prefixes.h"
#include "cpu/constants.h"

namespace pagekv::testing {

namespace {

CacheLayout make_layout(const CacheShape& shape) {
  const LayerSpec tested{.kv_heads = shape.kv_heads,
                         .key_dim = shape.key_dim,
                         .value_dim = shape.value_dim,
                         .format = shape.format};
  LayerSpec other = tested;  // so that offsets and strides are not those of a lone layer
  other.kv_heads = 1;
  auto layout = CacheLayout::make({.layers = {other, tested},
                                   .page_tokens = shape.page_tokens,
                                   .order = shape.order,
                                   .arrangement = shape.arrangement});
  EXPECT_TRUE(layout.has_value()) << layout.error().message();
  return *std::move(layout);
}

constexpr int kTestedLayer = 1;

LayerAddress address_of(const CacheLayout& layout, const CacheShape& shape, std::byte* base,
                        std::int64_t capacity_pages) {
  const LayerLayout& layer = layout.layer(kTestedLayer);
  const LayerStride stride = layout.stride(kTestedLayer, capacity_pages);
  return {.base = base + stride.offset,
          .page_stride = stride.page_stride,
          .page_tokens = shape.page_tokens,
          .arrangement = shape.arrangement,
          .kv_heads = shape.kv_heads,
          .key_dim = shape.key_dim,
          .value_dim = shape.value_dim,
          .format = layer.spec.format,
          .k = layer.k,
          .v = layer.v};
}

}  // namespace

Format format_of(const std::string& text) {
  const auto format = Format::parse(text);
  EXPECT_TRUE(format.has_value()) << text;
  return *format;
}

Device make_device(const std::string& target, int threads) {
  auto device = make_cpu_device({.threads = threads, .target = target});
  EXPECT_TRUE(device.has_value());
  return *std::move(device);
}

PagedCache::PagedCache(Device device, const CacheShape& shape,
                       const std::vector<std::int64_t>& lengths, std::uint64_t seed)
    : device_(std::move(device)), shape_(shape), layout_(make_layout(shape)) {
  std::int64_t pages = 1;  // one that no table names
  for (const std::int64_t length : lengths) pages += layout_.pages_for(0, length);
  const std::int64_t bytes = pages * layout_.group(0).page_bytes;
  arena_ = *backend().reserve_arena(bytes);
  EXPECT_TRUE(arena_->commit(0, bytes).has_value());
  std::memset(arena_->base(), 0xff, static_cast<std::size_t>(bytes));  // NaN in every type
  address_ = address_of(layout_, shape, arena_->base(), pages);

  std::vector<PageId> order;
  for (std::int64_t page = 0; page < pages; ++page) order.push_back(static_cast<PageId>(page));
  Random random(seed);
  std::shuffle(order.begin(), order.end(), random);
  for (const std::int64_t length : lengths) {
    const auto count = static_cast<std::ptrdiff_t>(layout_.pages_for(0, length));
    tables_.emplace_back(order.end() - count, order.end());
    order.erase(order.end() - count, order.end());
  }
}

void PagedCache::share(std::size_t from, std::size_t to, std::int64_t tokens) {
  std::copy_n(tables_[from].begin(), tokens / shape_.page_tokens, tables_[to].begin());
}

std::int64_t PagedCache::write(std::size_t sequence, std::int64_t position, const Tensor& k,
                               const Tensor& v) {
  internal::WriteSpan span{.pages = pages(sequence), .position = position, .tokens = k.rows()};
  backend().encode(address_, {&span, 1}, k.view(), v.view(), {});
  return span.bad_token;
}

void PagedCache::gather(std::size_t sequence, std::int64_t begin, std::int64_t end, Tensor& k,
                        Tensor& v) const {
  backend().gather(address_, {.pages = pages(sequence), .begin = begin, .end = end},
                   k.mutable_view(), v.mutable_view(), {});
}

std::vector<std::byte> PagedCache::page_bytes(PageId page) const {
  const std::byte* base = address_.base + internal::index(page) * address_.page_stride;
  std::vector<std::byte> bytes;
  for (const PlaneLayouts& planes : {address_.k, address_.v}) {
    for (const PlaneLayout& plane : planes) {
      const std::byte* from = base + plane.offset;
      bytes.insert(bytes.end(), from, from + shape_.kv_heads * plane.head_stride);
    }
  }
  return bytes;
}

EncodedVector PagedCache::stored(std::size_t sequence, std::int64_t position, std::int64_t kv_head,
                                 bool keys) const {
  const PageId page = pages(sequence)[position / shape_.page_tokens];
  const std::byte* base = address_.base + internal::index(page) * address_.page_stride;
  EncodedVector found;
  for (std::size_t i = 0; i < found.planes.size(); ++i) {
    const PlaneLayout& plane = keys ? address_.k[i] : address_.v[i];
    const internal::PlaneShape plane_shape =
        keys ? internal::key_shape(plane, shape_.arrangement) : internal::value_shape(plane);
    const std::byte* head = base + plane.offset + kv_head * plane.head_stride;
    for (std::int64_t byte = 0; byte < plane.row_bytes; ++byte) {
      found.planes[i].push_back(
          head[internal::byte_offset(plane_shape, position % shape_.page_tokens, byte)]);
    }
  }
  return found;
}

float scale_of(const CacheShape& shape, const AttendSpec& spec) {
  return spec.scale != 0.0f ? spec.scale : 1.0f / std::sqrt(static_cast<float>(shape.key_dim));
}

PlanState plan_of(const PagedCache& cache, const AttendRequest& request) {
  PlanState plan;
  plan.spec = request.spec;
  plan.window_tokens = std::max<std::int64_t>(request.spec.window_tokens, 0);
  for (const Query& query : request.queries) {
    internal::PlanSequence sequence{.pages = cache.pages(query.sequence),
                                    .length = query.length,
                                    .rows = query.rows,
                                    .first_row = plan.total_rows};
    const QueryRows rows{.view = {nullptr, query.length},
                         .rows = query.rows,
                         .spans = query.spans,
                         .matrix = {query.matrix.data(), query.length}};
    if (request.spec.mask == Mask::block) sequence.block_tokens = query.rows;
    add_mask(plan, sequence, rows);
    plan.sequences.push_back(sequence);
    plan.total_rows += query.rows;
  }
  // A split is a matter of threads and heads: one thread never splits, very many always do.
  int threads = cache.backend().executor().threads();
  if (request.cut == Cut::never_split) threads = 1;
  if (request.cut == Cut::always_split) threads = 1 << 20;
  share_prefixes(plan, cache.backend().attend_cut(), cache.shape().page_tokens);
  cut_work(plan, cache.backend().attend_cut(), threads, cache.shape().kv_heads);
  const std::int64_t floats = cache.backend().workspace_floats(cache.layout(), plan);
  plan.workspace.assign(static_cast<std::size_t>(floats), std::numeric_limits<float>::quiet_NaN());
  return plan;
}

namespace {

template <typename T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace

bool AttendResult::operator==(const AttendResult& other) const {
  return same_bits(out, other.out) && same_bits(lse, other.lse);
}

AttendResult attend(const PagedCache& cache, const AttendRequest& request) {
  PlanState plan = plan_of(cache, request);
  const std::int64_t heads = request.spec.query_heads;
  const std::int64_t value_dim = cache.shape().value_dim;
  Tensor out(request.out_type, plan.total_rows, heads, value_dim);
  out.fill(std::numeric_limits<float>::quiet_NaN());
  AttendResult result;
  result.lse.assign(static_cast<std::size_t>(plan.total_rows * heads),
                    std::numeric_limits<float>::quiet_NaN());
  const AttendArgs args{.q = request.q->view(request.first_row),
                        .out = out.mutable_view(),
                        .lse = result.lse.data(),
                        .sinks = request.sinks,
                        .block_k = request.block_k,
                        .block_v = request.block_v};
  cache.backend().attend(cache.address(), plan, args, scale_of(cache.shape(), request.spec), {});
  for (std::int64_t row = 0; row < plan.total_rows; ++row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      for (std::int64_t dim = 0; dim < value_dim; ++dim) {
        result.out.push_back(out.at(row, head, dim));
      }
    }
  }
  return result;
}

}  // namespace pagekv::testing
