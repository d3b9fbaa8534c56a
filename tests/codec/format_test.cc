// The texts that name codecs and formats: read, written, refused.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "support/codecs.h"

namespace pagekv::testing {
namespace {

std::string codec_refusal(const std::string& text) {
  const auto codec = VectorCodec::parse(text);
  return codec ? "accepted as " + codec->name() : codec.error().message();
}

std::string format_refusal(const std::string& text) {
  const auto format = Format::parse(text);
  return format ? "accepted as " + format->name() : format.error().message();
}

std::string layers_refusal(const std::string& overrides) {
  const auto formats = parse_layer_formats(Format{}, overrides, 4);
  return formats ? "accepted" : formats.error().message();
}

constexpr const char* kLegalFormats =
    "; legal are f32, f16, bf16; kvN with N of 2, 3, 4, 5, 6, 8 bits or kNvM such as k8v4, behind "
    "it as wanted :TYPE of the scales and :rot; or k=CODEC,v=CODEC with a CODEC such as bf16, "
    "affine:4:64 or codebook:3:32:rot";
constexpr const char* kLegalCodecs =
    " is not understood; a codec is f32, f16 or bf16, affine:BITS or codebook:BITS, then as wanted "
    ":GROUP (codebook: or :head), :TYPE of the scales, of a codebook the fit :rms, :norm or "
    ":search, and :rot";

// Everything the factories can say, settled or not.
std::vector<VectorCodec> every_codec() {
  std::vector<VectorCodec> all = all_codecs(128);
  for (const DType scales : kAllDTypes) {
    for (const int most : {8, 32, 64, 128, 500}) {
      for (const int bits : {2, 3, 4, 5, 6, 8}) {
        all.push_back(VectorCodec::affine(bits, VectorCodec::up_to(most), scales));
      }
      for (const int bits : {1, 2, 3, 4, 5, 8}) {
        for (const ScaleFit fit : kAllFits) {
          all.push_back(VectorCodec::codebook(bits, VectorCodec::up_to(most), fit, scales));
        }
      }
    }
  }
  const std::size_t plain = all.size();
  for (std::size_t i = 0; i < plain; ++i) all.push_back(all[i].rotated());
  return all;
}

TEST(CodecNames, SayAllThereIsToSay) {
  std::set<std::string> names;
  std::size_t distinct = 0;
  for (const VectorCodec& codec : every_codec()) {
    const auto parsed = VectorCodec::parse(codec.name());
    ASSERT_TRUE(parsed) << codec.name() << ": " << parsed.error().message();
    EXPECT_EQ(*parsed, codec) << codec.name();
    names.insert(codec.name());
  }
  for (const VectorCodec& codec : all_codecs(128)) distinct += names.count(codec.name());
  EXPECT_EQ(distinct, all_codecs(128).size());
}

TEST(CodecNames, LeaveOutWhatIsUsual) {
  EXPECT_EQ(VectorCodec::dense(DType::f16).name(), "f16");
  EXPECT_EQ(VectorCodec::dense(DType::f16).rotated().name(), "f16:rot");
  EXPECT_EQ(VectorCodec::affine(4).name(), "affine:4");
  EXPECT_EQ(VectorCodec::affine(4, VectorCodec::exactly(64)).name(), "affine:4:64");
  EXPECT_EQ(VectorCodec::affine(8, VectorCodec::up_to(32), DType::f32).name(),
            "affine:8:max32:f32");
  EXPECT_EQ(VectorCodec::codebook(3).rotated().name(), "codebook:3:rot");
  EXPECT_EQ(VectorCodec::codebook(3, VectorCodec::whole_head(), ScaleFit::norm, DType::f16)
                .rotated()
                .name(),
            "codebook:3:head:f16:norm:rot");
}

TEST(CodecTexts, TakePartsInAnyOrder) {
  EXPECT_EQ(*VectorCodec::parse("codebook:3:rot:norm:f16:head"),
            *VectorCodec::parse("codebook:3:head:f16:norm:rot"));
  EXPECT_EQ(*VectorCodec::parse("affine:4:bf16:max128"), VectorCodec::affine(4));
  EXPECT_EQ(*VectorCodec::parse("codebook:2:search:max64"), VectorCodec::codebook(2));
}

TEST(CodecTexts, RefusalsNameThePartAndWhatIsLegal) {
  const auto not_understood = [](const std::string& part, const std::string& codec) {
    return "'" + part + "' of codec '" + codec + "'" + kLegalCodecs;
  };
  EXPECT_EQ(codec_refusal("affine:7"), "affine codes of 7 bits; legal are 2, 3, 4, 5, 6, 8");
  EXPECT_EQ(codec_refusal("affine:1"), "affine codes of 1 bits; legal are 2, 3, 4, 5, 6, 8");
  EXPECT_EQ(codec_refusal("codebook:6:32"), "codebook codes of 6 bits; legal are 1, 2, 3, 4, 5, 8");
  EXPECT_EQ(codec_refusal("affine:4:48"),
            "affine groups of 48 elements; legal are 8, 16, 32, 64, 128");
  EXPECT_EQ(codec_refusal("affine:4:max4"),
            "affine groups of up to 4 elements; legal are 8, 16, 32, 64, 128");
  EXPECT_EQ(codec_refusal("codebook:4:16"),
            "codebook groups of 16 elements; legal are 32, 64, 128 and the whole head");
  for (const auto& [text, part] :
       std::vector<std::pair<std::string, std::string>>{{"", ""},
                                                        {"int8", "int8"},
                                                        {"F16", "F16"},
                                                        {"affine", ""},
                                                        {"affine:", ""},
                                                        {"affine:x", "x"},
                                                        {"affine:-4", "-4"},
                                                        {"affine:4.0", "4.0"},
                                                        {"affine:99999999999", "99999999999"},
                                                        {"affine:4:0", "0"},
                                                        {"affine:4:", ""},
                                                        {"affine:4:64:", ""},
                                                        {"affine:4:head", "head"},
                                                        {"affine:4:64:norm", "norm"},
                                                        {"affine:4:64:turned", "turned"},
                                                        {"affine:4:max", "max"},
                                                        {"affine:4:max0", "max0"},
                                                        {"affine:4:64:32", "32"},
                                                        {"affine:4:64:max64", "max64"},
                                                        {"affine:4:f16:f16", "f16"},
                                                        {"affine:4:rot:rot", "rot"},
                                                        {"codebook:4:norm:rms", "rms"},
                                                        {"codebook:4:head:32", "32"},
                                                        {"bf16:64", "64"},
                                                        {"bf16:f16", "f16"},
                                                        {"bf16:rot:rot", "rot"},
                                                        {" bf16", " bf16"}}) {
    EXPECT_EQ(codec_refusal(text), not_understood(part, text));
  }
}

TEST(FormatTexts, Presets) {
  for (const char* text : {"f32", "f16", "bf16"}) {
    const Format format = *Format::parse(text);
    EXPECT_EQ(format.k, *VectorCodec::parse(text));
    EXPECT_EQ(format.v, format.k);
    EXPECT_EQ(format.name(), text);
  }
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const std::string text = "kv" + std::to_string(bits);
    const Format format = *Format::parse(text);
    EXPECT_EQ(format.k, VectorCodec::affine(bits, VectorCodec::up_to(128), DType::bf16));
    EXPECT_EQ(format.v, format.k);
    EXPECT_EQ(format.name(), text);
    for (const int value_bits : {1, 2, 3, 4, 5, 8}) {
      const std::string turbo = "k" + std::to_string(bits) + "v" + std::to_string(value_bits);
      const Format mixed = *Format::parse(turbo);
      EXPECT_EQ(mixed.k, VectorCodec::affine(bits, VectorCodec::up_to(32)));
      EXPECT_EQ(
          mixed.v,
          VectorCodec::codebook(value_bits, VectorCodec::up_to(64), ScaleFit::search).rotated());
      EXPECT_EQ(mixed.name(), turbo);
    }
  }
}

TEST(FormatTexts, PresetsTakeScalesAndRotationForBothSides) {
  const VectorCodec affine = VectorCodec::affine(8, VectorCodec::up_to(128), DType::f16);
  EXPECT_EQ(*Format::parse("kv8:f16:rot"), (Format{affine.rotated(), affine.rotated()}));
  EXPECT_EQ(*Format::parse("kv8:rot:f16"), *Format::parse("kv8:f16:rot"));
  EXPECT_EQ(*Format::parse("k8v4:f16:rot"),
            *Format::parse("k=affine:8:max32:f16:rot,v=codebook:4:f16:rot"));
  EXPECT_EQ(*Format::parse("k8v4:bf16"), *Format::parse("k8v4"));
  for (const char* text : {"kv8:f16:rot", "kv4:rot", "k8v4:f32", "k4v4:rot", "k2v1:f16:rot"}) {
    EXPECT_EQ(Format::parse(text)->name(), text);
  }
  for (const char* text :
       {"kv8:rot:rot", "kv8:f16:f16", "kv8:64", "k8v4:head", "k8v4:norm", "kv8:", "kv4:rot,"}) {
    EXPECT_EQ(format_refusal(text),
              "unknown page format '" + std::string(text) + "'" + kLegalFormats);
  }
}

TEST(FormatTexts, LongForms) {
  const VectorCodec k = *VectorCodec::parse("affine:8:64");
  const VectorCodec v = *VectorCodec::parse("codebook:3:rot");
  const VectorCodec dense = VectorCodec::dense(DType::f16);
  EXPECT_EQ(*Format::parse("k=affine:8:64,v=codebook:3:rot"), (Format{k, v}));
  EXPECT_EQ(*Format::parse("v=codebook:3:rot,k=affine:8:64"), (Format{k, v}));
  EXPECT_EQ(*Format::parse("v=bf16,k=f16"), (Format{dense, VectorCodec::dense(DType::bf16)}));
  EXPECT_EQ(*Format::parse("k=f16,v=codebook:3:rot"), (Format{dense, v}));
  EXPECT_EQ(*Format::parse("affine:8:64"), (Format{k, k}));
  EXPECT_EQ((Format{k, k}).name(), "affine:8:64");
  EXPECT_EQ((Format{k, v}).name(), "k=affine:8:64,v=codebook:3:rot");
  EXPECT_EQ((Format{dense, VectorCodec::dense(DType::bf16)}).name(), "k=f16,v=bf16");
  EXPECT_EQ((Format{dense.rotated(), dense.rotated()}).name(), "f16:rot");
}

TEST(FormatTexts, NamesAreReadBack) {
  constexpr std::uint64_t kSeed = 81;
  Random random(kSeed);
  const std::vector<VectorCodec> all = every_codec();
  for (int at = 0; at < 2000; ++at) {
    const Format format{pick_one(random, all), pick_one(random, all)};
    EXPECT_EQ(Format::parse(format.name()), format) << format.name() << " seed " << kSeed;
  }
  for (const VectorCodec& codec : all) {
    const Format format{codec, codec};
    EXPECT_EQ(Format::parse(format.name()), format) << format.name();
  }
}

TEST(FormatTexts, RefusalsNameTheTextAndWhatIsLegal) {
  EXPECT_EQ(format_refusal("kv7"), "affine codes of 7 bits; legal are 2, 3, 4, 5, 6, 8");
  EXPECT_EQ(format_refusal("kv1"), "affine codes of 1 bits; legal are 2, 3, 4, 5, 6, 8");
  EXPECT_EQ(format_refusal("k8v6"), "codebook codes of 6 bits; legal are 1, 2, 3, 4, 5, 8");
  EXPECT_EQ(format_refusal("k7v3"), "affine codes of 7 bits; legal are 2, 3, 4, 5, 6, 8");
  EXPECT_EQ(format_refusal("k=affine:4:48,v=bf16"),
            "affine groups of 48 elements; legal are 8, 16, 32, 64, 128");
  for (const char* text : {"", "int7", "kv", "kvx", "kv-4", "kv4 ", "k8v", "kv8v4", "k8v3v", "v3k8",
                           "BF16", "k=bf16,v=bf16,v=bf16", "k=bf16,k=bf16", "v=bf16,v=bf16",
                           "k=bf16,bf16", "affine:4:64,codebook:3", "k8v3,v=bf16,"}) {
    EXPECT_EQ(format_refusal(text),
              "unknown page format '" + std::string(text) + "'" + kLegalFormats);
  }
  EXPECT_EQ(format_refusal("k=bf16,v=int8"), "'int8' of codec 'int8'" + std::string(kLegalCodecs));
  EXPECT_EQ(format_refusal("k=affine:4:rot:rot,v=bf16"),
            "'rot' of codec 'affine:4:rot:rot'" + std::string(kLegalCodecs));
}

TEST(LayerFormats, NamedLayersDeviateFromTheBase) {
  const Format base = *Format::parse("k8v3");
  const Format bf16 = *Format::parse("bf16");
  const Format mixed = *Format::parse("k=f16,v=codebook:3:rot");
  EXPECT_EQ(*parse_layer_formats(base, "", 3), (std::vector{base, base, base}));
  EXPECT_EQ(*parse_layer_formats(base, "0,2=bf16", 3), (std::vector{bf16, base, bf16}));
  EXPECT_EQ(*parse_layer_formats(base, "0-1,4=bf16;3=k=f16,v=codebook:3:rot", 5),
            (std::vector{bf16, bf16, base, mixed, bf16}));
  EXPECT_EQ(*parse_layer_formats(base, "0-2=bf16", 3), (std::vector{bf16, bf16, bf16}));
}

TEST(LayerFormats, RefusalsNameWhatIsWrong) {
  const auto no_format = [](const std::string& entry) {
    return "'" + entry + "' names no format; expected LAYERS=FORMAT such as 0-1,28-29=bf16";
  };
  const auto no_layers = [](const std::string& range) {
    return "'" + range + "' is no layer or range of layers; the layers are 0 to 3";
  };
  EXPECT_EQ(layers_refusal("bf16"), no_format("bf16"));
  EXPECT_EQ(layers_refusal("0=bf16;"), no_format(""));
  EXPECT_EQ(layers_refusal(";0=bf16"), no_format(""));
  for (const char* range : {"4", "3-4", "2-1", "-1", "1-", "-", "a", "", "0x1", "99999999999"}) {
    EXPECT_EQ(layers_refusal(std::string(range) + "=bf16"), no_layers(range));
  }
  EXPECT_EQ(layers_refusal("0-2,1=bf16"), "layer 1 is given a format twice");
  EXPECT_EQ(layers_refusal("3=bf16;2-3=f16"), "layer 3 is given a format twice");
  EXPECT_EQ(layers_refusal("0=kv7"), "affine codes of 7 bits; legal are 2, 3, 4, 5, 6, 8");
  EXPECT_EQ(layers_refusal("0="), "unknown page format ''" + std::string(kLegalFormats));
}

}  // namespace
}  // namespace pagekv::testing
