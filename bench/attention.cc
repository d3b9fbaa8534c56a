#include "bench/attention.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <span>

#include "pagekv/pagekv.h"

namespace pagekv::bench {

namespace {

constexpr std::int64_t kAppendTokens = 1024;
constexpr std::int64_t kLayerShift = 8;  // rows that layers begin apart, so that they differ

std::vector<float> normals(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<std::byte> normal_queries(std::int64_t count, DType type) {
  const std::vector<float> values = normals(count, 2);
  std::vector<std::byte> bytes(values.size() * static_cast<std::size_t>(size_bytes(type)));
  if (type == DType::f32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half = bf16_from_f32(values[i]);
    std::memcpy(bytes.data() + 2 * i, &half, sizeof half);
  }
  return bytes;
}

// Tokens that lie in pages, over all sequences.
std::int64_t stored_tokens(const AttentionCase& shape) {
  return shape.shared + (shape.context - shape.shared) * shape.batch;
}

// Pages for them, and for the copy of a tail page that each sequence may need.
std::int64_t stored_pages(const AttentionCase& shape, const CacheLayout& layout) {
  return layout.pages_for(0, shape.shared) +
         (layout.pages_for(0, shape.context - shape.shared) + (shape.shared > 0 ? 1 : 0)) *
             shape.batch;
}

Result<CacheLayout> make_layout(const AttentionCase& shape, const Device& device, int layers) {
  const Result<Format> format = Format::parse(shape.kv);
  if (!format) return tl::unexpected<Error>(format.error());
  LayoutSpec spec{.page_tokens = shape.page_tokens,
                  .order = shape.order,
                  .arrangement = device.suggested_arrangement()};
  spec.layers.resize(static_cast<std::size_t>(layers), {.kv_heads = shape.kv_heads,
                                                        .key_dim = shape.dim,
                                                        .value_dim = shape.dim,
                                                        .format = *format});
  return CacheLayout::make(std::move(spec));
}

}  // namespace

Result<Attention> Attention::make(const AttentionCase& shape, std::int64_t set_bytes,
                                  const std::string& target) {
  const Result<Device> device = make_cpu_device({.threads = shape.threads, .target = target});
  if (!device) return tl::unexpected<Error>(device.error());
  const Result<CacheLayout> one = make_layout(shape, *device, 1);
  if (!one) return tl::unexpected<Error>(one.error());
  const std::int64_t layer_bytes = one->bytes_per_token() * stored_tokens(shape);
  const std::int64_t layers =
      std::max<std::int64_t>(1, (set_bytes + layer_bytes - 1) / layer_bytes);
  Result<CacheLayout> layout = make_layout(shape, *device, static_cast<int>(layers));
  if (!layout) return tl::unexpected<Error>(layout.error());
  const std::int64_t cap = stored_pages(shape, *layout) * layout->group(0).page_bytes;
  Result<Store> store = Store::make(std::move(*layout), *device,
                                    {.cap_bytes = cap, .max_sequence_tokens = shape.context});
  if (!store) return tl::unexpected<Error>(store.error());
  Attention made(shape, std::move(*store));
  if (Status status = made.fill(); !status) return tl::unexpected<Error>(status.error());
  return made;
}

Status Attention::fill() {
  const std::int64_t row = shape_.kv_heads * shape_.dim;
  rows_ = normals((kAppendTokens + kLayerShift) * row, 1);
  const std::int64_t query_rows = shape_.batch * shape_.queries * shape_.query_heads;
  q_ = normal_queries(query_rows * shape_.dim, shape_.query_type);
  out_.resize(static_cast<std::size_t>(query_rows * shape_.dim));
  if (Status status = shuffle_pages(); !status) return status;
  for (std::int64_t i = 0; i < shape_.batch; ++i) {
    const bool forks = i > 0 && shape_.shared > 0;
    Result<Sequence> sequence = forks ? sequences_.front().fork() : store_.create_sequence();
    if (!sequence) return tl::unexpected<Error>(sequence.error());
    sequences_.push_back(std::move(*sequence));
    if (i > 0) continue;
    if (Status status = grow(sequences_.front(), shape_.shared); !status) return status;
  }
  for (Sequence& sequence : sequences_) {
    if (Status status = grow(sequence, shape_.context); !status) return status;
  }
  Result<Plan> plan = make_plan(ReadArm::direct);
  if (!plan) return tl::unexpected<Error>(plan.error());
  plan_ = std::move(*plan);
  return {};
}

// Appends up to `tokens` tokens in all.
Status Attention::grow(Sequence& sequence, std::int64_t tokens) {
  while (sequence.length() < tokens) {
    const Append append_rows{&sequence, std::min(kAppendTokens, tokens - sequence.length())};
    if (Status status = append({&append_rows, 1}); !status) return status;
  }
  return {};
}

// Leaves the free list in random order: one sequence a page, then all of them dropped.
Status Attention::shuffle_pages() {
  const std::int64_t pages = stored_pages(shape_, store_.layout());
  std::vector<Sequence> holders;
  for (std::int64_t page = 0; page < pages; ++page) {
    Result<Sequence> holder = store_.create_sequence();
    if (!holder) return tl::unexpected<Error>(holder.error());
    holders.push_back(std::move(*holder));
  }
  std::vector<Append> appends;
  for (std::size_t i = 0; i < holders.size(); ++i) {
    appends.push_back({&holders[i], 1});
    if (appends.size() < kAppendTokens && i + 1 < holders.size()) continue;
    if (Status status = append(appends); !status) return status;
    appends.clear();
  }
  std::shuffle(holders.begin(), holders.end(), std::mt19937(3));
  return {};
}

// At most kAppendTokens rows in all.
Status Attention::append(std::span<const Append> appends) {
  Result<Step> step = store_.reserve(appends);
  if (!step) return tl::unexpected<Error>(step.error());
  for (int layer = 0; layer < layers(); ++layer) {
    const std::int64_t shift = layer % kLayerShift * shape_.kv_heads * shape_.dim;
    const Rows rows = Rows::packed(rows_.data() + shift, DType::f32, shape_.kv_heads, shape_.dim);
    if (Status status = step->write(layer, rows, rows); !status) return status;
  }
  const auto committed = step->commit();
  return committed ? Status{} : tl::unexpected<Error>(committed.error());
}

Result<Plan> Attention::make_plan(ReadArm arm) {
  std::vector<QueryRows> rows;
  rows.reserve(sequences_.size());
  for (Sequence& sequence : sequences_) {
    rows.push_back({.view = sequence.ref(), .rows = shape_.queries});
  }
  return store_.plan(rows, {.query_heads = shape_.query_heads,
                            .arithmetic = shape_.arithmetic,
                            .arm = arm,
                            .cascade = shape_.cascade});
}

Status Attention::attend(Plan& plan, int layer, std::vector<float>& out) {
  return plan.run(
      layer, {.q = Rows::packed(q_.data(), shape_.query_type, shape_.query_heads, shape_.dim),
              .out = MutableRows::packed(out.data(), DType::f32, shape_.query_heads, shape_.dim)});
}

Result<double> Attention::distance() {
  std::vector<float> control(out_.size());
  if (Status status = attend(plan_, 0, out_); !status) return tl::unexpected<Error>(status.error());
  Result<Plan> gathered = make_plan(ReadArm::gathered);
  if (!gathered) return tl::unexpected<Error>(gathered.error());
  if (Status status = attend(*gathered, 0, control); !status) {
    return tl::unexpected<Error>(status.error());
  }
  double error = 0;
  double norm = 0;
  for (std::size_t at = 0; at < control.size(); ++at) {
    const double want = control[at];
    error += (out_[at] - want) * (out_[at] - want);
    norm += want * want;
  }
  return std::sqrt(error / norm);
}

double Attention::tolerance() const {
  return shape_.arithmetic == Arithmetic::fast ? 3e-3 : 1e-5;
}

void Attention::run(int layer) {
  if (!attend(plan_, layer % layers(), out_)) std::abort();  // it has run before: a bug
}

double Attention::bits() const {
  const Format& format = store_.layout().layer(0).spec.format;
  return format.bits_per_element(shape_.dim, shape_.dim);
}

std::int64_t Attention::piece_bytes() const {
  return store_.layout().layer(0).k[0].row_bytes * shape_.page_tokens;
}

double Attention::bytes() const {
  return static_cast<double>(store_.layout().bytes_per_token() / layers() * shape_.context *
                             shape_.batch);
}

double Attention::head_tokens() const {
  return static_cast<double>(shape_.kv_heads * shape_.context * shape_.batch);
}

}  // namespace pagekv::bench
