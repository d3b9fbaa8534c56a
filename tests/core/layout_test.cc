#include "pagekv/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

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
  LayerSpec reader = layer(1, 64, 64, 0, 0);
  reader.format = *Format::parse("kv8");
  EXPECT_EQ(refusal({.layers = {layer(1, 64, 64), reader}}),
            "layer 1 reads layer 0, so heads, dims, format and window must be the same");
  EXPECT_EQ(refusal({.layers = {layer(1, 64, 64)}, .window_slack_tokens = -1}),
            "a window slack of -1 tokens; legal are 0 to 4294967296");
}

TEST(Layout, DonorsAreComparedAsTheyAreStored) {
  LayerSpec donor = layer(1, 64, 64);
  LayerSpec reader = layer(1, 64, 64, 0, 0);
  donor.format = *Format::parse("kv4");
  reader.format = *Format::parse("affine:4:64");
  EXPECT_EQ(refusal({.layers = {donor, reader}}), "accepted");
  reader.format = *Format::parse("affine:4:32");
  EXPECT_NE(refusal({.layers = {donor, reader}}), "accepted");
}

// Ranges of bytes of a layer's part of a page, one for each plane of each head.
void expect_apart(const LayerLayout& layer, std::int64_t page_tokens) {
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
  for (const PlaneLayouts& planes : {layer.k, layer.v}) {
    for (const PlaneLayout& plane : planes) {
      if (plane.row_bytes == 0) continue;
      EXPECT_EQ(plane.offset % 64, 0);
      EXPECT_EQ(plane.head_stride, page_tokens * plane.row_bytes);
      for (int head = 0; head < layer.spec.kv_heads; ++head) {
        const std::int64_t begin = plane.offset + head * plane.head_stride;
        ranges.emplace_back(begin, begin + plane.head_stride);
      }
    }
  }
  std::sort(ranges.begin(), ranges.end());
  std::int64_t padding = ranges.front().first;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::int64_t next = i + 1 < ranges.size() ? ranges[i + 1].first : layer.bytes;
    EXPECT_LE(ranges[i].second, next);
    padding += next - ranges[i].second;
  }
  EXPECT_LT(padding, 64 * static_cast<std::int64_t>(ranges.size()));
  EXPECT_EQ(layer.bytes % 64, 0);
}

TEST(Layout, PlanesOfEveryFormatDoNotOverlap) {
  for (const char* format :
       {"f32", "kv8", "kv3", "k8v3", "k5v1", "k=codebook:2:head:f32,v=affine:6",
        "k=bf16:rot,v=affine:3:8:f32:rot"}) {
    for (const std::int64_t page_tokens : {16, 48, 256}) {
      for (const auto& [heads, key_dim, value_dim] :
           std::vector<std::array<int, 3>>{{1, 8, 8}, {3, 72, 80}, {2, 128, 64}}) {
        SCOPED_TRACE(::testing::Message() << format << ' ' << page_tokens << ' ' << key_dim);
        LayerSpec spec = layer(heads, key_dim, value_dim);
        spec.format = *Format::parse(format);
        const auto made = CacheLayout::make({.layers = {spec, spec}, .page_tokens = page_tokens});
        ASSERT_TRUE(made) << made.error().message();
        expect_apart(made->layer(1), page_tokens);
        EXPECT_EQ(made->layer(1).page_offset, made->layer(0).bytes);
      }
    }
  }
}

// 2 KV heads with keys and values of 128: what docs and `pagekv info` say.
TEST(Layout, BytesOfATokenInQuantizedFormats) {
  const auto bytes = [](const char* base, const char* overrides) {
    LayoutSpec spec;
    const auto formats = parse_layer_formats(*Format::parse(base), overrides, 3);
    for (const Format& format : *formats) {
      spec.layers.push_back(layer(2, 128, 128));
      spec.layers.back().format = format;
    }
    return CacheLayout::make(spec)->bytes_per_token();
  };
  EXPECT_EQ(bytes("affine:8:64", ""), 3 * 2 * 272);
  EXPECT_EQ(bytes("affine:4:64", ""), 3 * 2 * 144);
  EXPECT_EQ(bytes("k8v3", ""), 3 * 2 * 196);
  EXPECT_EQ(bytes("k8v3", "0,2=bf16"), 2 * (196 + 2 * 512));
}

TEST(Layout, SettlesGroupsByTheHead) {
  LayerSpec spec = layer(1, 80, 96);
  spec.format = *Format::parse("kv4");
  const auto made = CacheLayout::make({.layers = {spec, layer(1, 64, 64)}});
  ASSERT_TRUE(made);
  EXPECT_EQ(made->layer(0).spec.format.name(), "k=affine:4:16,v=affine:4:32");
  EXPECT_EQ(made->layer(1).spec.format.name(), "bf16");
}

TEST(Layout, CodecRefusalsNameLayerAndSide) {
  const auto with = [](const VectorCodec& k, const VectorCodec& v) {
    LayerSpec spec = layer(1, 80, 96);
    spec.format = {k, v};
    return refusal({.layers = {layer(1, 64, 64), spec}});
  };
  const VectorCodec dense = VectorCodec::dense(DType::bf16);
  EXPECT_EQ(with(*VectorCodec::parse("affine:4:64"), dense),
            "layer 1, keys: affine groups of 64 elements in a head of 80; legal are 8, 16");
  EXPECT_EQ(with(dense, *VectorCodec::parse("codebook:4:64")),
            "layer 1, values: codebook groups of 64 elements in a head of 96; legal are 32 and the "
            "whole head");
  EXPECT_EQ(with(VectorCodec::affine(7), dense),
            "layer 1, keys: affine codes of 7 bits; legal are 2, 3, 4, 5, 6, 8");
  EXPECT_EQ(with(dense, VectorCodec::codebook(6)),
            "layer 1, values: codebook codes of 6 bits; legal are 1, 2, 3, 4, 5, 8");
}

}  // namespace
}  // namespace pagekv
