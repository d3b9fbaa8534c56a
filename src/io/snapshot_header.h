// What stands before the data of a snapshot: which tensors there are and where, and the metadata.
// docs/snapshots.md describes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "codec/arrangement.h"
#include "io/file.h"
#include "pagekv/layout.h"
#include "pagekv/snapshot.h"

namespace pagekv::inline v0::internal {

inline constexpr std::int64_t kSnapshotVersion = 1;
inline constexpr std::int64_t kSnapshotAlignment = 4096;  // of data in the file

// A plane of one side of a layer, or the tokens.
struct SnapshotPart {
  SnapshotTensor tensor;
  int layer = -1;  // -1: the tokens
  bool keys = false;
  int plane = 0;
  std::int64_t row_bytes = 0;     // of one token in one head
  std::int64_t first = 0;         // token of the first row
  std::int64_t padded_bytes = 0;  // with the padding behind it
  std::uint64_t checksum = 0;
};

struct SnapshotHeader {
  std::int64_t version = kSnapshotVersion;
  std::int64_t tokens = 0;      // whose rows are stored
  std::int64_t all_tokens = 0;  // that are named
  std::vector<LayerSpec> layers;
  std::vector<std::int64_t> first;  // by layer: token of the first row that is stored
  std::string model, adapter, salt_digest, numerics, arithmetic;
  std::string note;
  std::vector<SnapshotPart> parts;  // in the order of the file

  std::int64_t header_bytes = 0;  // up to the data
  std::int64_t file_bytes = 0;
};

// The identity as it stands in files.
void set_identity(SnapshotHeader& header, const NamespaceSpec& spec, const std::string& numerics);
// Whether a text can stand in the header. What is no UTF-8 would not come back as it was.
bool is_utf8(const std::string& text);
// Fills parts, header_bytes and file_bytes from all that stands before them. Errors:
// invalid_argument (layers that no layout has).
Status lay_out(SnapshotHeader& header);
// The first header_bytes of the file, checksums included.
std::string write_header(const SnapshotHeader& header);
// Errors: corrupt_file, unsupported, io_error.
Result<SnapshotHeader> read_header(const InputFile& file);

}  // namespace pagekv::inline v0::internal
