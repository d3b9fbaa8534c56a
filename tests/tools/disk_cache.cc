#include "tests/tools/disk_cache.h"

#include <gtest/gtest.h>

#include <numeric>
#include <utility>
#include <vector>

namespace pagekv::testing {
namespace {

Store make_store() {
  const LayerSpec whole{.kv_heads = 2, .key_dim = 32, .value_dim = 32};
  LayerSpec window = whole;
  window.window_tokens = 24;
  return *Store::make(*CacheLayout::make({.layers = {whole, window}, .page_tokens = 16}),
                      *make_cpu_device(), {.cap_bytes = 4 << 20});
}

}  // namespace

DiskCache::DiskCache(TokenId first)
    : tokens_(kCachedTokens), store_(make_store()), sequence_(*store_.create_sequence()) {
  std::iota(tokens_.begin(), tokens_.end(), first);
  const std::vector<float> rows(kCachedTokens * 2 * 32, static_cast<float>(first));
  const Rows packed = Rows::packed(rows.data(), DType::f32, 2, 32);
  const Append append{&sequence_, kCachedTokens};
  auto step = store_.reserve({&append, 1});
  EXPECT_TRUE(step) << step.error().message();
  for (int layer = 0; layer < 2; ++layer) EXPECT_TRUE(step->write(layer, packed, packed));
  EXPECT_TRUE(step->commit());
}

void DiskCache::save(const std::string& path, const std::string& model) {
  const auto saved = pagekv::save(store_, sequence_.ref(), tokens_, path,
                                  {.identity = {.model = model}, .sync = false});
  EXPECT_TRUE(saved) << saved.error().message();
}

void DiskCache::store(const std::string& path, const std::string& model) {
  auto tier = open_directory_tier(path, {.cap_bytes = 64 << 20});
  ASSERT_TRUE(tier) << tier.error().message();
  auto pages = PageTier::make(store_, std::move(*tier));
  auto index = PrefixIndex::make(store_, {.sink = pages->sink()});
  const auto space = index->open({.model = model});
  ASSERT_TRUE(pages->attach(*space));
  EXPECT_TRUE(pages->store(*space, tokens_, sequence_.ref()));
  EXPECT_TRUE(pages->flush());
}

}  // namespace pagekv::testing
