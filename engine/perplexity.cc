#include "engine/perplexity.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

namespace pagekv::inline v0::engine {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

tl::unexpected<Error> fail_in(const NamedStore& store, const Error& error) {
  return fail(error.code(), "{s}", {error.number(0), error.number(1), error.number(2)},
              store.name + ": " + error.message());
}

// One store with all that belongs to it.
struct Lane {
  NamedStore store;
  std::unique_ptr<Runner> runner;
  Sequence sequence = {};  // of the chunk under way
};

class TextScorer {
 public:
  TextScorer(std::span<const Token> tokens, const PerplexityOptions& options,
             std::int64_t vocabulary)
      : tokens_(tokens), options_(options), vocabulary_(vocabulary) {}

  Status add(const Model& model, const NamedStore& store) {
    Result<std::unique_ptr<Runner>> runner = model.make_runner(store.store, options_.arithmetic);
    if (!runner) return fail_in(store, runner.error());
    lanes_.push_back({.store = store, .runner = std::move(*runner)});
    out_.scores.emplace_back();
    return {};
  }

  Result<PerplexityScores> run(std::int64_t chunks) {
    const std::int64_t context = options_.context_tokens;
    total_rows_ = chunks * context * static_cast<std::int64_t>(lanes_.size());
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const std::span<const Token> text = tokens_.subspan(static_cast<std::size_t>(chunk * context),
                                                          static_cast<std::size_t>(context));
      chunk_.assign(text.begin(), text.end());
      if (options_.bos != kNoToken) chunk_.front() = options_.bos;
      if (Status status = run_chunk(); !status) return tl::unexpected<Error>(status.error());
    }
    return std::move(out_);
  }

 private:
  Status run_chunk();
  void choose_rows(std::int64_t begin, std::int64_t end);
  Status advance(Lane& lane, std::int64_t begin, std::int64_t end, std::span<float> logits);
  Status score(std::size_t lane, std::span<const float> base, std::span<const float> logits);

  std::span<const Token> tokens_;
  const PerplexityOptions& options_;
  std::int64_t vocabulary_;
  std::vector<Lane> lanes_;
  PerplexityScores out_;
  std::int64_t total_rows_ = 0;

  std::vector<Token> chunk_;
  // Of the pass under way; kept to reuse their memory.
  std::vector<std::int64_t> logit_rows_;
  std::vector<Token> next_;         // the token after each of logit_rows_
  std::vector<float> base_logits_;  // [logit_rows_, vocabulary], and so are
  std::vector<float> logits_;
};

Status TextScorer::run_chunk() {
  for (Lane& lane : lanes_) {
    Result<Sequence> sequence = lane.store.store.create_sequence();
    if (!sequence) return fail_in(lane.store, sequence.error());
    lane.sequence = std::move(*sequence);
  }
  const std::int64_t context = options_.context_tokens;
  for (std::int64_t begin = 0; begin < context; begin += options_.rows_per_pass) {
    const std::int64_t end = std::min(context, begin + options_.rows_per_pass);
    choose_rows(begin, end);
    const std::size_t size = logit_rows_.size() * static_cast<std::size_t>(vocabulary_);
    base_logits_.resize(std::max(base_logits_.size(), size));
    if (lanes_.size() > 1) logits_.resize(std::max(logits_.size(), size));
    const std::span<float> base(base_logits_.data(), size);
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const std::span<float> logits = i == 0 ? base : std::span<float>(logits_.data(), size);
      Status status = advance(lanes_[i], begin, end, logits);
      if (status) status = score(i, base, logits);
      if (!status) return fail_in(lanes_[i].store, status.error());
      out_.rows += end - begin;
      if (options_.progress) options_.progress(out_.rows, total_rows_);
    }
  }
  return {};
}

// Which rows of the chunk's positions [begin, end) are scored, and by which tokens.
void TextScorer::choose_rows(std::int64_t begin, std::int64_t end) {
  logit_rows_.clear();
  next_.clear();
  const std::int64_t half = options_.context_tokens / 2;
  const std::int64_t first = std::max(begin, options_.first_scored.value_or(half));
  for (std::int64_t at = first; at < std::min(end, options_.context_tokens - 1); ++at) {
    logit_rows_.push_back(at - begin);
    next_.push_back(chunk_[static_cast<std::size_t>(at + 1)]);
  }
}

Status TextScorer::advance(Lane& lane, std::int64_t begin, std::int64_t end,
                           std::span<float> logits) {
  const Clock::time_point start = Clock::now();
  const Append append = {.sequence = &lane.sequence, .tokens = end - begin};
  Result<Step> step = lane.store.store.reserve({&append, 1});
  if (!step) return tl::unexpected<Error>(step.error());
  const std::span<const Token> tokens(chunk_.data() + begin, static_cast<std::size_t>(end - begin));
  Status status =
      lane.runner->forward(*step, {.tokens = tokens, .logit_rows = logit_rows_}, logits);
  if (!status) return status;
  if (const Error* failure = step->failure(0)) return tl::unexpected<Error>(*failure);
  const Result<CommitResult> committed = step->commit();
  if (!committed) return tl::unexpected<Error>(committed.error());
  out_.forward_seconds += seconds_since(start);
  return {};
}

Status TextScorer::score(std::size_t lane, std::span<const float> base,
                         std::span<const float> logits) {
  const Clock::time_point start = Clock::now();
  std::vector<TokenScore>& scores = out_.scores[lane];
  const std::size_t before = scores.size();
  scores.resize(before + next_.size());
  const Status status = compare_rows(lanes_[lane].store.store.device().executor(), base, logits,
                                     next_, std::span(scores).subspan(before));
  out_.compare_seconds += seconds_since(start);
  return status;
}

}  // namespace

std::int64_t count_chunks(std::int64_t tokens, std::int64_t context_tokens) {
  return context_tokens > 0 ? tokens / context_tokens : 0;
}

Result<PerplexityScores> score_text(const Model& model, std::span<const NamedStore> stores,
                                    std::span<const Token> tokens,
                                    const PerplexityOptions& options) {
  if (options.context_tokens < 3 || options.rows_per_pass < 1 || options.chunks < 0) {
    return fail(ErrorCode::invalid_argument,
                "a context of {0} tokens, {1} rows per pass, {2} chunks; a context of 3 tokens is "
                "the shortest in which one is scored",
                {options.context_tokens, options.rows_per_pass, options.chunks});
  }
  const std::int64_t first = options.first_scored.value_or(options.context_tokens / 2);
  if (first < 0 || first > options.context_tokens - 2) {
    return fail(ErrorCode::invalid_argument,
                "the first scored position is {0}; legal in a context of {1} tokens are 0 to {2}",
                {first, options.context_tokens, options.context_tokens - 2});
  }
  const auto size = static_cast<std::int64_t>(tokens.size());
  const std::int64_t available = count_chunks(size, options.context_tokens);
  if (available == 0) {
    return fail(ErrorCode::invalid_argument,
                "the text has {0} tokens, fewer than one context of {1}",
                {size, options.context_tokens});
  }
  if (options.chunks > available) {
    return fail(ErrorCode::invalid_argument,
                "{0} chunks of {1} tokens; the text has {2} tokens, enough for {3}",
                {options.chunks, options.context_tokens, size, available});
  }
  TextScorer scorer(tokens, options, model.info().vocabulary);
  for (const NamedStore& store : stores) {
    if (Status status = scorer.add(model, store); !status) {
      return tl::unexpected<Error>(status.error());
    }
  }
  return scorer.run(options.chunks > 0 ? options.chunks : available);
}

double bits_per_element(const CacheLayout& layout) {
  std::int64_t elements = 0;
  for (int i = 0; i < layout.layer_count(); ++i) {
    const LayerSpec& layer = layout.layer(i).spec;
    if (layer.donor < 0)
      elements += std::int64_t{layer.kv_heads} * (layer.key_dim + layer.value_dim);
  }
  return 8 * static_cast<double>(layout.bytes_per_token()) / static_cast<double>(elements);
}

}  // namespace pagekv::inline v0::engine
