#include "tools/ppl.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/perplexity.h"
#include "tools/console.h"
#include "tools/format_lists.h"
#include "tools/ppl_report.h"
#include "tools/text_file.h"

namespace pagekv_tool {
namespace {

namespace engine = pagekv::engine;
using Executor = std::shared_ptr<pagekv::Executor>;

// One store per format, the reference's first.
pagekv::Result<std::vector<engine::NamedStore>> make_stores(const PplOptions& options,
                                                            const std::vector<std::string>& formats,
                                                            const engine::Model& model,
                                                            const Executor& executor,
                                                            std::int64_t context_tokens) {
  const auto device = pagekv::make_cpu_device({.executor = executor});
  if (!device) return tl::unexpected<pagekv::Error>(device.error());
  std::vector<engine::NamedStore> stores;
  const auto add = [&](const ModelOptions& cache, const std::string& format) -> pagekv::Status {
    const std::string name = format_label(format, cache.layer_formats);
    const auto settings = store_settings(cache, format, context_tokens);
    if (!settings) return tl::unexpected<pagekv::Error>(settings.error());
    auto store = engine::make_model_store(model, *device, *settings);
    if (!store) {
      return pagekv::fail(store.error().code(), "{s}", {}, name + ": " + store.error().message());
    }
    stores.push_back({.name = name, .store = std::move(*store)});
    return {};
  };
  ModelOptions reference = options.model;
  reference.layer_formats.clear();
  pagekv::Status status = add(reference, options.reference);
  for (std::size_t i = 0; status && i < formats.size(); ++i) {
    status = add(options.model, formats[i]);
  }
  if (!status) return tl::unexpected<pagekv::Error>(status.error());
  return stores;
}

void print_figures(const engine::PerplexityScores& scores) {
  const double seconds = scores.forward_seconds + scores.compare_seconds;
  if (seconds <= 0) return;
  print_note(fmt::format(
      "computed {} tokens, {:.1f} tokens/s; {:.2f} % of the time compared logits", scores.rows,
      static_cast<double>(scores.rows) / seconds, 100 * scores.compare_seconds / seconds));
}

pagekv::Result<std::vector<PplRow>> measure(const PplOptions& options,
                                            const std::vector<std::string>& formats,
                                            const std::string& text) {
  const auto executor = pagekv::make_thread_executor(options.model.threads);
  if (!executor) return tl::unexpected<pagekv::Error>(executor.error());
  const auto open = load_model(options.model, *executor);
  if (!open) return tl::unexpected<pagekv::Error>(open.error());
  const engine::Tokenizer& tokenizer = *open->tokenizer;
  const auto tokens = tokenizer.encode(text);
  if (!tokens) return tl::unexpected<pagekv::Error>(tokens.error());
  engine::PerplexityOptions settings;
  settings.context_tokens = options.context_tokens > 0
                                ? options.context_tokens
                                : std::min(kDefaultPplContext, open->model->info().context_tokens);
  settings.chunks = options.chunks;
  settings.first_scored = options.first_scored;
  settings.bos = tokenizer.adds_bos() ? tokenizer.bos() : engine::kNoToken;
  settings.arithmetic = arithmetic_of(options.model.arithmetic);
  const auto stores =
      make_stores(options, formats, *open->model, *executor, settings.context_tokens);
  if (!stores) return tl::unexpected<pagekv::Error>(stores.error());
  Progress progress("measuring");
  settings.progress = [&](std::int64_t done, std::int64_t total) { progress.update(done, total); };
  const auto scores = engine::score_text(*open->model, *stores, *tokens, settings);
  progress.clear();
  if (!scores) return tl::unexpected<pagekv::Error>(scores.error());
  print_figures(*scores);
  std::vector<PplRow> rows;
  rows.reserve(stores->size());
  for (std::size_t i = 0; i < stores->size(); ++i) {
    rows.push_back({.kv = (*stores)[i].name,
                    .bits = engine::bits_per_element((*stores)[i].store.layout()),
                    .divergence = engine::summarize(scores->scores[i])});
  }
  return rows;
}

}  // namespace

int ppl(const PplOptions& options) {
  const std::vector<std::string> formats = split_formats(options.formats);
  const pagekv::Result<std::string> text = read_text(options.file);
  if (!text) return report_error(text.error().message());
  if (const int code = check_formats(options.model, formats); code != kExitOk) return code;
  const auto rows = measure(options, formats, *text);
  if (!rows) return report_error(rows.error().message());
  print_ppl(*rows, options.output);
  return kExitOk;
}

}  // namespace pagekv_tool
