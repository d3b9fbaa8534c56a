// ByteReader: fields of a little-endian file, read with bounds.
//
// Every read either fits into the bytes or is a corrupt_file error that says what was being read,
// at which byte, how many bytes it needs and how many are left. Nothing is allocated on success.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

static_assert(std::endian::native == std::endian::little,
              "model files are little-endian and are read in place");

// A name from outside, fit for an error text: quoted, shortened, control characters escaped.
std::string quoted(std::string_view name);

// A little-endian value at an address of any alignment. REQUIRES: sizeof(T) bytes there.
template <typename T>
T load(const std::byte* from) {
  static_assert(std::is_arithmetic_v<T>);
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::int64_t offset() const { return static_cast<std::int64_t>(offset_); }
  std::int64_t remaining() const { return static_cast<std::int64_t>(bytes_.size() - offset_); }

  // What the fields read from now on belong to ("metadata key 3", "tensor 'x'"); for error texts.
  // `name` is borrowed.
  void set_subject(std::string_view kind, std::int64_t index, std::string_view name = {}) {
    kind_ = kind;
    index_ = index;
    name_ = name;
  }
  std::string subject() const;

  // `what` names the field: "length", "value".
  template <typename T>
  Result<T> read(std::string_view what) {
    if (sizeof(T) > bytes_.size() - offset_) return short_read(what, sizeof(T));
    const T value = load<T>(bytes_.data() + offset_);
    offset_ += sizeof(T);
    return value;
  }

  Result<std::span<const std::byte>> take(std::uint64_t count, std::string_view what) {
    if (count > bytes_.size() - offset_) return short_read(what, count);
    const auto taken = bytes_.subspan(offset_, static_cast<std::size_t>(count));
    offset_ += taken.size();
    return taken;
  }

 private:
  tl::unexpected<Error> short_read(std::string_view what, std::uint64_t needed) const;

  std::span<const std::byte> bytes_;
  std::size_t offset_ = 0;
  std::string_view kind_;
  std::int64_t index_ = 0;
  std::string_view name_;
};

}  // namespace pagekv::inline v0::engine
