// save, load, inspect: a view in one file, and back into any store with room.
//
// The file is a safetensors file (docs/snapshots.md): any tool of that ecosystem opens it and finds
// the tokens and, layer by layer, the stored planes of keys and values in canonical order,
// [kv_head][token][row], live tokens only. Equal content has equal bytes. What the content depends
// on stands in the metadata; a checksum covers each tensor with its padding, another one the
// header.
//
// load() looks at the whole file before it touches a page: a file that does not fit is refused with
// the field that differs, and the store is as it was. The store may have another page size, order
// or arrangement; layers, formats and windows must be the file's.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pagekv/error.h"
#include "pagekv/export.h"
#include "pagekv/prefix_index.h"
#include "pagekv/sequence.h"
#include "pagekv/store.h"
#include "pagekv/view.h"

namespace pagekv::inline v0 {

inline constexpr std::size_t kMaxSnapshotNoteBytes = std::size_t{1} << 20;

struct SaveOptions {
  // What the content depends on, UTF-8; the salt is kept as a digest only.
  NamespaceSpec identity = {};
  // Text of the caller's, UTF-8, at most kMaxSnapshotNoteBytes: what it needs to go on, such as the
  // state of a sampler. Empty: none.
  std::string note = {};
  bool sync = true;  // on the disk, and not only in the system's cache, when it returns
};

struct LoadOptions {
  NamespaceSpec identity = {};   // which the file must have
  bool verify = true;            // checksums of all data, not only of the header
  std::int64_t max_tokens = -1;  // load this many at most; -1: all
  // Take what another device or version of pagekv computed: its bytes are exact, but what is
  // computed next may differ in the last bits from what that one would have computed.
  bool any_numerics = false;
};

struct LoadedSequence {
  Sequence sequence;
  // Those of the sequence; where all were loaded, those behind it too that the file has.
  std::vector<TokenId> tokens;
  std::string note;
};

struct SnapshotTensor {
  std::string name;
  std::string dtype;  // as safetensors names it
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // bytes from the beginning of the file
  std::int64_t bytes = 0;
};

struct SnapshotInfo {
  std::int64_t version = 0;
  std::int64_t tokens = 0;  // whose rows are stored
  std::vector<LayerSpec> layers;
  std::string numerics;
  std::string model;
  std::string adapter;
  std::string arithmetic;
  std::string note;
  std::int64_t file_bytes = 0;
  std::vector<SnapshotTensor> tensors;  // in the order of the file, padding left out
};

// Writes the view's rows. `tokens`: those of the view, and perhaps more that are not computed yet.
// The file appears under its name when it is whole: until then a file of that name stays as it was.
// Returns its bytes. Errors: invalid_argument (fewer tokens than the view has; a note that is too
// long), wrong_store, io_error.
PAGEKV_API Result<std::int64_t> save(const Store& store, ViewRef view,
                                     std::span<const TokenId> tokens, const std::string& path,
                                     const SaveOptions& options = {});

// Errors: io_error, corrupt_file, unsupported (a version that is not known), invalid_argument (a
// field that differs, named), window_lost (a shorter prefix than windows allow), and those of
// Store::reserve().
PAGEKV_API Result<LoadedSequence> load(Store& store, const std::string& path,
                                       const LoadOptions& options = {});

// What a file holds, from its header; with `verify` all checksums are proved too. Errors: io_error,
// corrupt_file, unsupported.
PAGEKV_API Result<SnapshotInfo> inspect(const std::string& path, bool verify = false);

}  // namespace pagekv::inline v0
