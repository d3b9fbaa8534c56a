#include "pagekv/snapshot.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/prefix/digest.h"
#include "core/reserve_step.h"
#include "core/store_core.h"
#include "core/windows.h"
#include "io/checksum.h"
#include "io/file.h"
#include "io/parallel.h"
#include "io/snapshot_header.h"

namespace pagekv::inline v0 {

using internal::guard_memory;
using internal::InputFile;
using internal::OutputFile;
using internal::SnapshotHeader;
using internal::SnapshotPart;
using internal::StoreCore;

namespace {

constexpr std::int64_t kTokensPerStep = 1024;  // of a load: windows let go of pages in between

using Buffer = std::vector<std::byte>;

// --- save --------------------------------------------------------------------------------------

SnapshotHeader describe(const Store& store, ViewRef view, std::int64_t all_tokens,
                        const SaveOptions& options) {
  SnapshotHeader header;
  header.tokens = view.length();
  header.all_tokens = all_tokens;
  header.note = options.note;
  for (int layer = 0; layer < store.layout().layer_count(); ++layer) {
    const LayerLayout& layout = store.layout().layer(layer);
    header.layers.push_back(layout.spec);
    header.first.push_back(std::min(view.length(), store.first(view, layout.group)));
  }
  internal::set_identity(header, options.identity, internal::numerics_id(store.device().name()));
  return header;
}

void fill(const Store& store, ViewRef view, std::span<const TokenId> tokens,
          const SnapshotPart& part, Buffer& buffer) {
  buffer.assign(static_cast<std::size_t>(part.padded_bytes), std::byte{0});
  if (part.layer < 0) {
    if (!tokens.empty()) std::memcpy(buffer.data(), tokens.data(), tokens.size_bytes());
    return;
  }
  StoreCore& core = *store.core();
  const LayerLayout& layer = core.layout().layer(part.layer);
  const internal::PageTable& table = view.holder()->table(layer.group);
  const internal::ReadSpan span{
      .pages = table.pages.data(), .begin = part.first, .end = view.length()};
  for (int head = 0; head < layer.spec.kv_heads; ++head) {
    core.backend().read_plane(core.address(part.layer), span, {part.keys, part.plane, head},
                              buffer.data() + head * (span.end - span.begin) * part.row_bytes);
  }
}

// Fills, sums and writes every part, several at a time.
Status write_parts(const Store& store, ViewRef view, std::span<const TokenId> tokens,
                   OutputFile& file, SnapshotHeader& header) {
  Executor& executor = store.core()->backend().executor();
  std::vector<Buffer> buffers(static_cast<std::size_t>(executor.threads()));
  const auto write = [&](int worker, std::int64_t index) -> Status {
    SnapshotPart& part = header.parts[static_cast<std::size_t>(index)];
    Buffer& buffer = buffers[static_cast<std::size_t>(worker)];
    fill(store, view, tokens, part, buffer);
    part.checksum = internal::checksum(buffer, part.tensor.bytes);
    return file.write(part.tensor.offset, buffer);
  };
  return internal::try_for_each(executor, static_cast<std::int64_t>(header.parts.size()), write);
}

// --- load --------------------------------------------------------------------------------------

Status differs(const InputFile& file, const std::string& what, const std::string& has,
               const std::string& wanted) {
  return fail(ErrorCode::invalid_argument, "{s}", {},
              file.path() + ": " + what + " is " + (has.empty() ? "empty" : "\"" + has + "\"") +
                  " in the file, " + (wanted.empty() ? "empty" : "\"" + wanted + "\"") + " here");
}

Status check_layer(const InputFile& file, int layer, const LayerSpec& has,
                   const LayerSpec& wanted) {
  const std::string of = " of layer " + std::to_string(layer);
  const std::pair<const char*, std::pair<std::int64_t, std::int64_t>> numbers[] = {
      {"number of KV heads", {has.kv_heads, wanted.kv_heads}},
      {"key dim", {has.key_dim, wanted.key_dim}},
      {"value dim", {has.value_dim, wanted.value_dim}},
      {"window", {has.window_tokens, wanted.window_tokens}},
      {"donor", {has.donor, wanted.donor}}};
  for (const auto& [what, values] : numbers) {
    if (values.first == values.second) continue;
    return differs(file, what + of, std::to_string(values.first), std::to_string(values.second));
  }
  if (has.format == wanted.format) return {};
  return differs(file, "format" + of, has.format.name(), wanted.format.name());
}

Status check_fits(const InputFile& file, const SnapshotHeader& header, const Store& store,
                  const LoadOptions& options) {
  SnapshotHeader wanted;
  internal::set_identity(wanted, options.identity, internal::numerics_id(store.device().name()));
  const std::pair<const char*, std::pair<std::string, std::string>> texts[] = {
      {"model", {header.model, wanted.model}},
      {"adapter", {header.adapter, wanted.adapter}},
      {"salt", {header.salt_digest, wanted.salt_digest}},
      {"arithmetic", {header.arithmetic, wanted.arithmetic}},
      {"numerics", {header.numerics, options.any_numerics ? header.numerics : wanted.numerics}}};
  for (const auto& [what, values] : texts) {
    if (values.first != values.second) return differs(file, what, values.first, values.second);
  }
  const int layers = store.layout().layer_count();
  if (static_cast<int>(header.layers.size()) != layers) {
    return differs(file, "number of layers", std::to_string(header.layers.size()),
                   std::to_string(layers));
  }
  for (int layer = 0; layer < layers; ++layer) {
    if (auto ok = check_layer(file, layer, header.layers[static_cast<std::size_t>(layer)],
                              store.layout().layer(layer).spec);
        !ok) {
      return ok;
    }
  }
  return {};
}

// Whether a sequence of `tokens` tokens finds what its next row would see.
Status check_windows(const SnapshotHeader& header, std::int64_t tokens) {
  for (std::size_t layer = 0; layer < header.layers.size(); ++layer) {
    const std::int64_t window = header.layers[layer].window_tokens;
    const std::int64_t needed = internal::first_needed_token(window, tokens);
    if (window == 0 || tokens == 0 || header.first[layer] <= needed) continue;
    return fail(ErrorCode::window_lost,
                "a prefix of {2} tokens needs rows from token {0} on, layer {3} of the file has "
                "them from token {1} on",
                {needed, header.first[layer], tokens, static_cast<std::int64_t>(layer)});
  }
  return {};
}

Status verify_part(const InputFile& file, const SnapshotPart& part, Buffer& buffer) {
  buffer.resize(static_cast<std::size_t>(part.padded_bytes));
  if (auto ok = file.read(part.tensor.offset, buffer); !ok) return ok;
  if (internal::checksum(buffer, part.tensor.bytes) == part.checksum) return {};
  return fail(ErrorCode::corrupt_file, "{s}", {},
              file.path() + ": the data of " + part.tensor.name + " does not match its checksum");
}

Status verify_parts(const InputFile& file, const SnapshotHeader& header, Executor& executor) {
  std::vector<Buffer> buffers(static_cast<std::size_t>(executor.threads()));
  const auto verify = [&](int worker, std::int64_t index) {
    return verify_part(file, header.parts[static_cast<std::size_t>(index)],
                       buffers[static_cast<std::size_t>(worker)]);
  };
  return internal::try_for_each(executor, static_cast<std::int64_t>(header.parts.size()), verify);
}

Result<std::vector<TokenId>> read_tokens(const InputFile& file, const SnapshotHeader& header) {
  std::vector<TokenId> tokens(static_cast<std::size_t>(header.all_tokens));
  const auto bytes = std::as_writable_bytes(std::span(tokens));
  if (auto ok = file.read(header.parts.front().tensor.offset, bytes); !ok) {
    return tl::unexpected(ok.error());
  }
  return tokens;
}

// A part's rows of one head.
struct HeadRows {
  const SnapshotPart* part;
  int head;
};

std::vector<HeadRows> all_heads(const SnapshotHeader& header) {
  std::vector<HeadRows> all;
  for (const SnapshotPart& part : header.parts) {
    if (part.layer < 0) continue;
    const int heads = header.layers[static_cast<std::size_t>(part.layer)].kv_heads;
    for (int head = 0; head < heads; ++head) all.push_back({&part, head});
  }
  return all;
}

// Those of tokens [begin, end), where the file has them, into the step's pages.
Status load_rows(const InputFile& file, const SnapshotHeader& header, const HeadRows& rows,
                 StoreCore& core, const internal::SequenceState& sequence, std::int64_t begin,
                 std::int64_t end, Buffer& buffer) {
  const SnapshotPart& part = *rows.part;
  begin = std::max(begin, part.first);
  if (begin >= end) return {};
  buffer.resize(static_cast<std::size_t>((end - begin) * part.row_bytes));
  const std::int64_t row = rows.head * (header.tokens - part.first) + begin - part.first;
  if (auto ok = file.read(part.tensor.offset + row * part.row_bytes, buffer); !ok) return ok;
  const internal::PageTable& table = sequence.table(core.layout().layer(part.layer).group);
  core.backend().write_plane(core.address(part.layer),
                             {.pages = table.pages.data(), .begin = begin, .end = end},
                             {part.keys, part.plane, rows.head}, buffer.data());
  return {};
}

// A sequence that grows to `tokens` tokens, step by step as one that is computed does.
Status load_steps(const InputFile& file, const SnapshotHeader& header, Store& store,
                  std::int64_t tokens, Sequence& sequence) {
  Executor& executor = store.core()->backend().executor();
  std::vector<Buffer> buffers(static_cast<std::size_t>(executor.threads()));
  const std::vector<HeadRows> heads = all_heads(header);
  for (std::int64_t begin = 0; begin < tokens; begin += kTokensPerStep) {
    const Append append{&sequence, std::min(kTokensPerStep, tokens - begin)};
    auto state = internal::reserve_step(store.core(), {&append, 1});
    if (!state) return tl::unexpected(state.error());
    std::fill((*state)->written.begin(), (*state)->written.end(), std::uint8_t{1});
    Step step(std::move(*state));
    const auto load = [&](int worker, std::int64_t index) {
      return load_rows(file, header, heads[static_cast<std::size_t>(index)], *store.core(),
                       *sequence.state(), begin, begin + append.tokens,
                       buffers[static_cast<std::size_t>(worker)]);
    };
    if (auto ok = internal::try_for_each(executor, static_cast<std::int64_t>(heads.size()), load);
        !ok) {
      return ok;
    }
    if (auto done = step.commit(); !done) return tl::unexpected(done.error());
  }
  return {};
}

// Of a window the file may have fewer rows than the sequence has pages for.
void note_first_rows(const SnapshotHeader& header, StoreCore& core,
                     internal::SequenceState& sequence) {
  const std::lock_guard lock(core.mutex());
  if (sequence.length == 0) return;
  for (std::size_t layer = 0; layer < header.layers.size(); ++layer) {
    const int group = core.layout().layer(static_cast<int>(layer)).group;
    internal::PageTable& table = sequence.table(group);
    core.let_go(group, table, header.first[layer] / core.layout().page_tokens());
    table.first_token = header.first[layer];
  }
}

}  // namespace

Result<std::int64_t> save(const Store& store, ViewRef view, std::span<const TokenId> tokens,
                          const std::string& path, const SaveOptions& options) {
  if (view.holder() == nullptr) return fail(ErrorCode::invalid_argument, "no view to save");
  if (view.holder()->store() != store.core()) {
    return fail(ErrorCode::wrong_store, "the view is of another store");
  }
  if (static_cast<std::int64_t>(tokens.size()) < view.length()) {
    return fail(ErrorCode::invalid_argument, "{0} tokens for a view of {1}",
                {static_cast<std::int64_t>(tokens.size()), view.length()});
  }
  if (options.note.size() > kMaxSnapshotNoteBytes) {
    return fail(ErrorCode::invalid_argument, "a note of {0} bytes; a snapshot takes {1}",
                {static_cast<std::int64_t>(options.note.size()),
                 static_cast<std::int64_t>(kMaxSnapshotNoteBytes)});
  }
  return guard_memory([&]() -> Result<std::int64_t> {
    for (const std::string* text :
         {&options.identity.model, &options.identity.adapter, &options.note}) {
      if (internal::is_utf8(*text)) continue;
      return fail(ErrorCode::invalid_argument, "model, adapter and note must be UTF-8");
    }
    SnapshotHeader header =
        describe(store, view, static_cast<std::int64_t>(tokens.size()), options);
    if (auto ok = internal::lay_out(header); !ok) return tl::unexpected(ok.error());
    auto file = OutputFile::create(path);
    if (!file) return tl::unexpected(file.error());
    if (auto ok = write_parts(store, view, tokens, *file, header); !ok) {
      return tl::unexpected(ok.error());
    }
    const std::string text = internal::write_header(header);
    if (auto ok = file->write(0, std::as_bytes(std::span(text))); !ok) {
      return tl::unexpected(ok.error());
    }
    if (auto ok = file->finish(options.sync); !ok) return tl::unexpected(ok.error());
    return header.file_bytes;
  });
}

Result<LoadedSequence> load(Store& store, const std::string& path, const LoadOptions& options) {
  return guard_memory([&]() -> Result<LoadedSequence> {
    auto file = InputFile::open(path);
    if (!file) return tl::unexpected(file.error());
    auto header = internal::read_header(*file);
    if (!header) return tl::unexpected(header.error());
    const std::int64_t length =
        options.max_tokens < 0 ? header->tokens : std::min(options.max_tokens, header->tokens);
    Status fits = check_fits(*file, *header, store, options);
    if (fits) fits = check_windows(*header, length);
    if (fits && options.verify)
      fits = verify_parts(*file, *header, store.core()->backend().executor());
    if (!fits) return tl::unexpected(fits.error());
    auto tokens = read_tokens(*file, *header);
    if (!tokens) return tl::unexpected(tokens.error());
    if (length < header->tokens) tokens->resize(static_cast<std::size_t>(length));
    auto sequence = store.create_sequence();
    if (!sequence) return tl::unexpected(sequence.error());
    if (auto ok = load_steps(*file, *header, store, length, *sequence); !ok) {
      return tl::unexpected(ok.error());
    }
    note_first_rows(*header, *store.core(), *sequence->state());
    return LoadedSequence{std::move(*sequence), std::move(*tokens), std::move(header->note)};
  });
}

Result<SnapshotInfo> inspect(const std::string& path, bool verify) {
  return guard_memory([&]() -> Result<SnapshotInfo> {
    auto file = InputFile::open(path);
    if (!file) return tl::unexpected(file.error());
    auto header = internal::read_header(*file);
    if (!header) return tl::unexpected(header.error());
    if (verify) {
      const auto executor = make_serial_executor();
      if (auto ok = verify_parts(*file, *header, *executor); !ok) return tl::unexpected(ok.error());
    }
    SnapshotInfo info{.version = header->version,
                      .tokens = header->tokens,
                      .layers = header->layers,
                      .numerics = header->numerics,
                      .model = header->model,
                      .adapter = header->adapter,
                      .arithmetic = header->arithmetic,
                      .note = header->note,
                      .file_bytes = header->file_bytes,
                      .tensors = {}};
    for (SnapshotPart& part : header->parts) info.tensors.push_back(std::move(part.tensor));
    return info;
  });
}

}  // namespace pagekv::inline v0
