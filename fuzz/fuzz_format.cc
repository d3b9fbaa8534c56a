// A text as a page format and as overrides for layers, then a vector through the codecs it names.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "codec/stored_vector.h"
#include "fuzz/require.h"
#include "pagekv/codec.h"
#include "pagekv/layout.h"

namespace {

using pagekv::Format;
using pagekv::VectorCodec;
using pagekv::fuzz::require;

constexpr std::int64_t kDims[] = {8, 24, 64, 80, 128, 576};

// `bytes`, repeated, as the elements of a vector.
std::vector<float> elements(std::string_view bytes, std::int64_t dim) {
  std::vector<float> values(static_cast<std::size_t>(dim), 0.0f);
  for (std::size_t at = 0; at + 4 <= bytes.size() && at / 4 < values.size(); at += 4) {
    std::memcpy(&values[at / 4], bytes.data() + at, 4);
  }
  return values;
}

void check_codec(const VectorCodec& codec, std::string_view bytes) {
  const auto again = VectorCodec::parse(codec.name());
  require(again && *again == codec, "a codec's name names it");
  for (const std::int64_t dim : kDims) {
    const auto settled = codec.resolve(dim);
    if (!settled) {
      require(!settled.error().message().empty(), "an error has a text");
      continue;
    }
    const std::vector<pagekv::Plane> planes = settled->planes(dim);
    std::array<std::vector<std::byte>, pagekv::kMaxPlanes> rows;  // exact sizes, for the sanitizer
    for (std::size_t i = 0; i < planes.size(); ++i) {
      require(planes[i].bytes_per_vector % planes[i].unit_bytes == 0, "planes are whole units");
      rows[i].resize(static_cast<std::size_t>(planes[i].bytes_per_vector));
    }
    std::vector<float> values = elements(bytes, dim);
    if (!pagekv::internal::encode_vector(*settled, values.data(), dim,
                                         {rows[0].data(), rows[1].data(), rows[2].data()})) {
      continue;
    }
    pagekv::internal::decode_vector(*settled, {rows[0].data(), rows[1].data(), rows[2].data()}, dim,
                                    values.data());
    for (const float value : values) require(std::isfinite(value), "finite in, finite out");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Up to the first line end the format, to the second the overrides, then a vector.
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto take_line = [&rest] {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    return line;
  };
  const std::string_view text = take_line();
  const std::string_view overrides = take_line();
  const auto format = Format::parse(text);
  if (!format) {
    require(!format.error().message().empty(), "an error has a text");
    return 0;
  }
  const auto again = Format::parse(format->name());
  require(again && *again == *format, "a format's name names it");
  check_codec(format->k, rest);
  check_codec(format->v, rest);
  constexpr int kLayers = 5;
  const auto formats = pagekv::parse_layer_formats(*format, overrides, kLayers);
  require(!formats || formats->size() == kLayers, "every layer has a format");
  require(formats || !formats.error().message().empty(), "an error has a text");
  return 0;
}
