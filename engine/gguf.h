// GgufFile: the contents of a GGUF model file, versions 2 and 3, little-endian.
//
//   magic "GGUF", version u32, tensor count u64, metadata count u64,
//   metadata: key string, value type u32, value          (string: length u64, bytes)
//   tensors:  name string, dimensions u32, each u64, type u32, offset u64
//   padding to general.alignment (32 by default), then the tensors' data
//
// A GgufFile borrows the bytes it was parsed from: they must outlive it and all it hands out. The
// file is not trusted: every count, length and offset is checked against the bytes there are,
// memory use is bounded by a small multiple of the file's size, and a bad file is a corrupt_file
// error that says what was wrong at which byte. Immutable after parse(); safe on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/tensor.h"
#include "pagekv/error.h"

namespace pagekv::inline v0::engine {

// By its number in the file.
enum class GgufType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

std::string_view name(GgufType type);  // "u32"

// Elements of one type; arrays of arrays are refused by parse().
struct GgufArray {
  GgufType element = GgufType::u8;
  std::int64_t count = 0;
  std::int64_t element_bytes = 0;         // 0 for strings
  std::span<const std::byte> bytes;       // count * element_bytes, unaligned; strings: empty
  std::vector<std::string_view> strings;  // count of them where the elements are strings
};

struct GgufEntry {
  std::string_view key;
  GgufType type = GgufType::u8;
  // Numbers are widened: unsigned, signed, floating.
  std::variant<std::uint64_t, std::int64_t, double, bool, std::string_view, GgufArray> value;
};

class GgufFile {
 public:
  // Errors: corrupt_file; unsupported (a version other than 2 and 3, big-endian files, nested
  // arrays, tensor types nobody knows). Tensors of known types that cannot be read are accepted;
  // readable_tensor() and widen() refuse them.
  static Result<GgufFile> parse(std::span<const std::byte> bytes);

  std::uint32_t version() const { return version_; }
  std::int64_t alignment() const { return alignment_; }
  const std::vector<GgufEntry>& metadata() const { return metadata_; }  // in file order
  const std::vector<TensorView>& tensors() const { return tensors_; }   // in file order

  const GgufEntry* find(std::string_view key) const;                // null where absent
  const TensorView* find_tensor(std::string_view name) const;       // null where absent
  Result<TensorView> readable_tensor(std::string_view name) const;  // widen() will accept it

  // Typed metadata. Errors: corrupt_file naming the key, and the type it has or that it is missing,
  // or that a number does not fit. integer() takes every integer type, number() every numeric one.
  Result<std::int64_t> integer(std::string_view key) const;
  Result<double> number(std::string_view key) const;
  Result<bool> boolean(std::string_view key) const;
  Result<std::string_view> string(std::string_view key) const;
  Result<std::span<const std::string_view>> strings(std::string_view key) const;
  Result<std::vector<std::int64_t>> integers(std::string_view key) const;
  Result<std::vector<double>> numbers(std::string_view key) const;

  // The same, with a value for an absent key. A key of the wrong type is still an error.
  Result<std::int64_t> integer_or(std::string_view key, std::int64_t fallback) const;
  Result<double> number_or(std::string_view key, double fallback) const;
  Result<bool> boolean_or(std::string_view key, bool fallback) const;
  Result<std::string_view> string_or(std::string_view key, std::string_view fallback) const;

 private:
  friend class GgufParser;
  GgufFile() = default;

  std::uint32_t version_ = 0;
  std::int64_t alignment_ = 32;
  std::vector<GgufEntry> metadata_;
  std::vector<TensorView> tensors_;
  std::unordered_map<std::string_view, std::size_t> key_index_;
  std::unordered_map<std::string_view, std::size_t> tensor_index_;  // keys: bytes of the file
};

}  // namespace pagekv::inline v0::engine
