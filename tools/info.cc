#include "tools/info.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/matmul.h"
#include "pagekv/pagekv.h"
#include "tools/console.h"
#include "tools/model_path.h"

namespace pagekv_tool {
namespace {

using nlohmann::json;
namespace engine = pagekv::engine;

constexpr const char* kFormats[] = {"f32", "f16", "bf16", "kv8", "kv4", "k8v4"};

// The word in brackets of "always [madvise] never".
std::string huge_page_mode() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string words;
  std::getline(file, words);
  const std::size_t open = words.find('[');
  const std::size_t close = words.find(']');
  if (open == std::string::npos || close == std::string::npos || close < open) return "unknown";
  return words.substr(open + 1, close - open - 1);
}

pagekv::Result<json> describe_machine() {
  const pagekv::Result<pagekv::Device> device = pagekv::make_cpu_device();
  if (!device) return tl::unexpected<pagekv::Error>(device.error());
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE));
  return json{{"version", PAGEKV_VERSION_STRING},
              {"device", device->name()},
              {"targets", pagekv::cpu_targets()},
              {"matmul_target", engine::matmul_target()},
              {"processors", std::thread::hardware_concurrency()},
              {"memory_bytes", page * static_cast<double>(sysconf(_SC_PHYS_PAGES))},
              {"huge_pages", huge_page_mode()}};
}

pagekv::Result<json> describe_formats(const engine::ModelOutline& outline, double memory) {
  json formats = json::array();
  for (const char* name : kFormats) {
    const pagekv::Result<pagekv::Format> format = pagekv::Format::parse(name);
    if (!format) return tl::unexpected<pagekv::Error>(format.error());
    std::vector<pagekv::LayerSpec> layers = outline.cache_layers;
    for (pagekv::LayerSpec& layer : layers) layer.format = *format;
    const auto layout = pagekv::CacheLayout::make({.layers = std::move(layers)});
    if (!layout) return tl::unexpected<pagekv::Error>(layout.error());
    const std::int64_t bytes = layout->bytes_per_token();
    formats.push_back({{"format", name},
                       {"bytes_per_token", bytes},
                       {"tokens", static_cast<std::int64_t>(memory / static_cast<double>(bytes))}});
  }
  return formats;
}

pagekv::Result<json> describe_model(const std::string& path, double memory) {
  const pagekv::Result<engine::ModelOutline> outline = engine::outline_model(path);
  if (!outline) return tl::unexpected<pagekv::Error>(outline.error());
  const pagekv::Result<json> formats = describe_formats(*outline, memory);
  if (!formats) return tl::unexpected<pagekv::Error>(formats.error());
  const engine::ModelInfo& info = outline->info;
  return json{{"file", path},
              {"name", info.name},
              {"architecture", info.architecture},
              {"layers", info.layers},
              {"dim", info.dim},
              {"hidden", info.hidden},
              {"query_heads", info.query_heads},
              {"kv_heads", info.kv_heads},
              {"head_dim", info.head_dim},
              {"vocabulary", info.vocabulary},
              {"context_tokens", info.context_tokens},
              {"parameters", info.parameters},
              {"formats", *formats}};
}

void print_machine(const json& machine) {
  std::string targets;
  for (const json& target : machine["targets"]) targets += " " + target.get<std::string>();
  fmt::print("pagekv      {}\n", machine["version"].get<std::string>());
  fmt::print("device      {} (targets here:{})\n", machine["device"].get<std::string>(), targets);
  fmt::print("products    {}\n", machine["matmul_target"].get<std::string>());
  fmt::print("processors  {}\n", machine["processors"].get<int>());
  fmt::print("memory      {}\n", human_bytes(machine["memory_bytes"].get<double>()));
  fmt::print("huge pages  {}\n", machine["huge_pages"].get<std::string>());
}

void print_model(const json& model, double memory) {
  fmt::print("\nmodel       {} ({})\n", model["file"].get<std::string>(),
             model["name"].get<std::string>());
  fmt::print("kind        {}, {:.1f} M parameters, {} tokens of context\n",
             model["architecture"].get<std::string>(), model["parameters"].get<double>() * 1e-6,
             model["context_tokens"].get<std::int64_t>());
  fmt::print("layers      {} of dim {}, hidden {}\n", model["layers"].get<int>(),
             model["dim"].get<int>(), model["hidden"].get<int>());
  fmt::print("heads       {} for queries, {} for keys and values, of {}\n",
             model["query_heads"].get<int>(), model["kv_heads"].get<int>(),
             model["head_dim"].get<int>());
  fmt::print("vocabulary  {}\n\n", model["vocabulary"].get<int>());
  fmt::print("format  bytes per token  tokens in {}\n", human_bytes(memory));
  for (const json& format : model["formats"]) {
    fmt::print("{:<6}  {:>15}  {}\n", format["format"].get<std::string>(),
               format["bytes_per_token"].get<std::int64_t>(), format["tokens"].get<std::int64_t>());
  }
}

}  // namespace

CLI::App* add_info(CLI::App& app, InfoOptions& options) {
  CLI::App* info = app.add_subcommand("info", "Show what this machine has and what a model needs");
  info->add_option(
          "-m,--model", options.model,
          "A GGUF file or a llama2.c checkpoint (default: the one `run` uses, where it is)")
      ->type_name("FILE");
  info->add_option("--memory", options.memory_bytes,
                   "How many tokens fit in so many bytes: 1G, 512M (default: 1G)")
      ->transform(CLI::AsSizeValue(false));
  info->add_flag("--json", options.json, "One JSON object");
  return info;
}

int info(const InfoOptions& options) {
  pagekv::Result<json> machine = describe_machine();
  if (!machine) return report_error(machine.error().message());
  const auto memory = static_cast<double>(options.memory_bytes);
  json model;
  std::error_code ignored;
  if (!options.model.empty() || std::filesystem::exists(default_model_path(), ignored)) {
    const pagekv::Result<std::string> path = find_model(options.model);
    if (!path) return report_error(path.error().message());
    pagekv::Result<json> described = describe_model(*path, memory);
    if (!described) return report_error(described.error().message());
    model = std::move(*described);
  }
  if (options.json) {
    if (!model.is_null()) (*machine)["model"] = std::move(model);
    fmt::print("{}\n", machine->dump(2, ' ', false, json::error_handler_t::replace));
    return kExitOk;
  }
  print_machine(*machine);
  if (model.is_null()) {
    fmt::print("\nmodel       none at {}; scripts/demo fetches it\n", default_model_path());
  } else {
    print_model(model, memory);
  }
  return kExitOk;
}

}  // namespace pagekv_tool
