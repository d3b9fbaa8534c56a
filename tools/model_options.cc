#include "tools/model_options.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>

#include "tools/console.h"
#include "tools/model_path.h"

namespace pagekv_tool {
namespace {

namespace engine = pagekv::engine;

constexpr int kMaxThreads = 1024;

const CLI::Validator& page_validator() {
  static const CLI::Validator validator(
      [](std::string& text) -> std::string {
        char* end = nullptr;
        const long long tokens = std::strtoll(text.c_str(), &end, 10);
        if (!text.empty() && *end == '\0' && tokens > 0 && tokens % pagekv::kTileTokens == 0) {
          return {};
        }
        return "a page has a positive multiple of 16 tokens, not " + text;
      },
      "TOKENS");
  return validator;
}

std::optional<pagekv::DType> weight_type(const std::string& name) {
  if (name == "bf16") return pagekv::DType::bf16;
  if (name == "f32") return pagekv::DType::f32;
  return std::nullopt;
}

}  // namespace

const CLI::Validator& format_validator() {
  static const CLI::Validator validator(
      [](std::string& text) -> std::string {
        const auto format = pagekv::Format::parse(text);
        return format ? std::string() : format.error().message();
      },
      "");
  return validator;
}

int all_processors() {
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void add_tokenizer_source(CLI::App& app, ModelOptions& options) {
  app.add_option("-m,--model", options.model,
                 "A GGUF file, or a llama2.c checkpoint (*.bin). Default: $PAGEKV_MODEL, else "
                 "SmolLM2-135M-Instruct in the user's cache folder")
      ->type_name("FILE");
  app.add_option("--tokenizer", options.tokenizer,
                 "Of a llama2.c checkpoint (default: tok512.bin or tokenizer.bin beside it)")
      ->type_name("FILE");
}

void add_model_source(CLI::App& app, ModelOptions& options) {
  add_tokenizer_source(app, options);
  app.add_option("--weights", options.weights,
                 "How matrices are kept; auto: f32 where the file has f32, else bf16")
      ->check(CLI::IsMember({"auto", "bf16", "f32"}))
      ->capture_default_str();
}

void add_model_options(CLI::App& app, ModelOptions& options) {
  options.threads = all_processors();
  add_model_source(app, options);
  app.add_option("-t,--threads", options.threads, "Threads (default: one per processor)")
      ->check(CLI::Range(1, kMaxThreads));
}

void add_cache_options(CLI::App& app, ModelOptions& options) {
  app.add_option("--kv-layers", options.layer_formats,
                 "Other formats for some layers, counted from 0: \"0-1,28-29=bf16\", "
                 "\"0=f32;1-3=kv8\"")
      ->type_name("LAYERS=FORMAT");
  app.add_option("--page", options.page_tokens,
                 "Tokens per page, a multiple of 16 (default: " +
                     std::to_string(pagekv::kDefaultPageTokens) + ")")
      ->check(page_validator());
  app.add_option("--arithmetic", options.arithmetic,
                 "Of attention: exact, or fast, which rounds queries and probabilities")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->capture_default_str();
}

std::string format_label(const std::string& format, const std::string& layer_formats) {
  return layer_formats.empty() ? format : format + " with " + layer_formats;
}

int check_formats(const ModelOptions& options, const std::vector<std::string>& formats) {
  const pagekv::Result<std::string> path = find_model(options.model);
  if (!path) return report_error(path.error().message());
  const auto outline = engine::outline_model(*path);
  if (!outline) return report_error(outline.error().message());
  for (const std::string& text : formats) {
    const auto format = pagekv::Format::parse(text);
    if (!format) return report_error(format.error().message(), kExitUsage);
    auto layers = engine::with_formats(outline->cache_layers, *format, options.layer_formats);
    if (!layers) return report_error("--kv-layers: " + layers.error().message(), kExitUsage);
    const auto layout = pagekv::CacheLayout::make({.layers = std::move(*layers)});
    if (!layout) return report_error("--kv: " + layout.error().message(), kExitUsage);
  }
  return kExitOk;
}

pagekv::Arithmetic arithmetic_of(std::string_view name) {
  return name == "fast" ? pagekv::Arithmetic::fast : pagekv::Arithmetic::exact;
}

pagekv::Result<engine::OpenModel> load_model(const ModelOptions& options,
                                             const std::shared_ptr<pagekv::Executor>& executor) {
  const pagekv::Result<std::string> path = find_model(options.model);
  if (!path) return tl::unexpected<pagekv::Error>(path.error());
  Progress progress("loading the model");
  engine::OpenOptions open;
  open.tokenizer_path = options.tokenizer;
  open.load.executor = executor;
  open.load.weights = weight_type(options.weights);
  open.load.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  return engine::open_model(*path, open);
}

pagekv::Result<engine::StoreSettings> store_settings(const ModelOptions& options,
                                                     const std::string& format,
                                                     std::int64_t context_tokens) {
  const auto parsed = pagekv::Format::parse(format);
  if (!parsed) return tl::unexpected<pagekv::Error>(parsed.error());
  return engine::StoreSettings{
      .format = *parsed,
      .layer_formats = options.layer_formats,
      .page_tokens = options.page_tokens > 0 ? options.page_tokens : pagekv::kDefaultPageTokens,
      .context_tokens = context_tokens};
}

}  // namespace pagekv_tool
