// Formats of single layers: who has which, and donors' readers.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/random_model.h"

namespace pagekv::testing {
namespace {

using engine::with_formats;

// Layers 2 and 3 read the pages of layers 0 and 1.
std::vector<LayerSpec> layers_with_donors() {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 5; ++i) {
    layers.push_back(
        {.kv_heads = 2, .key_dim = 16, .value_dim = 16, .donor = i == 2 || i == 3 ? i - 2 : -1});
  }
  return layers;
}

std::vector<std::string> names(const std::string& base, const std::string& overrides) {
  const auto layers = with_formats(layers_with_donors(), *Format::parse(base), overrides);
  EXPECT_TRUE(layers) << layers.error().message();
  std::vector<std::string> out;
  if (!layers) return out;
  for (const LayerSpec& layer : *layers) out.push_back(layer.format.name());
  return out;
}

std::string refusal(const std::string& base, const std::string& overrides) {
  const auto layers = with_formats(layers_with_donors(), *Format::parse(base), overrides);
  EXPECT_FALSE(layers);
  if (layers) return {};
  EXPECT_EQ(layers.error().code(), ErrorCode::invalid_argument);
  return layers.error().message();
}

using Names = std::vector<std::string>;

TEST(LayerFormats, AreTheBaseWhereNothingElseIsSaid) {
  for (const char* base : {"f32", "f16", "bf16", "kv8"}) EXPECT_EQ(names(base, ""), Names(5, base));
}

TEST(LayerFormats, ReadersHaveTheFormatOfTheirDonor) {
  EXPECT_EQ(names("bf16", "0=f32"), Names({"f32", "bf16", "f32", "bf16", "bf16"}));
  EXPECT_EQ(names("f32", "1,4=f16"), Names({"f32", "f16", "f32", "f16", "f16"}));
  // Named, and the same as the donor's.
  EXPECT_EQ(names("bf16", "0,2=f32"), Names({"f32", "bf16", "f32", "bf16", "bf16"}));
  EXPECT_EQ(names("bf16", "2=bf16"), Names(5, "bf16"));
}

TEST(LayerFormats, ReadersHaveNoOther) {
  EXPECT_EQ(refusal("bf16", "2=f32"),
            "layer 2 reads the pages of layer 0, which are bf16; it has no format of its own");
  // The base, but not the donor's.
  EXPECT_NE(refusal("bf16", "1=f32;3=bf16").find("layer 3 reads"), std::string::npos);
  EXPECT_NE(refusal("f32", "1=bf16;3=f32").find("layer 3 reads"), std::string::npos);
}

TEST(LayerFormats, OverridesThatMakeNoSenseAreRefused) {
  for (const char* overrides : {"5=f32", "0=q9", "0", "=f32", "1-0=f32", "0=f32;0=f16"}) {
    EXPECT_FALSE(refusal("bf16", overrides).empty()) << overrides;
  }
}

TEST(LayerFormats, ReachTheStore) {
  const auto model = engine::make_random_model({.layers = 3, .window_tokens = 0, .donors = false});
  ASSERT_TRUE(model);
  const auto device = make_cpu_device();
  ASSERT_TRUE(device);
  const auto store = engine::make_model_store(
      **model, *device, {.format = *Format::parse("bf16"), .layer_formats = "1=f32"});
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ(store->layout().layer(0).spec.format.name(), "bf16");
  EXPECT_EQ(store->layout().layer(1).spec.format.name(), "f32");
  EXPECT_EQ(store->layout().bytes_per_token(), 2 * 2 * 64 * (2 + 4 + 2));
  const auto refused = engine::make_model_store(
      **model, *device, {.format = *Format::parse("bf16"), .layer_formats = "3=f32"});
  EXPECT_FALSE(refused);
}

// Pages are larger than their tokens' bytes where planes are padded.
TEST(LayerFormats, TheDefaultCapHoldsOneWholeSequence) {
  const auto model = engine::make_random_model({.layers = 2,
                                                .kv_heads = 3,
                                                .head_dim = 8,
                                                .context_tokens = 1 << 24,
                                                .window_tokens = 0,
                                                .donors = false});
  ASSERT_TRUE(model) << model.error().message();
  const auto device = make_cpu_device();
  const auto store = engine::make_model_store(**model, *device,
                                              {.format = *Format::parse("kv2"), .page_tokens = 16});
  ASSERT_TRUE(store) << store.error().message();
  const CacheLayout& layout = store->layout();
  ASSERT_GT(layout.group(0).page_bytes, 16 * layout.bytes_per_token());
  EXPECT_GE(store->stats().cap_bytes, layout.pages_for(0, 1 << 24) * layout.group(0).page_bytes);
}

}  // namespace
}  // namespace pagekv::testing
