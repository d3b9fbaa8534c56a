// What a codec costs: its planes, its groups, what it refuses. All numbers are worked out by hand.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "support/codecs.h"

namespace pagekv::testing {
namespace {

VectorCodec settled(const std::string& text, std::int64_t dim) {
  return *VectorCodec::parse(text)->resolve(dim);
}

std::int64_t bytes(const std::string& text, std::int64_t dim) {
  return settled(text, dim).bytes_per_vector(dim);
}

std::int64_t format_bytes(const std::string& text, std::int64_t dim) {
  const Format format = *Format::parse(text);
  return format.k.resolve(dim)->bytes_per_vector(dim) +
         format.v.resolve(dim)->bytes_per_vector(dim);
}

std::string refusal(const VectorCodec& codec, std::int64_t dim) {
  const auto made = codec.resolve(dim);
  return made ? "accepted as " + made->name() : made.error().message();
}

// Per token and KV head, keys and values of 128 elements.
TEST(Codec, BytesOfATokenAreThoseOfItsParts) {
  EXPECT_EQ(format_bytes("bf16", 128), 512);
  EXPECT_EQ(format_bytes("f32", 128), 1024);
  EXPECT_EQ(format_bytes("affine:8:64", 128), 272) << "2 * (128 + 2 scales + 2 biases of 2 bytes)";
  EXPECT_EQ(format_bytes("affine:4:64", 128), 144);
  EXPECT_EQ(format_bytes("kv8", 128), 2 * (128 + 4)) << "one group";
  EXPECT_EQ(format_bytes("kv4", 128), 2 * (64 + 4));
  EXPECT_EQ(format_bytes("kv2", 64), 2 * (16 + 4));
  EXPECT_EQ(bytes("affine:8:32", 128), 128 + 4 * 2 * 2);
  EXPECT_EQ(bytes("codebook:3:32:rot", 128), 48 + 4 * 2);
  EXPECT_EQ(format_bytes("k8v3", 128), 196);
  EXPECT_EQ(format_bytes("k8v4", 128), 212);
  EXPECT_EQ(format_bytes("k4v4", 128), 148);
  EXPECT_EQ(format_bytes("k4v3", 128), 132);
  EXPECT_EQ(bytes("affine:4:64:f32", 128), 64 + 2 * 2 * 4);
  EXPECT_EQ(bytes("codebook:1:head:f16", 128), 16 + 2);
}

TEST(Codec, RowsOfCodesAreWholeWords) {
  EXPECT_EQ(bytes("affine:3:8", 8), 4 + 4) << "3 bytes of codes";
  EXPECT_EQ(bytes("affine:3:8", 24), 12 + 3 * 4) << "9 bytes of codes";
  EXPECT_EQ(bytes("affine:3:8", 72), 28 + 9 * 4) << "27 bytes of codes";
  EXPECT_EQ(bytes("affine:3:16", 80), 32 + 5 * 4) << "30 bytes of codes";
  EXPECT_EQ(bytes("codebook:3:head", 80), 32 + 2);
  EXPECT_EQ(bytes("codebook:1:head", 8), 4 + 2) << "one byte of codes";
  EXPECT_EQ(bytes("affine:5:8", 72), 48 + 9 * 4) << "45 bytes of codes";
}

TEST(Codec, Planes) {
  const auto expect_planes = [](const VectorCodec& codec, std::int64_t dim,
                                const std::vector<Plane>& want) {
    const std::vector<Plane> planes = codec.planes(dim);
    ASSERT_EQ(planes.size(), want.size()) << codec.name();
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(planes[i].kind, want[i].kind);
      EXPECT_EQ(planes[i].bytes_per_vector, want[i].bytes_per_vector);
      EXPECT_EQ(planes[i].unit_bytes, want[i].unit_bytes);
    }
  };
  expect_planes(settled("bf16:rot", 80), 80, {{PlaneKind::codes, 160, 4}});
  expect_planes(
      settled("affine:6:16", 80), 80,
      {{PlaneKind::codes, 60, 4}, {PlaneKind::scales, 10, 2}, {PlaneKind::biases, 10, 2}});
  expect_planes(
      settled("affine:4:64:f32", 192), 192,
      {{PlaneKind::codes, 96, 4}, {PlaneKind::scales, 12, 4}, {PlaneKind::biases, 12, 4}});
  expect_planes(settled("codebook:5:32:rot", 96), 96,
                {{PlaneKind::codes, 60, 4}, {PlaneKind::scales, 6, 2}});
  expect_planes(settled("codebook:2:head:f32", 72), 72,
                {{PlaneKind::codes, 20, 4}, {PlaneKind::scales, 4, 4}});
}

// What an arrangement moves is whole units, whatever the codec and the dim.
TEST(Codec, PlanesAreWholeUnits) {
  for (std::int64_t dim = 8; dim <= kMaxHeadDim; dim += 8) {
    for (const VectorCodec& codec : all_codecs(dim)) {
      const std::vector<Plane> planes = codec.planes(dim);
      ASSERT_LE(planes.size(), static_cast<std::size_t>(kMaxPlanes));
      for (const Plane& plane : planes) {
        EXPECT_GT(plane.bytes_per_vector, 0) << codec.name() << ' ' << dim;
        EXPECT_EQ(plane.bytes_per_vector % plane.unit_bytes, 0) << codec.name() << ' ' << dim;
      }
      EXPECT_EQ(codec.groups(dim) * codec.group_elements(dim),
                codec.kind() == CodecKind::dense ? 0 : dim);
    }
  }
}

TEST(Codec, PresetsTakeTheLargestGroupThatDividesTheHead) {
  const Format affine = *Format::parse("kv4");
  for (const auto& [dim, group] : std::vector<std::pair<std::int64_t, std::int64_t>>{{8, 8},
                                                                                     {24, 8},
                                                                                     {72, 8},
                                                                                     {80, 16},
                                                                                     {64, 64},
                                                                                     {96, 32},
                                                                                     {128, 128},
                                                                                     {192, 64},
                                                                                     {256, 128},
                                                                                     {576, 64}}) {
    EXPECT_EQ(affine.k.resolve(dim)->group_elements(dim), group) << dim;
  }
  const Format turbo = *Format::parse("k8v3");
  for (const auto& [dim, key_group, value_group] :
       std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>>{
           {8, 8, 8}, {72, 8, 72}, {80, 16, 80}, {64, 32, 64}, {96, 32, 32}, {576, 32, 64}}) {
    EXPECT_EQ(turbo.k.resolve(dim)->group_elements(dim), key_group) << dim;
    EXPECT_EQ(turbo.v.resolve(dim)->group_elements(dim), value_group) << dim;
  }
}

TEST(Codec, ResolvingTwiceChangesNothing) {
  for (std::int64_t dim = 8; dim <= 200; dim += 8) {
    for (const VectorCodec& codec : all_codecs(dim)) EXPECT_EQ(codec.resolve(dim), codec);
  }
}

TEST(Codec, AWholeHeadIsTheGroupOfItsSize) {
  for (const int dim : {32, 64, 128}) {
    const VectorCodec whole = *VectorCodec::codebook(3, VectorCodec::whole_head()).resolve(dim);
    EXPECT_EQ(whole, *VectorCodec::codebook(3, VectorCodec::exactly(dim)).resolve(dim)) << dim;
    EXPECT_EQ(whole.group_elements(dim), dim);
  }
  EXPECT_NE(*VectorCodec::codebook(3, VectorCodec::whole_head()).resolve(96),
            *VectorCodec::codebook(3, VectorCodec::exactly(32)).resolve(96));
}

TEST(Codec, RefusalsNameTheHeadAndTheLegalGroups) {
  EXPECT_EQ(refusal(VectorCodec::affine(4, VectorCodec::exactly(64)), 80),
            "affine groups of 64 elements in a head of 80; legal are 8, 16");
  EXPECT_EQ(refusal(VectorCodec::affine(4, VectorCodec::exactly(48)), 96),
            "affine groups of 48 elements in a head of 96; legal are 8, 16, 32");
  EXPECT_EQ(refusal(VectorCodec::codebook(4, VectorCodec::exactly(32)), 80),
            "codebook groups of 32 elements in a head of 80; legal are the whole head");
  EXPECT_EQ(refusal(VectorCodec::codebook(4, VectorCodec::exactly(64)), 96),
            "codebook groups of 64 elements in a head of 96; legal are 32 and the whole head");
  EXPECT_EQ(refusal(VectorCodec::affine(7), 64),
            "affine codes of 7 bits; legal are 2, 3, 4, 5, 6, 8");
  EXPECT_EQ(refusal(VectorCodec::codebook(6), 64),
            "codebook codes of 6 bits; legal are 1, 2, 3, 4, 5, 8");
  EXPECT_EQ(refusal(VectorCodec::affine(4, VectorCodec::up_to(7)), 64),
            "affine groups of 7 elements in a head of 64; legal are 8, 16, 32, 64");
  for (const std::int64_t dim : {0, -8, 7, 60}) {
    for (const char* text : {"bf16", "affine:4", "codebook:3"}) {
      EXPECT_EQ(refusal(*VectorCodec::parse(text), dim),
                "a head of " + std::to_string(dim) + " elements; legal are multiples of 8");
    }
  }
}

TEST(Codec, BitsPerElementCountScales) {
  const auto bits = [](const std::string& text, std::int64_t dim) {
    Format format = *Format::parse(text);
    format = {*format.k.resolve(dim), *format.v.resolve(dim)};
    return format.bits_per_element(dim, dim);
  };
  EXPECT_DOUBLE_EQ(bits("bf16", 128), 16.0);
  EXPECT_DOUBLE_EQ(bits("kv8", 128), 8.25);
  EXPECT_DOUBLE_EQ(bits("affine:4:64", 128), 4.5);
  EXPECT_DOUBLE_EQ(bits("k8v3", 128), (8 + 1 + 3 + 0.25) / 2);
  const Format uneven{*VectorCodec::affine(8).resolve(192), *VectorCodec::affine(4).resolve(128)};
  EXPECT_DOUBLE_EQ(uneven.bits_per_element(192, 128), 8.0 * (192 + 12 + 64 + 4) / (192 + 128));
}

}  // namespace
}  // namespace pagekv::testing
