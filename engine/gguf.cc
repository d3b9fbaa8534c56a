// Look-ups and typed getters of GgufFile.
#include "engine/gguf.h"

#include <limits>

#include "engine/byte_reader.h"

namespace pagekv::inline v0::engine {
namespace {

std::string describe_type(const GgufEntry& entry) {
  if (const auto* array = std::get_if<GgufArray>(&entry.value)) {
    return "array of " + std::string(name(array->element));
  }
  return std::string(name(entry.type));
}

tl::unexpected<Error> missing(std::string_view key) {
  return fail(ErrorCode::corrupt_file, "metadata key {s} is missing", {}, quoted(key));
}

tl::unexpected<Error> wrong_type(const GgufEntry& entry, const char* expected) {
  return fail(ErrorCode::corrupt_file, "metadata key {s}", {},
              quoted(entry.key) + " is of type " + describe_type(entry) + ", expected " + expected);
}

Result<std::int64_t> integer_of(const GgufEntry& entry) {
  if (const auto* value = std::get_if<std::int64_t>(&entry.value)) return *value;
  const auto* value = std::get_if<std::uint64_t>(&entry.value);
  if (value == nullptr) return wrong_type(entry, "an integer");
  if (*value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    return fail(ErrorCode::corrupt_file, "metadata key {s}, which is out of range", {},
                quoted(entry.key) + " is " + std::to_string(*value));
  }
  return static_cast<std::int64_t>(*value);
}

Result<double> number_of(const GgufEntry& entry) {
  if (const auto* value = std::get_if<double>(&entry.value)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&entry.value)) {
    return static_cast<double>(*value);
  }
  if (const auto* value = std::get_if<std::uint64_t>(&entry.value)) {
    return static_cast<double>(*value);
  }
  return wrong_type(entry, "a number");
}

// Calls visit(T{}) with the C++ type of a number's elements; false where they are not numbers.
template <typename Visit>
bool with_integer_type(GgufType type, Visit visit) {
  switch (type) {
    case GgufType::u8: return visit(std::uint8_t{}), true;
    case GgufType::i8: return visit(std::int8_t{}), true;
    case GgufType::u16: return visit(std::uint16_t{}), true;
    case GgufType::i16: return visit(std::int16_t{}), true;
    case GgufType::u32: return visit(std::uint32_t{}), true;
    case GgufType::i32: return visit(std::int32_t{}), true;
    case GgufType::u64: return visit(std::uint64_t{}), true;
    case GgufType::i64: return visit(std::int64_t{}), true;
    default: return false;
  }
}

template <typename Visit>
bool with_number_type(GgufType type, Visit visit) {
  switch (type) {
    case GgufType::f32: return visit(float{}), true;
    case GgufType::f64: return visit(double{}), true;
    default: return with_integer_type(type, visit);
  }
}

// The elements of an array, each converted to Wide.
template <typename Wide, typename Stored>
std::vector<Wide> convert(const GgufArray& array) {
  std::vector<Wide> out(static_cast<std::size_t>(array.count));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<Wide>(load<Stored>(array.bytes.data() + i * sizeof(Stored)));
  }
  return out;
}

}  // namespace

std::string_view name(GgufType type) {
  switch (type) {
    case GgufType::u8: return "u8";
    case GgufType::i8: return "i8";
    case GgufType::u16: return "u16";
    case GgufType::i16: return "i16";
    case GgufType::u32: return "u32";
    case GgufType::i32: return "i32";
    case GgufType::f32: return "f32";
    case GgufType::boolean: return "bool";
    case GgufType::string: return "string";
    case GgufType::array: return "array";
    case GgufType::u64: return "u64";
    case GgufType::i64: return "i64";
    case GgufType::f64: return "f64";
  }
  return "?";
}

const GgufEntry* GgufFile::find(std::string_view key) const {
  const auto found = key_index_.find(key);
  return found == key_index_.end() ? nullptr : &metadata_[found->second];
}

const TensorView* GgufFile::find_tensor(std::string_view tensor_name) const {
  const auto found = tensor_index_.find(tensor_name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

Result<TensorView> GgufFile::readable_tensor(std::string_view tensor_name) const {
  const TensorView* tensor = find_tensor(tensor_name);
  if (tensor == nullptr) {
    return fail(ErrorCode::corrupt_file, "tensor {s} is missing", {}, quoted(tensor_name));
  }
  if (auto status = check_readable(*tensor); !status) return tl::unexpected(status.error());
  return *tensor;
}

Result<std::int64_t> GgufFile::integer(std::string_view key) const {
  const GgufEntry* entry = find(key);
  return entry == nullptr ? Result<std::int64_t>(missing(key)) : integer_of(*entry);
}

Result<double> GgufFile::number(std::string_view key) const {
  const GgufEntry* entry = find(key);
  return entry == nullptr ? Result<double>(missing(key)) : number_of(*entry);
}

Result<bool> GgufFile::boolean(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return missing(key);
  const auto* value = std::get_if<bool>(&entry->value);
  if (value == nullptr) return wrong_type(*entry, "bool");
  return *value;
}

Result<std::string_view> GgufFile::string(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return missing(key);
  const auto* value = std::get_if<std::string_view>(&entry->value);
  if (value == nullptr) return wrong_type(*entry, "string");
  return *value;
}

Result<std::span<const std::string_view>> GgufFile::strings(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return missing(key);
  const auto* array = std::get_if<GgufArray>(&entry->value);
  if (array == nullptr || array->element != GgufType::string) {
    return wrong_type(*entry, "array of string");
  }
  return std::span<const std::string_view>(array->strings);
}

Result<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return missing(key);
  const auto* array = std::get_if<GgufArray>(&entry->value);
  std::vector<std::int64_t> out;
  const bool found = array != nullptr && with_integer_type(array->element, [&](auto stored) {
                       out = convert<std::int64_t, decltype(stored)>(*array);
                     });
  if (!found) return wrong_type(*entry, "array of integers");
  if (array->element == GgufType::u64) {
    for (const std::int64_t value : out) {
      if (value >= 0) continue;
      return fail(ErrorCode::corrupt_file, "metadata key {s}, which is out of range", {},
                  quoted(key) + " holds " + std::to_string(static_cast<std::uint64_t>(value)));
    }
  }
  return out;
}

Result<std::vector<double>> GgufFile::numbers(std::string_view key) const {
  const GgufEntry* entry = find(key);
  if (entry == nullptr) return missing(key);
  const auto* array = std::get_if<GgufArray>(&entry->value);
  std::vector<double> out;
  const bool found = array != nullptr && with_number_type(array->element, [&](auto stored) {
                       out = convert<double, decltype(stored)>(*array);
                     });
  if (!found) return wrong_type(*entry, "array of numbers");
  return out;
}

Result<std::int64_t> GgufFile::integer_or(std::string_view key, std::int64_t fallback) const {
  return find(key) == nullptr ? Result<std::int64_t>(fallback) : integer(key);
}

Result<double> GgufFile::number_or(std::string_view key, double fallback) const {
  return find(key) == nullptr ? Result<double>(fallback) : number(key);
}

Result<bool> GgufFile::boolean_or(std::string_view key, bool fallback) const {
  return find(key) == nullptr ? Result<bool>(fallback) : boolean(key);
}

Result<std::string_view> GgufFile::string_or(std::string_view key,
                                             std::string_view fallback) const {
  return find(key) == nullptr ? Result<std::string_view>(fallback) : string(key);
}

}  // namespace pagekv::inline v0::engine
