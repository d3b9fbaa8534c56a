#include "token_cache.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "support/codecs.h"

namespace pagekv::testing {

namespace {

// A small integer, exact in every dense format.
float element(std::uint32_t token, int layer, bool key, std::int64_t at) {
  std::uint64_t mixed = (std::uint64_t{token} << 20) ^ (static_cast<std::uint64_t>(layer) << 12) ^
                        (static_cast<std::uint64_t>(at) << 1) ^ (key ? 1u : 0u);
  mixed = (mixed ^ (mixed >> 31)) * 0x9e3779b97f4a7c15u;
  return static_cast<float>(static_cast<int>((mixed >> 40) & 0xffu) - 128);
}

std::int64_t row_elements(const LayerSpec& layer, bool keys) {
  return layer.kv_heads * (keys ? layer.key_dim : layer.value_dim);
}

}  // namespace

// Rows as the reference codec leaves them, made once each: histories look at them again and again.
class TokenCache::StoredRows {
 public:
  // Appends the row of `token`, all heads, to `out`.
  void append(const LayerSpec& spec, int layer, bool keys, std::uint32_t token,
              std::vector<float>& out) {
    const std::lock_guard lock(mutex_);
    std::vector<float>& row = rows_[{layer, keys}][token];
    if (row.empty()) row = make(spec, layer, keys, token);
    out.insert(out.end(), row.begin(), row.end());
  }

 private:
  static std::vector<float> make(const LayerSpec& spec, int layer, bool keys, std::uint32_t token) {
    const VectorCodec& codec = keys ? spec.format.k : spec.format.v;
    const std::int64_t dim = keys ? spec.key_dim : spec.value_dim;
    std::vector<float> row;
    for (std::int64_t head = 0; head < spec.kv_heads; ++head) {
      std::vector<float> vector;
      for (std::int64_t i = 0; i < dim; ++i) {
        vector.push_back(element(token, layer, keys, head * dim + i));
      }
      const std::vector<float> stored = through_codec(codec, vector);
      row.insert(row.end(), stored.begin(), stored.end());
    }
    return row;
  }

  std::mutex mutex_;
  std::map<std::pair<int, bool>, std::unordered_map<std::uint32_t, std::vector<float>>> rows_;
};

TokenCache::TokenCache(Device device, LayoutSpec spec, StoreOptions options)
    : store_(Store::make(*CacheLayout::make(std::move(spec)), std::move(device), options)),
      stored_rows_(std::make_unique<StoredRows>()) {}

TokenCache::~TokenCache() = default;

std::vector<float> TokenCache::held(const Tokens& tokens, int layer, bool keys) const {
  const LayerSpec& spec = layout().layer(layer).spec;
  const VectorCodec& codec = keys ? spec.format.k : spec.format.v;
  if (codec.kind() == CodecKind::dense && !codec.is_rotated()) return written(tokens, layer, keys);
  std::vector<float> out;
  for (const std::uint32_t token : tokens) {
    stored_rows_->append(spec, layout().layer(layer).storage_layer, keys, token, out);
  }
  return out;
}

std::vector<float> TokenCache::written(const Tokens& tokens, int layer, bool keys) const {
  const int storage = layout().layer(layer).storage_layer;
  const std::int64_t width = row_elements(layout().layer(layer).spec, keys);
  std::vector<float> out;
  out.reserve(tokens.size() * static_cast<std::size_t>(width));
  for (const std::uint32_t token : tokens) {
    for (std::int64_t at = 0; at < width; ++at) out.push_back(element(token, storage, keys, at));
  }
  return out;
}

void TokenCache::write(Step& step, const Tokens& tokens, std::int64_t bad_row) {
  for (int layer = 0; layer < layout().layer_count(); ++layer) {
    if (layout().layer(layer).storage_layer != layer) continue;
    const LayerSpec& spec = layout().layer(layer).spec;
    const auto k = written(tokens, layer, true);
    auto v = written(tokens, layer, false);
    if (bad_row >= 0) {
      v[static_cast<std::size_t>(bad_row * row_elements(spec, false))] =
          std::numeric_limits<float>::quiet_NaN();
    }
    const Status written =
        step.write(layer, Rows::packed(k.data(), DType::f32, spec.kv_heads, spec.key_dim),
                   Rows::packed(v.data(), DType::f32, spec.kv_heads, spec.value_dim));
    ASSERT_TRUE(written) << written.error().message();
  }
}

Status TokenCache::append(Sequence& sequence, const Tokens& tokens) {
  const Append append{&sequence, static_cast<std::int64_t>(tokens.size())};
  auto step = store().reserve({&append, 1});
  if (!step) return tl::unexpected(step.error());
  write(*step, tokens);
  auto result = step->commit();
  if (!result) return tl::unexpected(result.error());
  return {};
}

::testing::AssertionResult TokenCache::holds(ViewRef view, const Tokens& tokens) const {
  if (view.length() != static_cast<std::int64_t>(tokens.size())) {
    return ::testing::AssertionFailure()
           << "length " << view.length() << " instead of " << tokens.size();
  }
  for (int layer = 0; layer < layout().layer_count(); ++layer) {
    const LayerSpec& spec = layout().layer(layer).spec;
    const auto size = tokens.size();
    std::vector<float> k(size * static_cast<std::size_t>(row_elements(spec, true)), -999.0f);
    std::vector<float> v(size * static_cast<std::size_t>(row_elements(spec, false)), -999.0f);
    const Status gathered = store_->gather(
        view, layer, MutableRows::packed(k.data(), DType::f32, spec.kv_heads, spec.key_dim),
        MutableRows::packed(v.data(), DType::f32, spec.kv_heads, spec.value_dim));
    if (!gathered) return ::testing::AssertionFailure() << gathered.error().message();
    // Rows from first() on come first in the output; what a window let go of is not written.
    const std::int64_t first = store_->first(view, layout().layer(layer).group);
    const Tokens kept(tokens.begin() + first, tokens.end());
    for (const bool keys : {true, false}) {
      const auto expected = held(kept, layer, keys);
      const auto& actual = keys ? k : v;
      for (std::size_t at = 0; at < expected.size(); ++at) {
        if (actual[at] == expected[at]) continue;
        return ::testing::AssertionFailure()
               << (keys ? "key" : "value") << " of layer " << layer << " differs at token "
               << first + static_cast<std::int64_t>(at) / row_elements(spec, keys) << " of "
               << tokens.size() << ": " << actual[at] << " instead of " << expected[at];
      }
    }
  }
  return ::testing::AssertionSuccess();
}

LayoutSpec small_layout(const std::vector<std::int64_t>& windows, const Format& format,
                        std::int64_t page_tokens, std::int64_t slack) {
  LayoutSpec spec{.page_tokens = page_tokens, .window_slack_tokens = slack};
  for (const std::int64_t window : windows) {
    spec.layers.push_back(
        {.kv_heads = 2, .key_dim = 16, .value_dim = 8, .format = format, .window_tokens = window});
  }
  return spec;
}

Tokens count_up(std::uint32_t first, std::int64_t count) {
  Tokens tokens;
  for (std::int64_t at = 0; at < count; ++at) {
    tokens.push_back(first + static_cast<std::uint32_t>(at));
  }
  return tokens;
}

Tokens join(Tokens first, const Tokens& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

std::vector<TokenId> ids(const Tokens& tokens) {
  return {tokens.begin(), tokens.end()};
}

}  // namespace pagekv::testing
