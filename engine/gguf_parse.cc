// GgufFile::parse(): from bytes to checked metadata and tensor views.
#include <algorithm>
#include <limits>
#include <utility>

#include "engine/byte_reader.h"
#include "engine/gguf.h"

namespace pagekv::inline v0::engine {
namespace {

constexpr std::int64_t kMaxDimensions = 4;
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

// Least bytes of a metadata entry (empty key, one-byte value) and of a tensor entry (empty name,
// one dimension): counts that promise more entries than the file has room for are refused at once.
constexpr std::int64_t kLeastMetadataBytes = 8 + 4 + 1;
constexpr std::int64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;

// Bytes of one value; 0 for strings and arrays, -1 for a number that is no type.
std::int64_t value_bytes(std::uint32_t type) {
  switch (static_cast<GgufType>(type)) {
    case GgufType::u8:
    case GgufType::i8:
    case GgufType::boolean: return 1;
    case GgufType::u16:
    case GgufType::i16: return 2;
    case GgufType::u32:
    case GgufType::i32:
    case GgufType::f32: return 4;
    case GgufType::u64:
    case GgufType::i64:
    case GgufType::f64: return 8;
    case GgufType::string:
    case GgufType::array: return 0;
  }
  return -1;
}

Result<std::string_view> read_string(ByteReader& reader, std::string_view what) {
  const auto length = reader.read<std::uint64_t>(std::string("length of the ").append(what));
  if (!length) return tl::unexpected(length.error());
  const auto bytes = reader.take(*length, what);
  if (!bytes) return tl::unexpected(bytes.error());
  return std::string_view(reinterpret_cast<const char*>(bytes->data()), bytes->size());
}

}  // namespace

class GgufParser {
 public:
  explicit GgufParser(std::span<const std::byte> bytes) : bytes_(bytes), reader_(bytes) {}

  Result<GgufFile> run() {
    if (auto status = read_header(); !status) return tl::unexpected(status.error());
    for (std::int64_t i = 0; i < metadata_count_; ++i) {
      if (auto status = read_entry(i); !status) return tl::unexpected(status.error());
    }
    if (auto status = read_alignment(); !status) return tl::unexpected(status.error());
    for (std::int64_t i = 0; i < tensor_count_; ++i) {
      if (auto status = read_tensor(i); !status) return tl::unexpected(status.error());
    }
    if (auto status = place_tensors(); !status) return tl::unexpected(status.error());
    return std::move(file_);
  }

 private:
  Status read_header();
  Result<std::int64_t> read_count(std::string_view what, std::int64_t least_bytes);
  Status read_entry(std::int64_t index);
  Status read_value(GgufEntry& entry);
  Status read_array(GgufArray& array);
  Result<std::uint32_t> read_type();
  Status read_alignment();
  Status read_tensor(std::int64_t index);
  Status read_shape(TensorView& tensor);
  Status place_tensors();
  Status check_overlap() const;

  template <typename Stored, typename Wide>
  Status read_number(GgufEntry& entry) {
    const auto value = reader_.read<Stored>("value");
    if (!value) return tl::unexpected(value.error());
    entry.value = static_cast<Wide>(*value);
    return {};
  }

  std::span<const std::byte> bytes_;
  ByteReader reader_;
  GgufFile file_;
  std::int64_t metadata_count_ = 0;
  std::int64_t tensor_count_ = 0;
  std::vector<std::uint64_t> offsets_;         // of each tensor, from the start of the data
  std::vector<std::int64_t> sizes_;            // bytes of each tensor
  std::vector<std::int64_t> entry_positions_;  // byte where each tensor's entry begins
};

Status GgufParser::read_header() {
  reader_.set_subject("the file header", -1);
  const auto magic = reader_.take(4, "magic");
  if (!magic) return tl::unexpected(magic.error());
  const std::string_view text(reinterpret_cast<const char*>(magic->data()), 4);
  if (text != "GGUF") {
    return fail(ErrorCode::corrupt_file, "no GGUF file: it begins with {s}, not with 'GGUF'", {},
                quoted(text));
  }
  const auto version = reader_.read<std::uint32_t>("version");
  if (!version) return tl::unexpected(version.error());
  if ((*version & 0xffffu) == 0 && *version != 0) {
    return fail(ErrorCode::unsupported, "GGUF file of the big-endian kind; little-endian is read");
  }
  if (*version != 2 && *version != 3) {
    return fail(ErrorCode::unsupported, "GGUF version {0}; versions 2 and 3 are read", {*version});
  }
  file_.version_ = *version;
  const auto tensors = read_count("number of tensors", kLeastTensorBytes);
  if (!tensors) return tl::unexpected(tensors.error());
  const auto entries = read_count("number of metadata keys", kLeastMetadataBytes);
  if (!entries) return tl::unexpected(entries.error());
  tensor_count_ = *tensors;
  metadata_count_ = *entries;
  return {};
}

Result<std::int64_t> GgufParser::read_count(std::string_view what, std::int64_t least_bytes) {
  const std::int64_t at = reader_.offset();
  const auto count = reader_.read<std::uint64_t>(what);
  if (!count) return tl::unexpected(count.error());
  if (*count > static_cast<std::uint64_t>(reader_.remaining() / least_bytes)) {
    return fail(ErrorCode::corrupt_file,
                "the {s} at byte {0}, more than fit into the {1} bytes behind it",
                {at, reader_.remaining()}, std::string(what) + " is " + std::to_string(*count));
  }
  return static_cast<std::int64_t>(*count);
}

Result<std::uint32_t> GgufParser::read_type() {
  const std::int64_t at = reader_.offset();
  const auto type = reader_.read<std::uint32_t>("value type");
  if (!type) return tl::unexpected(type.error());
  if (value_bytes(*type) < 0) {
    return fail(ErrorCode::corrupt_file, "{s} has value type {0} at byte {1}; types are 0 to 12",
                {*type, at}, reader_.subject());
  }
  return type;
}

Status GgufParser::read_entry(std::int64_t index) {
  reader_.set_subject("metadata key", index);
  const std::int64_t at = reader_.offset();
  const auto key = read_string(reader_, "name");
  if (!key) return tl::unexpected(key.error());
  if (key->empty()) {
    return fail(ErrorCode::corrupt_file, "metadata key {0} at byte {1} is empty", {index, at});
  }
  reader_.set_subject("metadata key", index, *key);
  if (!file_.key_index_.emplace(*key, file_.metadata_.size()).second) {
    return fail(ErrorCode::corrupt_file, "metadata key {s} appears a second time at byte {0}", {at},
                quoted(*key));
  }
  const auto type = read_type();
  if (!type) return tl::unexpected(type.error());
  GgufEntry entry{*key, static_cast<GgufType>(*type), std::uint64_t{0}};
  if (auto status = read_value(entry); !status) return status;
  file_.metadata_.push_back(std::move(entry));
  return {};
}

Status GgufParser::read_value(GgufEntry& entry) {
  switch (entry.type) {
    case GgufType::u8: return read_number<std::uint8_t, std::uint64_t>(entry);
    case GgufType::u16: return read_number<std::uint16_t, std::uint64_t>(entry);
    case GgufType::u32: return read_number<std::uint32_t, std::uint64_t>(entry);
    case GgufType::u64: return read_number<std::uint64_t, std::uint64_t>(entry);
    case GgufType::i8: return read_number<std::int8_t, std::int64_t>(entry);
    case GgufType::i16: return read_number<std::int16_t, std::int64_t>(entry);
    case GgufType::i32: return read_number<std::int32_t, std::int64_t>(entry);
    case GgufType::i64: return read_number<std::int64_t, std::int64_t>(entry);
    case GgufType::f32: return read_number<float, double>(entry);
    case GgufType::f64: return read_number<double, double>(entry);
    case GgufType::boolean: {
      const std::int64_t at = reader_.offset();
      const auto value = reader_.read<std::uint8_t>("value");
      if (!value) return tl::unexpected(value.error());
      if (*value > 1) {
        return fail(ErrorCode::corrupt_file, "{s}: a bool is 0 or 1, byte {0} is {1}", {at, *value},
                    reader_.subject());
      }
      entry.value = *value == 1;
      return {};
    }
    case GgufType::string: {
      const auto value = read_string(reader_, "value");
      if (!value) return tl::unexpected(value.error());
      entry.value = *value;
      return {};
    }
    case GgufType::array: {
      GgufArray array;
      if (auto status = read_array(array); !status) return status;
      entry.value = std::move(array);
      return {};
    }
  }
  return {};
}

Status GgufParser::read_array(GgufArray& array) {
  const auto type = read_type();
  if (!type) return tl::unexpected(type.error());
  array.element = static_cast<GgufType>(*type);
  if (array.element == GgufType::array) {
    return fail(ErrorCode::unsupported, "{s} is an array of arrays at byte {0}",
                {reader_.offset() - 4}, reader_.subject());
  }
  const bool strings = array.element == GgufType::string;
  array.element_bytes = value_bytes(*type);
  const auto count = read_count("array length of " + reader_.subject(),
                                strings ? std::int64_t{8} : array.element_bytes);
  if (!count) return tl::unexpected(count.error());
  array.count = *count;
  if (!strings) {
    const auto bytes = reader_.take(
        static_cast<std::uint64_t>(array.count) * static_cast<std::uint64_t>(array.element_bytes),
        "elements");
    if (!bytes) return tl::unexpected(bytes.error());
    array.bytes = *bytes;
    return {};
  }
  array.strings.reserve(static_cast<std::size_t>(array.count));
  for (std::int64_t i = 0; i < array.count; ++i) {
    const auto value = read_string(reader_, "element");
    if (!value) return tl::unexpected(value.error());
    array.strings.push_back(*value);
  }
  return {};
}

Status GgufParser::read_alignment() {
  const auto alignment = file_.integer_or("general.alignment", file_.alignment_);
  if (!alignment) return tl::unexpected(alignment.error());
  const bool power_of_two = *alignment > 0 && (*alignment & (*alignment - 1)) == 0;
  if (!power_of_two || *alignment < 8 || *alignment > std::numeric_limits<std::uint32_t>::max()) {
    return fail(ErrorCode::corrupt_file,
                "general.alignment is {0}; powers of two from 8 to 2^31 are legal", {*alignment});
  }
  file_.alignment_ = *alignment;
  return {};
}

Status GgufParser::read_tensor(std::int64_t index) {
  reader_.set_subject("tensor", index);
  entry_positions_.push_back(reader_.offset());
  const auto tensor_name = read_string(reader_, "name");
  if (!tensor_name) return tl::unexpected(tensor_name.error());
  if (tensor_name->empty()) {
    return fail(ErrorCode::corrupt_file, "tensor {0} at byte {1} has no name",
                {index, entry_positions_.back()});
  }
  reader_.set_subject("tensor", index, *tensor_name);
  if (!file_.tensor_index_.emplace(*tensor_name, file_.tensors_.size()).second) {
    return fail(ErrorCode::corrupt_file, "tensor {s} appears a second time at byte {0}",
                {entry_positions_.back()}, quoted(*tensor_name));
  }
  TensorView tensor;
  tensor.name = *tensor_name;
  if (auto status = read_shape(tensor); !status) return status;
  const auto offset = reader_.read<std::uint64_t>("data offset");
  if (!offset) return tl::unexpected(offset.error());
  if (*offset % static_cast<std::uint64_t>(file_.alignment_) != 0) {
    return fail(ErrorCode::corrupt_file, "{s}, which is no multiple of the alignment {0}",
                {file_.alignment_},
                "the data offset of " + reader_.subject() + " is " + std::to_string(*offset));
  }
  offsets_.push_back(*offset);
  file_.tensors_.push_back(std::move(tensor));
  return {};
}

// Dimensions and type; leaves the tensor's bytes in sizes_.
Status GgufParser::read_shape(TensorView& tensor) {
  const std::int64_t at = reader_.offset();
  const auto dimensions = reader_.read<std::uint32_t>("number of dimensions");
  if (!dimensions) return tl::unexpected(dimensions.error());
  if (*dimensions < 1 || *dimensions > kMaxDimensions) {
    return fail(ErrorCode::corrupt_file, "{s} has {0} dimensions at byte {1}; 1 to {2} are legal",
                {*dimensions, at, kMaxDimensions}, reader_.subject());
  }
  std::int64_t elements = 1;
  for (std::uint32_t i = 0; i < *dimensions; ++i) {
    const auto dimension = reader_.read<std::uint64_t>("shape");
    if (!dimension) return tl::unexpected(dimension.error());
    if (*dimension == 0 || *dimension > static_cast<std::uint64_t>(kMaxInt64 / elements)) {
      return fail(ErrorCode::corrupt_file, "{s} at byte {0}: an empty or impossibly large shape",
                  {reader_.offset() - 8},
                  "dimension " + std::to_string(i) + " of " + reader_.subject() + " is " +
                      std::to_string(*dimension));
    }
    tensor.shape.push_back(static_cast<std::int64_t>(*dimension));
    elements *= tensor.shape.back();
  }
  const auto type = reader_.read<std::uint32_t>("tensor type");
  if (!type) return tl::unexpected(type.error());
  const TensorTypeInfo* type_info = find_tensor_type(*type);
  if (type_info == nullptr) {
    return fail(ErrorCode::unsupported, "{s} has the unknown tensor type {0} at byte {1}",
                {*type, reader_.offset() - 4}, reader_.subject());
  }
  tensor.type = type_info->type;
  if (tensor.columns() % type_info->block_elements != 0) {
    return fail(ErrorCode::corrupt_file, "{s} has rows of {0} elements, no multiple of {1}",
                {tensor.columns(), type_info->block_elements},
                reader_.subject() + " of type " + std::string(type_info->name));
  }
  const std::int64_t blocks = elements / type_info->block_elements;
  if (blocks > static_cast<std::int64_t>(bytes_.size()) / type_info->block_bytes) {
    return fail(ErrorCode::corrupt_file,
                "{s} has {0} elements, more than the whole file of {1} bytes holds",
                {elements, static_cast<std::int64_t>(bytes_.size())}, reader_.subject());
  }
  sizes_.push_back(blocks * type_info->block_bytes);
  return {};
}

// Points every tensor at its bytes behind the padding.
Status GgufParser::place_tensors() {
  if (file_.tensors_.empty()) return {};
  const std::int64_t past_entries = reader_.offset() + (file_.alignment_ - 1);
  const std::int64_t data_begin = past_entries / file_.alignment_ * file_.alignment_;
  const std::int64_t data_bytes =
      std::max<std::int64_t>(static_cast<std::int64_t>(bytes_.size()) - data_begin, 0);
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const auto room = static_cast<std::uint64_t>(data_bytes);
    if (offsets_[i] > room || static_cast<std::uint64_t>(sizes_[i]) > room - offsets_[i]) {
      return fail(
          ErrorCode::corrupt_file,
          "{s}, but the file's data has {1} bytes from byte {0} on: it is truncated, or this "
          "entry (byte {2}) is wrong",
          {data_begin, data_bytes, entry_positions_[i]},
          "tensor " + quoted(file_.tensors_[i].name) + " needs " + std::to_string(sizes_[i]) +
              " bytes at data offset " + std::to_string(offsets_[i]));
    }
    file_.tensors_[i].data =
        bytes_.subspan(static_cast<std::size_t>(data_begin) + static_cast<std::size_t>(offsets_[i]),
                       static_cast<std::size_t>(sizes_[i]));
  }
  return check_overlap();
}

// Tensors that share bytes would let a small file ask for any amount of memory.
Status GgufParser::check_overlap() const {
  std::vector<std::size_t> order(offsets_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [this](std::size_t a, std::size_t b) { return offsets_[a] < offsets_[b]; });
  for (std::size_t i = 1; i < order.size(); ++i) {
    const std::size_t before = order[i - 1];
    const std::size_t after = order[i];
    if (offsets_[before] + static_cast<std::uint64_t>(sizes_[before]) > offsets_[after]) {
      return fail(
          ErrorCode::corrupt_file, "tensors {s} overlap at data offset {0}",
          {static_cast<std::int64_t>(offsets_[after])},
          quoted(file_.tensors_[before].name) + " and " + quoted(file_.tensors_[after].name));
    }
  }
  return {};
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  return GgufParser(bytes).run();
}

}  // namespace pagekv::inline v0::engine
