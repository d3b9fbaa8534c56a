#include "tools/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "pagekv/snapshot.h"
#include "tools/model_options.h"

namespace pagekv_tool {
namespace {

namespace engine = pagekv::engine;

double per_second(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

}  // namespace

Session::Session(const RunOptions& options, engine::OpenModel model, pagekv::Store store)
    : options_(options), model_(std::move(model)), store_(std::move(store)) {}

pagekv::Result<std::unique_ptr<Session>> Session::open(const RunOptions& options) {
  auto executor = pagekv::make_thread_executor(options.model.threads);
  if (!executor) return tl::unexpected<pagekv::Error>(executor.error());
  const auto device = pagekv::make_cpu_device({.executor = *executor});
  if (!device) return tl::unexpected<pagekv::Error>(device.error());
  auto settings = store_settings(options.model, options.format, options.context_tokens);
  if (!settings) return tl::unexpected<pagekv::Error>(settings.error());
  settings->cap_bytes = options.cap_bytes;
  pagekv::Result<engine::OpenModel> model = load_model(options.model, *executor);
  if (!model) return tl::unexpected<pagekv::Error>(model.error());
  pagekv::Result<pagekv::Store> store = engine::make_model_store(*model->model, *device, *settings);
  if (!store) return tl::unexpected<pagekv::Error>(store.error());
  std::unique_ptr<Session> session(new Session(options, std::move(*model), std::move(*store)));
  if (pagekv::Status status = session->make_batcher(); !status) {
    return tl::unexpected<pagekv::Error>(status.error());
  }
  return session;
}

pagekv::Status Session::make_batcher() {
  engine::BatcherOptions batch;
  batch.max_running = options_.parallel * options_.best_of;
  batch.draft_tokens = options_.draft_tokens;
  batch.context_tokens = options_.context_tokens;
  auto tier = open_tier(options_.tier);
  if (!tier) return tl::unexpected<pagekv::Error>(tier.error());
  batch.tier = std::move(*tier);
  batch.arithmetic = arithmetic_of(options_.model.arithmetic);
  batch.is_end = [this](Token token) { return model_.tokenizer->is_end(token); };
  batch.on_token = [this](const engine::NewToken& token) {
    prefill_.clear();
    engine::NewToken numbered = token;
    numbered.request -= first_request_;
    output_->add_token(numbered);
  };
  batch.on_finish = [this](const engine::Completion& completion) {
    prefill_.clear();
    engine::Completion numbered = completion;
    numbered.request -= first_request_;
    output_->finish(numbered);
  };
  batch.on_prefill = [this](std::int64_t done, std::int64_t total) {
    if (done < total) prefill_.update(done, total);
  };
  auto batcher = engine::Batcher::make(*model_.model, store_, std::move(batch));
  if (!batcher) return tl::unexpected<pagekv::Error>(batcher.error());
  batcher_ = std::move(*batcher);
  return {};
}

pagekv::Result<std::vector<Token>> Session::encode(const std::string& text) const {
  if (!options_.chat) return model_.tokenizer->encode(text);
  if (!model_.chat) return tl::unexpected<pagekv::Error>(model_.chat.error());
  const engine::ChatMessage message{.role = "user", .content = text};
  return model_.chat->encode(*model_.tokenizer, {&message, 1});
}

pagekv::Result<std::vector<Token>> Session::encode_more(const std::string& text, bool first) const {
  return model_.tokenizer->encode(text, {.bos = first});
}

// As the batcher's own namespace.
pagekv::NamespaceSpec Session::identity() const {
  return {.model = model_.model->info().fingerprint,
          .arithmetic = arithmetic_of(options_.model.arithmetic)};
}

pagekv::Result<Session::Snapshot> Session::load_snapshot(const std::string& path) {
  auto loaded = pagekv::load(store_, path, {.identity = identity()});
  if (!loaded) return tl::unexpected<pagekv::Error>(loaded.error());
  const auto space = batcher_->index().open(identity());
  if (!space) return tl::unexpected<pagekv::Error>(space.error());
  const auto computed = static_cast<std::size_t>(loaded->sequence.length());
  const auto kept =
      batcher_->index().insert(*space, std::span(loaded->tokens).first(computed), loaded->sequence);
  if (!kept) return tl::unexpected<pagekv::Error>(kept.error());
  return Snapshot{std::move(loaded->tokens), std::move(loaded->note)};
}

pagekv::Status Session::save_snapshot(const std::string& path, const Snapshot& snapshot) {
  const auto space = batcher_->index().open(identity());
  if (!space) return tl::unexpected<pagekv::Error>(space.error());
  const auto sequence = batcher_->index().match(*space, snapshot.tokens, {.leave_tokens = 0});
  if (!sequence) return tl::unexpected<pagekv::Error>(sequence.error());
  const auto saved = pagekv::save(store_, sequence->ref(), snapshot.tokens, path,
                                  {.identity = identity(), .note = snapshot.note});
  if (!saved) return tl::unexpected<pagekv::Error>(saved.error());
  return {};
}

pagekv::Result<engine::Conversation> Session::converse(const std::string& system) const {
  if (!model_.chat) return tl::unexpected<pagekv::Error>(model_.chat.error());
  return engine::Conversation::make(*model_.tokenizer, *model_.chat, system);
}

pagekv::Result<Session::Answers> Session::answer(const std::vector<std::vector<Token>>& prompts,
                                                 std::uint64_t seed_shift, std::uint64_t draws) {
  engine::SamplerOptions sampling = options_.sampling;
  sampling.seed += seed_shift;
  sampling.draws = draws;
  std::vector<Token> last_tokens;
  for (const std::vector<Token>& prompt : prompts) {
    last_tokens.push_back(prompt.empty() ? engine::kNoToken : prompt.back());
  }
  output_.emplace(
      *model_.tokenizer, last_tokens,
      OutputOptions{.json = options_.json, .samples = options_.best_of, .seed = sampling.seed});
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const pagekv::Result<int> request =
        batcher_->submit({.prompt = prompts[i],
                          .max_tokens = options_.max_tokens,
                          .sampling = sampling,
                          .samples = options_.best_of,
                          .log_probabilities = options_.best_of > 1});
    if (!request) return tl::unexpected<pagekv::Error>(request.error());
    if (i == 0) first_request_ = *request;
  }
  if (pagekv::Status status = batcher_->run(); !status) {
    return tl::unexpected<pagekv::Error>(status.error());
  }
  batcher_->flush();
  Answers answers{.best = {}, .failed = output_->failed()};
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    answers.best.push_back(output_->completion(static_cast<int>(i)));
  }
  return answers;
}

void Session::print_figures() const {
  const engine::BatcherStats& stats = batcher_->stats();
  const double acceptance = static_cast<double>(stats.accepted_tokens) /
                            static_cast<double>(std::max<std::int64_t>(1, stats.drafted_tokens));
  const pagekv::CacheLayout& layout = store_.layout();
  const std::string format = format_label(options_.format, options_.model.layer_formats);
  const std::int64_t cap_bytes = store_.stats().cap_bytes;
  const double prefill = per_second(stats.prefill_rows, stats.prefill_seconds);
  const double decode = per_second(stats.decode_rows, stats.decode_seconds);
  if (options_.json) {
    const nlohmann::json figures = {{"prefill_tokens", stats.prefill_rows},
                                    {"prefill_tokens_per_second", prefill},
                                    {"decode_tokens", stats.decode_rows},
                                    {"decode_tokens_per_second", decode},
                                    {"shared_tokens", stats.shared_tokens},
                                    {"fetched_tokens", stats.fetched_tokens},
                                    {"drafted_tokens", stats.drafted_tokens},
                                    {"accepted_tokens", stats.accepted_tokens},
                                    {"acceptance_rate", acceptance},
                                    {"preemptions", stats.preemptions},
                                    {"kv_format", format},
                                    {"kv_bytes_per_token", layout.bytes_per_token()},
                                    {"page_tokens", layout.page_tokens()},
                                    {"pages_used", stats.peak_pages},
                                    {"pages_shared", stats.peak_shared_pages},
                                    {"cap_bytes", cap_bytes},
                                    {"threads", options_.model.threads},
                                    {"device", store_.device().name()}};
    fmt::print("{}\n", nlohmann::json{{"figures", figures}}.dump());
    return;
  }
  print_note(fmt::format("prefill  {} tokens, {:.1f} tokens/s; {} more shared", stats.prefill_rows,
                         prefill, stats.shared_tokens));
  print_note(fmt::format("decode   {} tokens, {:.1f} tokens/s", stats.decode_rows, decode));
  if (batcher_->pages()) {
    const pagekv::TierStats tier = batcher_->pages()->tier().stats();
    print_note(fmt::format("tier     {} tokens came up; {} records, {} of {}", stats.fetched_tokens,
                           tier.records, human_bytes(static_cast<double>(tier.bytes)),
                           human_bytes(static_cast<double>(tier.cap_bytes))));
  }
  if (options_.draft_tokens > 0) {
    print_note(fmt::format("guesses  {} tokens, {} accepted ({:.1f} %)", stats.drafted_tokens,
                           stats.accepted_tokens, 100 * acceptance));
  }
  print_note(fmt::format(
      "cache    {} per token as {}, pages of {} tokens: {} used, {} shared, cap {}",
      human_bytes(static_cast<double>(layout.bytes_per_token())), format, layout.page_tokens(),
      stats.peak_pages, stats.peak_shared_pages, human_bytes(static_cast<double>(cap_bytes))));
}

}  // namespace pagekv_tool
