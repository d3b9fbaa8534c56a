// Any bytes as the beginning of a snapshot: as they are; with length, checksum and size of the file
// put right, which chance would not; and as the description of one, which is written and read back.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

#include "core/prefix/digest.h"
#include "fuzz/require.h"
#include "io/checksum.h"
#include "io/file.h"
#include "io/snapshot_header.h"

namespace {

using pagekv::LayerSpec;
using pagekv::Result;
using pagekv::fuzz::require;
using pagekv::internal::InputFile;
using pagekv::internal::kSnapshotAlignment;
using pagekv::internal::SnapshotHeader;
using pagekv::internal::SnapshotPart;

constexpr std::size_t kLengthBytes = 8;
constexpr std::int64_t kMostFileBytes = std::int64_t{1} << 60;

// A file in memory that begins with `bytes` and has `file_bytes`: the rest is a hole.
class MemoryFile {
 public:
  MemoryFile(std::string_view bytes, std::int64_t file_bytes)
      : descriptor_(::memfd_create("snapshot", MFD_CLOEXEC)) {
    require(descriptor_ >= 0, "there is memory for a file");
    require(
        ::pwrite(descriptor_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "a file in memory can be written");
    require(::ftruncate(descriptor_, file_bytes) == 0, "a file may have a hole");
  }
  ~MemoryFile() { ::close(descriptor_); }
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor_); }

 private:
  int descriptor_;
};

void check_parts(const SnapshotHeader& header, std::int64_t file_bytes) {
  std::int64_t end = header.header_bytes;
  std::set<std::string> names;
  for (const SnapshotPart& part : header.parts) {
    require(part.tensor.offset == end && end % kSnapshotAlignment == 0,
            "data follow each other, aligned");
    require(part.tensor.bytes >= 0 && part.tensor.bytes <= part.padded_bytes &&
                part.padded_bytes - part.tensor.bytes < kSnapshotAlignment,
            "padding goes up to the next multiple");
    require(names.insert(part.tensor.name).second, "no name stands for two tensors");
    require(part.first >= 0 && part.first <= header.tokens, "rows are those of tokens");
    end += part.padded_bytes;
  }
  require(end == file_bytes && header.file_bytes == file_bytes, "no byte of the file is unnamed");
}

Result<SnapshotHeader> read(std::string_view bytes, std::int64_t file_bytes) {
  const MemoryFile memory(bytes, file_bytes);
  const auto file = InputFile::open(memory.path());
  require(file.has_value(), "a file in memory can be opened");
  auto header = pagekv::internal::read_header(*file);
  if (!header) {
    require(!header.error().message().empty(), "an error has a text");
    return header;
  }
  require(header->header_bytes <= static_cast<std::int64_t>(bytes.size()), "headers are no holes");
  check_parts(*header, file_bytes);
  const auto header_bytes = static_cast<std::size_t>(header->header_bytes);
  require(pagekv::internal::write_header(*header) == bytes.substr(0, header_bytes),
          "equal contents have equal headers");
  return header;
}

// --- a header put right --------------------------------------------------------------------------

std::uint64_t length_of(std::string_view bytes) {
  std::uint64_t length = 0;
  for (std::size_t at = kLengthBytes; at-- > 0;) {
    length = length << 8 | static_cast<std::uint8_t>(bytes[at]);
  }
  return length;
}

std::string with_length(std::string_view text) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) {
    bytes += static_cast<char>(std::uint64_t{text.size()} >> shift & 0xff);
  }
  return bytes.append(text);
}

// The header's own sum is over it with zeros in its place.
void put_sum_right(std::string& bytes) {
  constexpr std::string_view kField = R"("xxh3":")";
  constexpr std::size_t kDigits = 16;
  const std::size_t field = bytes.find(kField);
  if (field == std::string::npos || field + kField.size() + kDigits > bytes.size()) return;
  bytes.replace(field + kField.size(), kDigits, kDigits, '0');
  const std::uint64_t sum = pagekv::internal::checksum(std::as_bytes(std::span(bytes)),
                                                       static_cast<std::int64_t>(bytes.size()));
  bytes.replace(field + kField.size(), kDigits, pagekv::internal::hex(sum));
}

// Where the last tensor ends, as the header has it.
std::int64_t data_bytes(std::string_view text) {
  const auto root = nlohmann::json::parse(text, nullptr, false);
  std::int64_t bytes = 0;
  if (!root.is_object()) return bytes;
  for (const auto& [name, tensor] : root.items()) {
    if (!tensor.is_object() || !tensor.contains("data_offsets")) continue;
    const auto& offsets = tensor["data_offsets"];
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[1].is_number_integer()) continue;
    bytes = std::max(bytes, offsets[1].get<std::int64_t>());
  }
  return bytes;
}

void check_repaired(std::string_view input) {
  if (input.size() < kLengthBytes) return;
  const std::uint64_t length = std::min<std::uint64_t>(length_of(input), input.size());
  std::string text(input.substr(kLengthBytes, static_cast<std::size_t>(length)));
  text.resize(text.find_last_not_of(' ') + 1);
  const std::int64_t data = data_bytes(text);
  if (data > kMostFileBytes) return;
  const auto alignment = static_cast<std::size_t>(kSnapshotAlignment);
  const std::size_t header = (text.size() + kLengthBytes + alignment - 1) / alignment * alignment;
  text.resize(header - kLengthBytes, ' ');
  std::string bytes = with_length(text);
  put_sum_right(bytes);
  (void)read(bytes, static_cast<std::int64_t>(bytes.size()) + data);
}

// --- a description -------------------------------------------------------------------------------

class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}

  // Small ones more often than large ones. 0 at the end.
  std::int64_t number(std::int64_t most) {
    const int bytes = 1 + static_cast<int>(byte() % 4);
    std::uint64_t number = 0;
    for (int at = 0; at < bytes; ++at) number = number << 8 | byte();
    return static_cast<std::int64_t>(number % (static_cast<std::uint64_t>(most) + 1));
  }
  std::string text() {
    const auto size = static_cast<std::size_t>(number(100));
    const std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(text.size());
    return text;
  }

 private:
  std::uint8_t byte() {
    if (bytes_.empty()) return 0;
    const auto first = static_cast<std::uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return first;
  }

  std::string_view bytes_;
};

constexpr std::array kFormats = {"f32",     "bf16:rot", "kv8",      "kv3:f16",
                                 "k8v4",    "k4v2",     "kv5:rot",  "k=codebook:5:head,v=f16",
                                 "kv2:f32", "f16",      "kv6:rot",  "k=affine:4:8,v=codebook:1:32",
                                 "bf16",    "kv4",      "k8v3:f16", "k=f32:rot,v=codebook:8:64"};

LayerSpec read_layer(Input& input) {
  LayerSpec layer;
  layer.kv_heads = 1 + static_cast<int>(input.number(1100));
  layer.key_dim = 8 + 8 * static_cast<int>(input.number(80));
  layer.value_dim = 8 + 8 * static_cast<int>(input.number(80));
  layer.window_tokens = input.number(1 << 20);
  layer.donor = static_cast<int>(input.number(8)) - 1;
  const auto format = static_cast<std::size_t>(input.number(kFormats.size() - 1));
  layer.format = *pagekv::Format::parse(kFormats[format]);
  return layer;
}

// What save() promises of a header before it lays it out.
SnapshotHeader read_description(std::string_view bytes) {
  Input input(bytes);
  SnapshotHeader header;
  header.tokens = input.number(std::int64_t{1} << 31);
  header.all_tokens = std::min(header.tokens + input.number(100), std::int64_t{1} << 31);
  for (std::int64_t layers = input.number(11); layers >= 0; --layers) {
    header.layers.push_back(read_layer(input));
    header.first.push_back(input.number(header.tokens));
  }
  for (std::string* text : {&header.model, &header.adapter, &header.salt_digest, &header.numerics,
                            &header.arithmetic, &header.note}) {
    *text = input.text();
  }
  return header;
}

void check_description(std::string_view bytes) {
  SnapshotHeader header = read_description(bytes);
  if (!pagekv::internal::lay_out(header)) return;
  std::uint64_t sum = 0;
  for (SnapshotPart& part : header.parts) part.checksum = sum += 0x0123456789abcdefu;
  const std::string written = pagekv::internal::write_header(header);
  require(static_cast<std::int64_t>(written.size()) == header.header_bytes,
          "a header has the bytes it was given");
  const auto again = read(written, header.file_bytes);
  require(again.has_value(), "what is written can be read");
  require(again->tokens == header.tokens && again->all_tokens == header.all_tokens &&
              again->layers.size() == header.layers.size() && again->first == header.first,
          "what is read was written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string bytes(data, data + size);
  (void)read(bytes, static_cast<std::int64_t>(size));
  check_repaired(bytes);
  check_description(bytes);
  return 0;
}
