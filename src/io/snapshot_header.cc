#include "io/snapshot_header.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/prefix/digest.h"
#include "io/checksum.h"
#include "io/little_endian.h"

namespace pagekv::inline v0::internal {

namespace {

using nlohmann::json;

constexpr std::int64_t kMostHeaderBytes = 100'000'000;  // what readers of safetensors take
constexpr std::int64_t kMostTokens = std::int64_t{1} << 31;
constexpr std::size_t kMostLayers = 65536;
constexpr std::int64_t kMostHeads = 65536;
constexpr std::int64_t kMostFileBytes = std::int64_t{1} << 56;  // far from where sums overflow
constexpr const char* kNoSum = "0000000000000000";
// What rotations and codebooks are; other ones would be other names.
constexpr const char* kRotation = "signed-hadamard threefry-0-42";
constexpr const char* kCodebooks = "lloyd-max normal 1";

std::int64_t padded(std::int64_t bytes) {
  return (bytes + kSnapshotAlignment - 1) / kSnapshotAlignment * kSnapshotAlignment;
}

std::string safetensors_name(DType type) {
  return type == DType::f32 ? "F32" : type == DType::f16 ? "F16" : "BF16";
}

const char* plane_name(PlaneKind kind) {
  return kind == PlaneKind::codes ? "codes" : kind == PlaneKind::scales ? "scales" : "biases";
}

// The planes of one side: dense elements and scales by their type, codes as bytes.
void add_side(SnapshotHeader& header, int layer, bool keys) {
  const LayerSpec& spec = header.layers[static_cast<std::size_t>(layer)];
  const VectorCodec& codec = keys ? spec.format.k : spec.format.v;
  const std::int64_t dim = keys ? spec.key_dim : spec.value_dim;
  const std::int64_t first = header.first[static_cast<std::size_t>(layer)];
  int index = 0;
  for (const Plane& plane : codec.planes(dim)) {
    const bool bytes = codec.kind() != CodecKind::dense && plane.kind == PlaneKind::codes;
    const std::int64_t element = bytes ? 1 : size_bytes(codec.dtype());
    SnapshotPart part;
    part.tensor.name = "layers." + std::to_string(layer) + (keys ? ".k" : ".v");
    if (codec.kind() != CodecKind::dense) {
      part.tensor.name += std::string(".") + plane_name(plane.kind);
    }
    part.tensor.dtype = bytes ? "U8" : safetensors_name(codec.dtype());
    part.tensor.shape = {spec.kv_heads, header.tokens - first, plane.bytes_per_vector / element};
    part.tensor.bytes = spec.kv_heads * (header.tokens - first) * plane.bytes_per_vector;
    part.layer = layer;
    part.keys = keys;
    part.plane = index++;
    part.row_bytes = plane.bytes_per_vector;
    part.first = first;
    header.parts.push_back(std::move(part));
  }
}

json layers_json(const SnapshotHeader& header) {
  json layers = json::array();
  for (std::size_t at = 0; at < header.layers.size(); ++at) {
    const LayerSpec& spec = header.layers[at];
    layers.push_back({{"kv_heads", spec.kv_heads},
                      {"key_dim", spec.key_dim},
                      {"value_dim", spec.value_dim},
                      {"format", spec.format.name()},
                      {"window", spec.window_tokens},
                      {"donor", spec.donor},
                      {"first", header.first[at]}});
  }
  return layers;
}

std::string padding_name(std::size_t part) {
  return "padding." + std::to_string(part);
}

// With the given sum in place of the header's own.
std::string json_text(const SnapshotHeader& header, const std::string& own_sum) {
  json metadata = {{"format", "pagekv snapshot"},
                   {"version", std::to_string(header.version)},
                   {"tokens", std::to_string(header.tokens)},
                   {"layers", layers_json(header).dump()},
                   {"rotation", kRotation},
                   {"codebooks", kCodebooks},
                   {"model", header.model},
                   {"adapter", header.adapter},
                   {"salt", header.salt_digest},
                   {"numerics", header.numerics},
                   {"arithmetic", header.arithmetic},
                   {"xxh3", own_sum}};
  if (!header.note.empty()) metadata["note"] = header.note;
  json object;
  std::int64_t begin = 0;
  for (std::size_t at = 0; at < header.parts.size(); ++at) {
    const SnapshotPart& part = header.parts[at];
    const std::int64_t end = begin + part.tensor.bytes;
    object[part.tensor.name] = {
        {"dtype", part.tensor.dtype}, {"shape", part.tensor.shape}, {"data_offsets", {begin, end}}};
    begin += part.padded_bytes;
    if (begin > end) {
      object[padding_name(at)] = {
          {"dtype", "U8"}, {"shape", {begin - end}}, {"data_offsets", {end, begin}}};
    }
    metadata["xxh3." + part.tensor.name] = hex(part.checksum);
  }
  object["__metadata__"] = std::move(metadata);
  return object.dump(-1, ' ', true, json::error_handler_t::replace);
}

std::string with_length(std::string text, std::int64_t header_bytes) {
  text.resize(static_cast<std::size_t>(header_bytes - 8), ' ');
  std::string bytes(8, '\0');
  store_number(std::as_writable_bytes(std::span(bytes)), 0, std::uint64_t{text.size()});
  return bytes + text;
}

std::string sum_of(const std::string& header_with_no_sum) {
  return hex(checksum(std::as_bytes(std::span(header_with_no_sum)),
                      static_cast<std::int64_t>(header_with_no_sum.size())));
}

// --- reading -----------------------------------------------------------------------------------

class Parser {
 public:
  explicit Parser(const InputFile& file) : file_(file) {}

  Result<SnapshotHeader> parse() {
    if (auto ok = read_text(); !ok) return tl::unexpected(ok.error());
    root_ = json::parse(text_, nullptr, false);
    if (!root_.is_object()) return bad("has no JSON header");
    const auto metadata = root_.find("__metadata__");
    if (metadata == root_.end() || !metadata->is_object()) return bad("has no metadata");
    for (const auto& [key, value] : metadata->items()) {
      if (!value.is_string()) return bad("has metadata that is no text: " + key);
    }
    metadata_ = &*metadata;
    if (field("format") != "pagekv snapshot") return bad("is not of pagekv");
    if (auto ok = read_fields(); !ok) return tl::unexpected(ok.error());
    if (auto ok = lay_out(header_); !ok) return bad(ok.error().message());
    if (auto ok = read_sums(); !ok) return tl::unexpected(ok.error());
    return check();
  }

 private:
  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(ErrorCode::corrupt_file, "{s}", {}, file_.path() + " " + what);
  }
  std::string field(const std::string& key) const {
    const auto at = metadata_->find(key);
    return at == metadata_->end() ? std::string() : at->get<std::string>();
  }

  Status read_text() {
    std::array<std::byte, 8> bytes{};
    if (file_.bytes() < 8) return bad("is too short for a header");
    if (auto ok = file_.read(0, bytes); !ok) return ok;
    const auto length = load_number<std::uint64_t>(bytes, 0);
    if (length > static_cast<std::uint64_t>(std::min(kMostHeaderBytes, file_.bytes() - 8))) {
      return bad("has a header that is longer than the file, or than any may be");
    }
    text_.resize(static_cast<std::size_t>(length));
    return file_.read(8, std::as_writable_bytes(std::span(text_)));
  }

  bool read_number(const std::string& text, std::int64_t& number) const {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stop == end && number >= 0;
  }

  Status read_fields() {
    if (!read_number(field("version"), header_.version)) return bad("has no version");
    if (header_.version != kSnapshotVersion) {
      return fail(ErrorCode::unsupported, "{s} is of version {0}, this pagekv reads version {1}",
                  {header_.version, kSnapshotVersion}, file_.path());
    }
    if (field("rotation") != kRotation || field("codebooks") != kCodebooks) {
      return fail(ErrorCode::unsupported, "{s} has rotations or codebooks that are not known here",
                  {}, file_.path());
    }
    if (!read_number(field("tokens"), header_.tokens) || header_.tokens > kMostTokens) {
      return bad("has no number of tokens");
    }
    header_.model = field("model");
    header_.adapter = field("adapter");
    header_.salt_digest = field("salt");
    header_.numerics = field("numerics");
    header_.arithmetic = field("arithmetic");
    header_.note = field("note");
    if (auto ok = read_layers(); !ok) return ok;
    return read_token_count();
  }

  Status read_token_count() {
    const auto tokens = root_.find("tokens");
    const json* shape = tokens != root_.end() && tokens->is_object() && tokens->contains("shape")
                            ? &(*tokens)["shape"]
                            : nullptr;
    if (shape == nullptr || !shape->is_array() || shape->size() != 1 ||
        !(*shape)[0].is_number_unsigned() ||
        (*shape)[0].get<std::uint64_t>() > static_cast<std::uint64_t>(kMostTokens)) {
      return bad("has no tensor of tokens");
    }
    header_.all_tokens = (*shape)[0].get<std::int64_t>();
    if (header_.all_tokens < header_.tokens) return bad("names fewer tokens than it stores");
    return {};
  }

  Status read_layers() {
    const json layers = json::parse(field("layers"), nullptr, false);
    if (!layers.is_array() || layers.empty() || layers.size() > kMostLayers) {
      return bad("has no list of layers");
    }
    for (const json& layer : layers) {
      LayerSpec spec;
      std::int64_t kv_heads = 0, key_dim = 0, value_dim = 0, donor = 0, first = 0;
      const bool read = read_int(layer, "kv_heads", kv_heads) &&
                        read_int(layer, "key_dim", key_dim) &&
                        read_int(layer, "value_dim", value_dim) &&
                        read_int(layer, "window", spec.window_tokens) &&
                        read_int(layer, "donor", donor) && read_int(layer, "first", first);
      if (!read || kv_heads > kMostHeads || !layer.contains("format") ||
          !layer["format"].is_string() || first < 0 || first > header_.tokens) {
        return bad("has a layer that is not described");
      }
      const auto format = Format::parse(layer["format"].get<std::string>());
      if (!format) return bad("has a format that is not known: " + format.error().message());
      spec.kv_heads = static_cast<int>(kv_heads);
      spec.key_dim = static_cast<int>(key_dim);
      spec.value_dim = static_cast<int>(value_dim);
      spec.donor = static_cast<int>(donor);
      spec.format = *format;
      header_.layers.push_back(spec);
      header_.first.push_back(first);
    }
    return {};
  }

  static bool read_int(const json& object, const char* key, std::int64_t& number) {
    if (!object.is_object() || !object.contains(key) || !object[key].is_number_integer()) {
      return false;
    }
    number = object[key].get<std::int64_t>();
    return number >= -1 && number <= std::numeric_limits<int>::max();
  }

  Status read_sums() {
    for (SnapshotPart& part : header_.parts) {
      const std::string text = field("xxh3." + part.tensor.name);
      const char* end = text.data() + text.size();
      const auto [stop, error] = std::from_chars(text.data(), end, part.checksum, 16);
      if (text.size() != 16 || error != std::errc() || stop != end) {
        return bad("has no checksum of " + part.tensor.name);
      }
    }
    return {};
  }

  // The header must be, byte for byte, the one that these contents have.
  Result<SnapshotHeader> check() {
    const std::string expected = write_header(header_);
    if (expected.substr(8) != text_) {
      return bad("has a header that does not match its checksum or its contents");
    }
    if (file_.bytes() != header_.file_bytes) {
      return bad("has " + std::to_string(file_.bytes()) + " bytes instead of " +
                 std::to_string(header_.file_bytes));
    }
    return std::move(header_);
  }

  const InputFile& file_;
  std::string text_;
  json root_;
  const json* metadata_ = nullptr;
  SnapshotHeader header_;
};

}  // namespace

bool is_utf8(const std::string& text) {
  // Invalid bytes become U+FFFD, which is longer than what it stands for, or not written like it.
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)) == text;
}

void set_identity(SnapshotHeader& header, const NamespaceSpec& spec, const std::string& numerics) {
  header.model = spec.model;
  header.adapter = spec.adapter;
  header.arithmetic = spec.arithmetic == Arithmetic::fast ? "fast" : "exact";
  header.numerics = numerics;
  header.salt_digest.clear();
  if (spec.salt.empty()) return;
  header.salt_digest = hex(digest_of("pagekv salt 1" + spec.salt));
}

Status lay_out(SnapshotHeader& header) {
  const auto layout = CacheLayout::make({.layers = header.layers});
  if (!layout) return tl::unexpected(layout.error());
  header.parts.clear();
  SnapshotPart tokens;
  tokens.tensor = {.name = "tokens", .dtype = "I32", .shape = {header.all_tokens}};
  tokens.tensor.bytes = header.all_tokens * static_cast<std::int64_t>(sizeof(TokenId));
  header.parts.push_back(std::move(tokens));
  for (int layer = 0; layer < layout->layer_count(); ++layer) {
    header.layers[static_cast<std::size_t>(layer)] = layout->layer(layer).spec;
    if (layout->layer(layer).storage_layer != layer) continue;
    add_side(header, layer, true);
    add_side(header, layer, false);
  }
  std::int64_t data_bytes = 0;
  for (SnapshotPart& part : header.parts) {
    part.padded_bytes = padded(part.tensor.bytes);
    data_bytes += part.padded_bytes;
    if (data_bytes > kMostFileBytes) {
      return fail(ErrorCode::invalid_argument, "a snapshot of more than {0} bytes",
                  {kMostFileBytes});
    }
  }
  header.header_bytes = padded(8 + static_cast<std::int64_t>(json_text(header, kNoSum).size()));
  header.file_bytes = header.header_bytes + data_bytes;
  std::int64_t offset = header.header_bytes;
  for (SnapshotPart& part : header.parts) {
    part.tensor.offset = offset;
    offset += part.padded_bytes;
  }
  return {};
}

std::string write_header(const SnapshotHeader& header) {
  const std::string blank = with_length(json_text(header, kNoSum), header.header_bytes);
  return with_length(json_text(header, sum_of(blank)), header.header_bytes);
}

Result<SnapshotHeader> read_header(const InputFile& file) {
  return Parser(file).parse();
}

}  // namespace pagekv::inline v0::internal
