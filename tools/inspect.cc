#include "tools/inspect.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/console.h"

namespace pagekv_tool {
namespace {

// Tensors of layer `layer`: "layers.3.".
std::int64_t bytes_of_layer(const pagekv::SnapshotInfo& info, std::size_t layer) {
  const std::string prefix = fmt::format("layers.{}.", layer);
  std::int64_t bytes = 0;
  for (const pagekv::SnapshotTensor& tensor : info.tensors) {
    if (tensor.name.starts_with(prefix)) bytes += tensor.bytes;
  }
  return bytes;
}

void print_json(const pagekv::SnapshotInfo& info) {
  auto layers = nlohmann::ordered_json::array();
  for (std::size_t at = 0; at < info.layers.size(); ++at) {
    const pagekv::LayerSpec& layer = info.layers[at];
    layers.push_back({{"layer", at},
                      {"kv_heads", layer.kv_heads},
                      {"key_dim", layer.key_dim},
                      {"value_dim", layer.value_dim},
                      {"format", layer.format.name()},
                      {"window", layer.window_tokens},
                      {"donor", layer.donor},
                      {"bytes", bytes_of_layer(info, at)}});
  }
  auto tensors = nlohmann::ordered_json::array();
  for (const pagekv::SnapshotTensor& tensor : info.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"dtype", tensor.dtype},
                       {"shape", tensor.shape},
                       {"offset", tensor.offset},
                       {"bytes", tensor.bytes}});
  }
  nlohmann::ordered_json object = {{"version", info.version},
                                   {"tokens", info.tokens},
                                   {"model", info.model},
                                   {"adapter", info.adapter},
                                   {"arithmetic", info.arithmetic},
                                   {"numerics", info.numerics},
                                   {"file_bytes", info.file_bytes},
                                   {"layers", layers},
                                   {"tensors", tensors}};
  if (!info.note.empty()) object["note"] = info.note;
  fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

void print_text(const pagekv::SnapshotInfo& info) {
  fmt::print("tokens      {}\nmodel       {}\nadapter     {}\narithmetic  {}\nnumerics    {}\n",
             info.tokens, info.model, info.adapter.empty() ? "none" : info.adapter, info.arithmetic,
             info.numerics);
  if (!info.note.empty()) fmt::print("note        {} bytes\n", info.note.size());
  fmt::print("file        {} ({} bytes), version {}\n\n",
             human_bytes(static_cast<double>(info.file_bytes)), info.file_bytes, info.version);
  fmt::print("{:>5}  {:>8}  {:>9}  {:>7}  {:<10}  {}\n", "layer", "kv heads", "dims", "window",
             "bytes", "format");
  for (std::size_t at = 0; at < info.layers.size(); ++at) {
    const pagekv::LayerSpec& layer = info.layers[at];
    const std::string stored = layer.donor >= 0
                                   ? fmt::format("layer {}'s", layer.donor)
                                   : human_bytes(static_cast<double>(bytes_of_layer(info, at)));
    fmt::print("{:>5}  {:>8}  {:>9}  {:>7}  {:<10}  {}\n", at, layer.kv_heads,
               fmt::format("{}/{}", layer.key_dim, layer.value_dim),
               layer.window_tokens > 0 ? std::to_string(layer.window_tokens) : "-", stored,
               layer.format.name());
  }
}

}  // namespace

CLI::App* add_inspect(CLI::App& app, InspectOptions& options) {
  CLI::App* inspect = app.add_subcommand("inspect", "Say what a snapshot holds");
  inspect->add_option("file", options.file, "The snapshot")->type_name("FILE")->required();
  inspect->add_flag("--verify", options.verify, "Prove the checksums of all data, too");
  inspect->add_flag("--json", options.json, "As one JSON object, with every tensor");
  return inspect;
}

int inspect(const InspectOptions& options) {
  const auto info = pagekv::inspect(options.file, options.verify);
  if (!info) return report_error(info.error().message());
  print_snapshot(*info, options.json);
  return kExitOk;
}

void print_snapshot(const pagekv::SnapshotInfo& info, bool json) {
  json ? print_json(info) : print_text(info);
}

}  // namespace pagekv_tool
