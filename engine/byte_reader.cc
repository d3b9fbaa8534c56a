#include "engine/byte_reader.h"

namespace pagekv::inline v0::engine {

std::string quoted(std::string_view name) {
  static constexpr std::size_t kLongest = 80;
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  if (name.size() > kLongest) out += "...";
  return out + "'";
}

std::string ByteReader::subject() const {
  if (!name_.empty()) return std::string(kind_) + " " + quoted(name_);
  if (index_ >= 0) return std::string(kind_) + " " + std::to_string(index_);
  return std::string(kind_);
}

tl::unexpected<Error> ByteReader::short_read(std::string_view what, std::uint64_t needed) const {
  // The number of bytes needed may exceed what an Error's signed numbers hold: it goes into the
  // text.
  return fail(ErrorCode::corrupt_file, "truncated at byte {0}: {s}, {1} left",
              {offset(), remaining()},
              "the " + std::string(what) + " of " + subject() + " needs " + std::to_string(needed) +
                  " bytes");
}

}  // namespace pagekv::inline v0::engine
