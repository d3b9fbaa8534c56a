#include "pagekv/layout.h"

#include <gtest/gtest.h>

namespace pagekv {
namespace {

LayerSpec layer(int heads, int key_dim, int value_dim, std::int64_t window = 0, int donor = -1) {
  return {.kv_heads = heads,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .format = *Format::parse("bf16"),
          .window_tokens = window,
          .donor = donor};
}

std::string refusal(LayoutSpec spec) {
  auto layout = CacheLayout::make(std::move(spec));
  return layout ? "accepted" : layout.error().message();
}

TEST(Layout, PlanesOfAPageDoNotOverlapAndFillIt) {
  auto layout =
      CacheLayout::make({.layers = {layer(2, 64, 64), layer(3, 80, 48)}, .page_tokens = 32});
  ASSERT_TRUE(layout);
  const LayerLayout& first = layout->layer(0);
  EXPECT_EQ(first.k[0].offset, 0);
  EXPECT_EQ(first.k[0].row_bytes, 128);
  EXPECT_EQ(first.k[0].head_stride, 32 * 128);
  EXPECT_EQ(first.v[0].offset, 2 * 32 * 128);
  EXPECT_EQ(first.bytes, 4 * 32 * 128);
  const LayerLayout& second = layout->layer(1);
  EXPECT_EQ(second.page_offset, first.bytes);
  EXPECT_EQ(second.bytes, 3 * 32 * (80 + 48) * 2);
  EXPECT_EQ(layout->group(0).page_bytes, first.bytes + second.bytes);
  EXPECT_EQ(layout->bytes_per_token(), layout->group(0).page_bytes / 32);
}

TEST(Layout, StridesOfBothPageOrders) {
  LayoutSpec spec{.layers = {layer(1, 64, 64), layer(1, 128, 64)}, .page_tokens = 16};
  auto page_major = CacheLayout::make(spec);
  EXPECT_EQ(page_major->stride(1, 10).offset, page_major->layer(0).bytes);
  EXPECT_EQ(page_major->stride(1, 10).page_stride, page_major->group(0).page_bytes);
  spec.order = PageOrder::layer_major;
  auto layer_major = CacheLayout::make(spec);
  EXPECT_EQ(layer_major->stride(1, 10).offset, 10 * layer_major->layer(0).bytes);
  EXPECT_EQ(layer_major->stride(1, 10).page_stride, layer_major->layer(1).bytes);
}

TEST(Layout, LayersWithEqualWindowsShareAGroup) {
  auto layout = CacheLayout::make(
      {.layers = {layer(1, 64, 64), layer(1, 64, 64, 128), layer(2, 64, 64), layer(4, 32, 32, 128)},
       .page_tokens = 16,
       .window_slack_tokens = 20});
  ASSERT_EQ(layout->group_count(), 2);
  EXPECT_EQ(layout->group(0).layers, (std::vector{0, 2}));
  EXPECT_EQ(layout->group(1).layers, (std::vector{1, 3}));
  EXPECT_EQ(layout->pages_for(0, 1000), 63);
  // The token at 1000 sees 873..1000; 20 of slack keep 853 on, which is in page 53.
  EXPECT_EQ(layout->first_kept_page(1, 1000), 53);
  EXPECT_EQ(layout->pages_for(1, 1000), 10);
  EXPECT_EQ(layout->first_kept_page(1, 100), 0);
}

TEST(Layout, DonorReadersStoreNothing) {
  auto layout = CacheLayout::make(
      {.layers = {layer(1, 64, 64), layer(1, 64, 64, 0, 0), layer(1, 64, 64, 0, 1)}});
  ASSERT_TRUE(layout);
  EXPECT_EQ(layout->layer(2).storage_layer, 0);
  EXPECT_EQ(layout->group(0).layers, std::vector{0});
  EXPECT_EQ(layout->bytes_per_token(), 2 * 64 * 2);
}

TEST(Layout, RefusalsNameTheLayerTheValueAndWhatIsLegal) {
  EXPECT_EQ(refusal({}), "a layout has 1 to 4096 layers, not 0");
  for (const std::int64_t tokens : {std::int64_t{0}, std::int64_t{17}, std::int64_t{-16}}) {
    EXPECT_EQ(refusal({.layers = {layer(1, 64, 64)}, .page_tokens = tokens}),
              "a page of " + std::to_string(tokens) +
                  " tokens; legal are multiples of 16 from 16 to 65536");
  }
  EXPECT_EQ(refusal({.layers = {layer(1, 64, 64), layer(1, 60, 64)}}),
            "layer 1 has key dim 60; legal are multiples of 8 up to 576");
  EXPECT_EQ(refusal({.layers = {layer(1, 64, 584)}}),
            "layer 0 has value dim 584; legal are multiples of 8 up to 576");
  EXPECT_EQ(refusal({.layers = {layer(0, 64, 64)}}), "layer 0 has 0 KV heads; legal are 1 to 1024");
  EXPECT_EQ(refusal({.layers = {layer(1, 64, 64, 0, 0)}}),
            "layer 0 reads donor layer 0; a donor is an earlier layer, or -1 for none");
  EXPECT_EQ(refusal({.layers = {layer(1, 64, 64), layer(2, 64, 64, 0, 0)}}),
            "layer 1 reads layer 0, so heads, dims, format and window must be the same");
  EXPECT_EQ(refusal({.layers = {layer(1, 64, 64)}, .window_slack_tokens = -1}),
            "a window slack of -1 tokens; legal are 0 to 4294967296");
}

TEST(Format, ParsesPresetsAndNamesTheLegalOnes) {
  for (const char* preset : {"f32", "f16", "bf16"}) {
    EXPECT_EQ(Format::parse(preset)->name(), preset);
  }
  EXPECT_EQ(Format::parse("int7").error().message(),
            "unknown page format 'int7'; legal are f32, f16 and bf16");
  const Format mixed{VectorCodec::dense(DType::f16), VectorCodec::dense(DType::bf16)};
  EXPECT_EQ(mixed.name(), "k=f16,v=bf16");
}

}  // namespace
}  // namespace pagekv
