// The texts that name codecs and formats, read and written.
#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "pagekv/codec.h"

namespace pagekv::inline v0 {

namespace {

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};
constexpr std::pair<const char*, ScaleFit> kFits[] = {
    {"rms", ScaleFit::rms}, {"norm", ScaleFit::norm}, {"search", ScaleFit::search}};
// Groups of the keys of TurboQuant formats.
constexpr int kTurboKeyGroup = 32;

constexpr const char* kLegalFormats =
    "f32, f16, bf16; kvN with N of 2, 3, 4, 5, 6, 8 bits or kNvM such as k8v4, behind it as wanted "
    ":TYPE of the scales and :rot; or k=CODEC,v=CODEC with a CODEC such as bf16, affine:4:64 or "
    "codebook:3:32:rot";

std::optional<int> read_number(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || number < 0) {
    return std::nullopt;
  }
  return number;
}

std::optional<DType> read_dtype(std::string_view text) {
  const auto* found = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                   [&](DType type) { return text == name(type); });
  return found == std::end(kDTypes) ? std::nullopt : std::optional(*found);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// The parts of a codec's text behind its kind and bits; each may be given once, in any order.
struct Parts {
  std::optional<VectorCodec::Group> group;
  std::optional<DType> scales;
  std::optional<ScaleFit> fit;
  bool rotated = false;
};

template <typename T>
bool set_once(std::optional<T>& slot, T value) {
  if (slot.has_value()) return false;
  slot = value;
  return true;
}

bool read_part(std::string_view text, bool codebook, Parts& parts) {
  if (text == "rot") return !std::exchange(parts.rotated, true);
  if (const auto type = read_dtype(text)) return set_once(parts.scales, *type);
  if (const auto number = read_number(text); number && *number > 0) {
    return set_once(parts.group, VectorCodec::exactly(*number));
  }
  if (text.starts_with("max")) {
    const auto most = read_number(text.substr(3));
    return most && *most > 0 && set_once(parts.group, VectorCodec::up_to(*most));
  }
  if (!codebook) return false;
  if (text == "head") return set_once(parts.group, VectorCodec::whole_head());
  for (const auto& [fit_name, fit] : kFits) {
    if (text == fit_name) return set_once(parts.fit, fit);
  }
  return false;
}

std::string group_name(VectorCodec::Group group) {
  if (group.at_most) return ":max" + std::to_string(group.elements);
  if (group.elements == VectorCodec::kWholeHead) return ":head";
  return ":" + std::to_string(group.elements);
}

tl::unexpected<Error> unknown_codec(std::string_view text, std::string_view part) {
  return fail(ErrorCode::invalid_argument, "{s}", {},
              "'" + std::string(part) + "' of codec '" + std::string(text) +
                  "' is not understood; a codec is f32, f16 or bf16, affine:BITS or codebook:BITS, "
                  "then as wanted :GROUP (codebook: or :head), :TYPE of the scales, of a codebook "
                  "the fit :rms, :norm or :search, and :rot");
}

// kvN and kNvM. Bits are not checked here.
std::optional<Format> read_quantized_preset(std::string_view text) {
  if (text.starts_with("kv")) {
    const auto bits = read_number(text.substr(2));
    if (!bits) return std::nullopt;
    return Format{VectorCodec::affine(*bits), VectorCodec::affine(*bits)};
  }
  const std::size_t v = text.find('v');
  if (!text.starts_with("k") || v == std::string_view::npos) return std::nullopt;
  const auto key_bits = read_number(text.substr(1, v - 1));
  const auto value_bits = read_number(text.substr(v + 1));
  if (!key_bits || !value_bits) return std::nullopt;
  return Format{VectorCodec::affine(*key_bits, VectorCodec::up_to(kTurboKeyGroup)),
                VectorCodec::codebook(*value_bits).rotated()};
}

Format with_scales(const Format& format, DType scales) {
  const auto change = [scales](const VectorCodec& codec) {
    VectorCodec changed =
        codec.kind() == CodecKind::affine
            ? VectorCodec::affine(codec.bits(), codec.group(), scales)
            : VectorCodec::codebook(codec.bits(), codec.group(), codec.fit(), scales);
    return codec.is_rotated() ? changed.rotated() : changed;
  };
  return {change(format.k), change(format.v)};
}

// A preset, and behind it what both sides are to have: a type of scales, a rotation.
std::optional<Format> read_preset(std::string_view text) {
  if (const auto type = read_dtype(text)) {
    return Format{VectorCodec::dense(*type), VectorCodec::dense(*type)};
  }
  const std::vector<std::string_view> words = split(text, ':');
  auto format = read_quantized_preset(words[0]);
  Parts parts;
  for (std::size_t i = 1; format && i < words.size(); ++i) {
    const bool known = words[i] == "rot" || read_dtype(words[i]);
    if (!known || !read_part(words[i], false, parts)) return std::nullopt;
  }
  if (format && parts.scales) format = with_scales(*format, *parts.scales);
  if (format && parts.rotated) format = Format{format->k.rotated(), format->v.rotated()};
  return format;
}

tl::unexpected<Error> unknown_format(std::string_view text) {
  return fail(ErrorCode::invalid_argument, "{s}", {},
              "unknown page format '" + std::string(text) + "'; legal are " + kLegalFormats);
}

Result<Format> read_long_form(std::string_view text) {
  const std::vector<std::string_view> sides = split(text, ',');
  if (sides.size() == 1 && text.find('=') == std::string_view::npos) {
    auto both = VectorCodec::parse(text);
    if (!both) return tl::unexpected(both.error());
    return Format{*both, *both};
  }
  if (sides.size() != 2) return unknown_format(text);
  const std::size_t keys = sides[0].starts_with("k=") ? 0 : 1;
  if (!sides[keys].starts_with("k=") || !sides[1 - keys].starts_with("v=")) {
    return unknown_format(text);
  }
  auto k = VectorCodec::parse(sides[keys].substr(2));
  if (!k) return tl::unexpected(k.error());
  auto v = VectorCodec::parse(sides[1 - keys].substr(2));
  if (!v) return tl::unexpected(v.error());
  return Format{*k, *v};
}

}  // namespace

std::string VectorCodec::name() const {
  std::string text(kind_ == CodecKind::affine ? "affine" : "codebook");
  if (kind_ == CodecKind::dense) {
    text = v0::name(dtype_);
  } else {
    const VectorCodec usual = kind_ == CodecKind::affine ? affine(bits_) : codebook(bits_);
    text += ":" + std::to_string(bits_);
    if (group_ != usual.group_) text += group_name(group_);
    if (dtype_ != usual.dtype_) text += ":" + std::string(v0::name(dtype_));
    for (const auto& [fit_name, fit] : kFits) {
      if (fit_ == fit && fit_ != usual.fit_) text += ":" + std::string(fit_name);
    }
  }
  return rotated_ ? text + ":rot" : text;
}

Result<VectorCodec> VectorCodec::parse(std::string_view text) {
  const std::vector<std::string_view> words = split(text, ':');
  const bool codebook_kind = words[0] == "codebook";
  const bool grouped = codebook_kind || words[0] == "affine";
  const auto type = read_dtype(words[0]);
  if (!grouped && !type) return unknown_codec(text, words[0]);
  const auto bits = grouped && words.size() > 1 ? read_number(words[1]) : std::nullopt;
  if (grouped && !bits) return unknown_codec(text, words.size() > 1 ? words[1] : "");
  Parts parts;
  for (std::size_t i = grouped ? 2 : 1; i < words.size(); ++i) {
    const bool known = grouped ? read_part(words[i], codebook_kind, parts)
                               : words[i] == "rot" && !std::exchange(parts.rotated, true);
    if (!known) return unknown_codec(text, words[i]);
  }
  VectorCodec codec = !grouped ? dense(*type) : codebook_kind ? codebook(*bits) : affine(*bits);
  codec.group_ = parts.group.value_or(codec.group_);
  if (grouped) codec.dtype_ = parts.scales.value_or(codec.dtype_);
  codec.fit_ = parts.fit.value_or(codec.fit_);
  codec.rotated_ = parts.rotated;
  if (auto ok = codec.check(); !ok) return tl::unexpected(ok.error());
  return codec;
}

Result<Format> Format::parse(std::string_view text) {
  if (const auto preset = read_preset(text)) {
    for (const VectorCodec& codec : {preset->k, preset->v}) {
      if (auto ok = codec.check(); !ok) return tl::unexpected(ok.error());
    }
    return *preset;
  }
  const bool misused_preset = read_quantized_preset(text.substr(0, text.find(':'))).has_value();
  const bool long_form = text.find_first_of("=:") != std::string_view::npos;
  return long_form && !misused_preset ? read_long_form(text) : unknown_format(text);
}

std::string Format::name() const {
  const std::string key_bits = std::to_string(k.bits());
  for (const std::string& preset : {std::string(v0::name(k.dtype())), "kv" + key_bits,
                                    "k" + key_bits + "v" + std::to_string(v.bits())}) {
    const std::string typed = preset + ":" + std::string(v0::name(k.dtype()));
    for (const std::string& text : {preset, preset + ":rot", typed, typed + ":rot"}) {
      if (read_preset(text) == *this) return text;
    }
  }
  return k == v ? k.name() : "k=" + k.name() + ",v=" + v.name();
}

Result<std::vector<Format>> parse_layer_formats(const Format& base, std::string_view overrides,
                                                int layer_count) {
  std::vector<Format> formats(static_cast<std::size_t>(layer_count), base);
  if (overrides.empty()) return formats;
  std::vector<bool> named(formats.size(), false);
  for (const std::string_view entry : split(overrides, ';')) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) {
      return fail(ErrorCode::invalid_argument, "{s}", {},
                  "'" + std::string(entry) +
                      "' names no format; expected LAYERS=FORMAT such as "
                      "0-1,28-29=bf16");
    }
    auto format = Format::parse(entry.substr(equals + 1));
    if (!format) return tl::unexpected(format.error());
    for (const std::string_view range : split(entry.substr(0, equals), ',')) {
      const std::size_t dash = range.find('-');
      const auto first = read_number(range.substr(0, dash));
      const auto last =
          dash == std::string_view::npos ? first : read_number(range.substr(dash + 1));
      if (!first || !last || *first > *last || *last >= layer_count) {
        return fail(ErrorCode::invalid_argument,
                    "'{s}' is no layer or range of layers; the layers are 0 to {0}",
                    {layer_count - 1}, std::string(range));
      }
      for (int layer = *first; layer <= *last; ++layer) {
        const auto at = static_cast<std::size_t>(layer);
        if (named[at]) {
          return fail(ErrorCode::invalid_argument, "layer {0} is given a format twice", {layer});
        }
        named[at] = true;
        formats[at] = *format;
      }
    }
  }
  return formats;
}

}  // namespace pagekv::inline v0
