#include "pagekv/layout.h"

#include <algorithm>

#include "core/windows.h"

namespace pagekv::inline v0 {

struct CacheLayout::Data {
  LayoutSpec spec;
  std::vector<LayerLayout> layers;
  std::vector<GroupLayout> groups;
};

namespace {

constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxHeads = 1024;
constexpr std::int64_t kMaxPageTokens = 1 << 16;
constexpr std::int64_t kMaxWindowTokens = std::int64_t{1} << 32;
constexpr std::int64_t kAlignBytes = 64;  // a cache line, and the widest vector

Status check_dim(int layer, const char* text, int dim) {
  if (dim >= 8 && dim <= kMaxHeadDim && dim % 8 == 0) return {};
  return fail(ErrorCode::invalid_argument, text, {layer, dim, kMaxHeadDim});
}

Status check_donor(const std::vector<LayerSpec>& layers, int index) {
  const LayerSpec& layer = layers[static_cast<std::size_t>(index)];
  if (layer.donor == -1) return {};
  if (layer.donor < 0 || layer.donor >= index) {
    return fail(ErrorCode::invalid_argument,
                "layer {0} reads donor layer {1}; a donor is an earlier layer, or -1 for none",
                {index, layer.donor});
  }
  const LayerSpec& donor = layers[static_cast<std::size_t>(layer.donor)];
  const bool equal = layer.kv_heads == donor.kv_heads && layer.key_dim == donor.key_dim &&
                     layer.value_dim == donor.value_dim && layer.format == donor.format &&
                     layer.window_tokens == donor.window_tokens;
  if (equal) return {};
  return fail(ErrorCode::invalid_argument,
              "layer {0} reads layer {1}, so heads, dims, format and window must be the same",
              {index, layer.donor});
}

Status check_layer(const std::vector<LayerSpec>& layers, int index) {
  const LayerSpec& layer = layers[static_cast<std::size_t>(index)];
  if (layer.kv_heads < 1 || layer.kv_heads > kMaxHeads) {
    return fail(ErrorCode::invalid_argument, "layer {0} has {1} KV heads; legal are 1 to {2}",
                {index, layer.kv_heads, kMaxHeads});
  }
  if (auto ok = check_dim(index, "layer {0} has key dim {1}; legal are multiples of 8 up to {2}",
                          layer.key_dim);
      !ok) {
    return ok;
  }
  if (auto ok = check_dim(index, "layer {0} has value dim {1}; legal are multiples of 8 up to {2}",
                          layer.value_dim);
      !ok) {
    return ok;
  }
  if (layer.window_tokens < 0 || layer.window_tokens > kMaxWindowTokens) {
    return fail(ErrorCode::invalid_argument,
                "layer {0} has a window of {1} tokens; legal are 0 (none) to {2}",
                {index, layer.window_tokens, kMaxWindowTokens});
  }
  return {};
}

// Settles the codec of one side of a layer.
Status resolve_codec(VectorCodec& codec, int layer, int dim, const char* side) {
  auto settled = codec.resolve(dim);
  if (!settled) {
    return fail(ErrorCode::invalid_argument, "layer {0}, {s}", {layer},
                side + settled.error().message());
  }
  codec = *settled;
  return {};
}

Status resolve_formats(std::vector<LayerSpec>& layers) {
  for (int index = 0; index < static_cast<int>(layers.size()); ++index) {
    LayerSpec& layer = layers[static_cast<std::size_t>(index)];
    auto ok = resolve_codec(layer.format.k, index, layer.key_dim, "keys: ");
    if (!ok) return ok;
    ok = resolve_codec(layer.format.v, index, layer.value_dim, "values: ");
    if (!ok) return ok;
  }
  return {};
}

Status check_spec(LayoutSpec& spec) {
  const auto layers = static_cast<std::int64_t>(spec.layers.size());
  if (layers < 1 || layers > kMaxLayers) {
    return fail(ErrorCode::invalid_argument, "a layout has 1 to {1} layers, not {0}",
                {layers, kMaxLayers});
  }
  if (spec.page_tokens < kTileTokens || spec.page_tokens > kMaxPageTokens ||
      spec.page_tokens % kTileTokens != 0) {
    return fail(ErrorCode::invalid_argument,
                "a page of {0} tokens; legal are multiples of {1} from {1} to {2}",
                {spec.page_tokens, kTileTokens, kMaxPageTokens});
  }
  if (spec.window_slack_tokens < 0 || spec.window_slack_tokens > kMaxWindowTokens) {
    return fail(ErrorCode::invalid_argument, "a window slack of {0} tokens; legal are 0 to {1}",
                {spec.window_slack_tokens, kMaxWindowTokens});
  }
  for (int index = 0; index < layers; ++index) {
    if (auto ok = check_layer(spec.layers, index); !ok) return ok;
  }
  if (auto ok = resolve_formats(spec.layers); !ok) return ok;
  for (int index = 0; index < layers; ++index) {
    if (auto ok = check_donor(spec.layers, index); !ok) return ok;
  }
  return {};
}

// Lays the planes of all heads out from `offset`; returns the offset behind them.
std::int64_t place_planes(PlaneLayouts& layouts, const VectorCodec& codec, int heads, int dim,
                          std::int64_t page_tokens, std::int64_t offset) {
  std::size_t count = 0;
  for (const Plane& plane : codec.planes(dim)) {
    PlaneLayout& layout = layouts[count++];
    layout.offset = offset;
    layout.row_bytes = plane.bytes_per_vector;
    layout.unit_bytes = plane.unit_bytes;
    layout.head_stride = page_tokens * plane.bytes_per_vector;
    const std::int64_t end = offset + heads * layout.head_stride;
    offset = (end + kAlignBytes - 1) / kAlignBytes * kAlignBytes;
  }
  return offset;
}

int group_of(std::vector<GroupLayout>& groups, std::int64_t window_tokens) {
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const GroupLayout& group) {
    return group.window_tokens == window_tokens;
  });
  if (found != groups.end()) return static_cast<int>(found - groups.begin());
  groups.push_back({.window_tokens = window_tokens, .layers = {}, .page_bytes = 0});
  return static_cast<int>(groups.size()) - 1;
}

}  // namespace

Result<CacheLayout> CacheLayout::make(LayoutSpec spec) {
  if (auto ok = check_spec(spec); !ok) return tl::unexpected(ok.error());
  auto data = std::make_shared<Data>();
  for (int index = 0; index < static_cast<int>(spec.layers.size()); ++index) {
    const LayerSpec& layer_spec = spec.layers[static_cast<std::size_t>(index)];
    if (layer_spec.donor >= 0) {
      LayerLayout reader = data->layers[static_cast<std::size_t>(layer_spec.donor)];
      reader.spec = layer_spec;
      data->layers.push_back(reader);
      continue;
    }
    LayerLayout layer;
    layer.spec = layer_spec;
    layer.storage_layer = index;
    layer.group = group_of(data->groups, layer_spec.window_tokens);
    const std::int64_t behind_k = place_planes(layer.k, layer_spec.format.k, layer_spec.kv_heads,
                                               layer_spec.key_dim, spec.page_tokens, 0);
    layer.bytes = place_planes(layer.v, layer_spec.format.v, layer_spec.kv_heads,
                               layer_spec.value_dim, spec.page_tokens, behind_k);
    GroupLayout& group = data->groups[static_cast<std::size_t>(layer.group)];
    layer.page_offset = group.page_bytes;
    group.page_bytes += layer.bytes;
    group.layers.push_back(index);
    data->layers.push_back(layer);
  }
  data->spec = std::move(spec);
  return CacheLayout(std::move(data));
}

std::int64_t CacheLayout::page_tokens() const {
  return data_->spec.page_tokens;
}
std::int64_t CacheLayout::window_slack_tokens() const {
  return data_->spec.window_slack_tokens;
}
PageOrder CacheLayout::order() const {
  return data_->spec.order;
}
TileArrangement CacheLayout::arrangement() const {
  return data_->spec.arrangement;
}
int CacheLayout::layer_count() const {
  return static_cast<int>(data_->layers.size());
}
int CacheLayout::group_count() const {
  return static_cast<int>(data_->groups.size());
}

const LayerLayout& CacheLayout::layer(int index) const {
  return data_->layers[static_cast<std::size_t>(index)];
}

const GroupLayout& CacheLayout::group(int index) const {
  return data_->groups[static_cast<std::size_t>(index)];
}

LayerStride CacheLayout::stride(int layer_index, std::int64_t capacity_pages) const {
  const LayerLayout& stored = layer(layer(layer_index).storage_layer);
  if (order() == PageOrder::layer_major) {
    return {.offset = stored.page_offset * capacity_pages, .page_stride = stored.bytes};
  }
  return {.offset = stored.page_offset, .page_stride = group(stored.group).page_bytes};
}

std::int64_t CacheLayout::bytes_per_token() const {
  std::int64_t bytes = 0;
  for (const LayerLayout& layer : data_->layers) {
    if (layer.spec.donor >= 0) continue;
    bytes += layer.spec.kv_heads * (layer.spec.format.k.bytes_per_vector(layer.spec.key_dim) +
                                    layer.spec.format.v.bytes_per_vector(layer.spec.value_dim));
  }
  return bytes;
}

bool CacheLayout::has_windows() const {
  for (int index = 0; index < group_count(); ++index) {
    if (group(index).window_tokens > 0) return true;
  }
  return false;
}

std::int64_t CacheLayout::first_kept_page(int group_index, std::int64_t tokens) const {
  const std::int64_t needed =
      internal::first_needed_token(group(group_index).window_tokens, tokens);
  return std::max<std::int64_t>(0, needed - window_slack_tokens()) / page_tokens();
}

std::int64_t CacheLayout::pages_for(int group_index, std::int64_t tokens) const {
  return (tokens + page_tokens() - 1) / page_tokens() - first_kept_page(group_index, tokens);
}

}  // namespace pagekv::inline v0
