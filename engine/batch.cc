#include "engine/batch.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace pagekv::inline v0::engine {

std::int64_t Batcher::Job::pending() const {
  return static_cast<std::int64_t>(tokens.size()) - sequence.length();
}

bool Batcher::Job::in_prompt() const {
  return pending() > 1 || tokens.size() == request.prompt.size();
}

Batcher::Batcher(const Model& model, Store store, BatcherOptions options)
    : model_(model), store_(std::move(store)), options_(std::move(options)) {
  if (options_.context_tokens == 0) options_.context_tokens = model_.info().context_tokens;
}

Result<std::unique_ptr<Batcher>> Batcher::make(const Model& model, Store store,
                                               BatcherOptions options) {
  if (options.rows_per_pass < 1 || options.max_running < 1 || options.max_kept < 0) {
    return fail(ErrorCode::invalid_argument, "{0} rows per pass, {1} requests at once, {2} kept",
                {options.rows_per_pass, options.max_running, options.max_kept});
  }
  Result<std::unique_ptr<Runner>> runner = model.make_runner(store, options.arithmetic);
  if (!runner) return tl::unexpected<Error>(runner.error());
  std::unique_ptr<Batcher> batcher(new Batcher(model, std::move(store), std::move(options)));
  batcher->runner_ = std::move(*runner);
  return batcher;
}

Result<int> Batcher::submit(Request request) {
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  if (prompt_tokens == 0 || request.max_tokens < 1) {
    return fail(ErrorCode::invalid_argument, "a prompt of {0} tokens with {1} to generate",
                {prompt_tokens, request.max_tokens});
  }
  if (prompt_tokens >= options_.context_tokens) {
    return fail(
        ErrorCode::too_long,
        "the prompt has {0} tokens; with a context of {1} at most {2} leave room for an answer",
        {prompt_tokens, options_.context_tokens, options_.context_tokens - 1});
  }
  Result<Sampler> sampler = Sampler::make(request.sampling);
  if (!sampler) return tl::unexpected<Error>(sampler.error());
  auto job = std::make_unique<Job>(
      Job{.id = next_id_, .request = std::move(request), .sampler = std::move(*sampler)});
  job->tokens = job->request.prompt;
  waiting_.push_back(std::move(job));
  return next_id_++;
}

Status Batcher::run() {
  while (!idle()) {
    if (Status status = step(); !status) return status;
  }
  return {};
}

Status Batcher::step() {
  if (idle()) return {};
  if (Status status = admit(); !status) return status;
  Pass pass = choose_rows();
  Result<Step> reserved = reserve(pass);
  if (!reserved) {
    if (reserved.error().code() != ErrorCode::pool_exhausted &&
        reserved.error().code() != ErrorCode::out_of_memory) {
      return tl::unexpected<Error>(reserved.error());
    }
    finish(*running_.front(), FinishReason::error, reserved.error());
    drop_finished();
    return {};
  }
  const auto start = std::chrono::steady_clock::now();
  if (Status status = forward(*reserved, pass); !status) return status;
  commit(*reserved, pass);
  count_pass(pass, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  drop_finished();
  return {};
}

// A row for every running request, so that nobody waits until others have ended: neither those who
// talk for a long prompt, nor a prompt for those who talk. Prompts share what is left, oldest
// first.
Batcher::Pass Batcher::choose_rows() {
  Pass pass;
  const auto running = static_cast<std::int64_t>(running_.size());
  std::int64_t room = std::max<std::int64_t>(0, options_.rows_per_pass - running);
  for (const std::unique_ptr<Job>& job : running_) {
    const std::int64_t more = std::min(job->pending() - 1, room);
    room -= more;
    pass.has_prompt |= job->in_prompt();
    pass.jobs.push_back(job.get());
    pass.appends.push_back({.sequence = &job->sequence, .tokens = 1 + more});
  }
  return pass;
}

// Reserves the pass, giving up pages until it fits. Fails with pool_exhausted where the oldest
// request alone does not fit.
Result<Step> Batcher::reserve(Pass& pass) {
  for (;;) {
    Result<Step> step = store_.reserve(pass.appends);
    if (step || step.error().code() != ErrorCode::pool_exhausted) return step;
    if (!give_up_pages()) return step;
    pass = choose_rows();
  }
}

bool Batcher::give_up_pages() {
  if (!kept_.empty()) {
    kept_.pop_front();
    return true;
  }
  if (running_.size() < 2) return false;
  preempt_youngest();
  return true;
}

// Its tokens stay; the pages are computed again later, to the same bits.
void Batcher::preempt_youngest() {
  std::unique_ptr<Job> job = std::move(running_.back());
  running_.pop_back();
  job->sequence = Sequence();
  job->preempted = true;
  waiting_.push_front(std::move(job));
  short_of_pages_ = true;
  ++stats_.preemptions;
}

Status Batcher::forward(Step& step, const Pass& pass) {
  pass_tokens_.clear();
  logit_rows_.clear();
  for (std::size_t i = 0; i < pass.jobs.size(); ++i) {
    const Job& job = *pass.jobs[i];
    const std::int64_t rows = pass.appends[i].tokens;
    const auto begin = job.tokens.begin() + job.sequence.length();
    pass_tokens_.insert(pass_tokens_.end(), begin, begin + rows);
    if (rows == job.pending()) {
      logit_rows_.push_back(static_cast<std::int64_t>(pass_tokens_.size()) - 1);
    }
  }
  const auto vocabulary = static_cast<std::size_t>(model_.info().vocabulary);
  logits_.resize(std::max(logits_.size(), logit_rows_.size() * vocabulary));
  return runner_->forward(step, {.tokens = pass_tokens_, .logit_rows = logit_rows_},
                          std::span(logits_.data(), logit_rows_.size() * vocabulary));
}

void Batcher::commit(Step& step, const Pass& pass) {
  std::vector<std::optional<Error>> failures(pass.jobs.size());
  for (std::size_t i = 0; i < pass.jobs.size(); ++i) {
    if (const Error* failure = step.failure(static_cast<int>(i))) failures[i] = *failure;
  }
  std::vector<bool> wants_token;
  for (std::size_t i = 0; i < pass.jobs.size(); ++i) {
    wants_token.push_back(pass.appends[i].tokens == pass.jobs[i]->pending());
  }
  const Result<CommitResult> committed = step.commit();
  const auto vocabulary = static_cast<std::size_t>(model_.info().vocabulary);
  std::size_t logit_row = 0;
  for (std::size_t i = 0; i < pass.jobs.size(); ++i) {
    const std::span<const float> logits(logits_.data() + logit_row * vocabulary, vocabulary);
    if (wants_token[i]) ++logit_row;
    if (!committed) failures[i] = committed.error();
    if (failures[i]) {
      finish(*pass.jobs[i], FinishReason::error, failures[i]);
    } else if (wants_token[i]) {
      sample(*pass.jobs[i], logits);
    }
  }
  report_prefill();
}

void Batcher::sample(Job& job, std::span<const float> logits) {
  const Result<Token> token = job.sampler.sample(logits);
  if (!token) {
    finish(job, FinishReason::error, token.error());
    return;
  }
  if (options_.is_end && options_.is_end(*token)) {
    finish(job, FinishReason::end);
    return;
  }
  job.tokens.push_back(*token);
  if (options_.on_token) options_.on_token(job.id, *token);
  const auto generated = static_cast<std::int64_t>(job.tokens.size() - job.request.prompt.size());
  if (generated >= job.request.max_tokens) {
    finish(job, FinishReason::length);
  } else if (static_cast<std::int64_t>(job.tokens.size()) >= options_.context_tokens) {
    finish(job, FinishReason::context);
  }
}

void Batcher::finish(Job& job, FinishReason reason, std::optional<Error> error) {
  job.finished = true;
  short_of_pages_ = false;
  if (!options_.on_finish) return;
  const auto prompt_tokens = static_cast<std::int64_t>(job.request.prompt.size());
  options_.on_finish({.request = job.id,
                      .tokens = {job.tokens.begin() + prompt_tokens, job.tokens.end()},
                      .reason = reason,
                      .error = std::move(error),
                      .prompt_tokens = prompt_tokens,
                      .shared_tokens = job.shared_tokens});
}

void Batcher::drop_finished() {
  for (const std::unique_ptr<Job>& job : running_) {
    if (!job->finished || options_.max_kept == 0) continue;
    job->tokens.resize(static_cast<std::size_t>(job->sequence.length()));
    kept_.push_back({.tokens = std::move(job->tokens), .sequence = std::move(job->sequence)});
    if (kept_.size() > static_cast<std::size_t>(options_.max_kept)) kept_.pop_front();
  }
  std::erase_if(running_, [](const std::unique_ptr<Job>& job) { return job->finished; });
}

void Batcher::count_pass(const Pass& pass, double seconds) {
  ++stats_.passes;
  const auto rows = static_cast<std::int64_t>(pass_tokens_.size());
  (pass.has_prompt ? stats_.prefill_rows : stats_.decode_rows) += rows;
  (pass.has_prompt ? stats_.prefill_seconds : stats_.decode_seconds) += seconds;
  std::int64_t pages = 0;
  std::int64_t shared = 0;
  for (const GroupStats& group : store_.stats().groups) {
    pages += group.referenced_pages;
    shared += group.shared_pages;
  }
  stats_.peak_pages = std::max(stats_.peak_pages, pages);
  stats_.peak_shared_pages = std::max(stats_.peak_shared_pages, shared);
}

void Batcher::report_prefill() const {
  if (!options_.on_prefill) return;
  std::int64_t done = 0;
  std::int64_t total = 0;
  for (const std::unique_ptr<Job>& job : running_) {
    const auto prompt_tokens = static_cast<std::int64_t>(job->request.prompt.size());
    total += prompt_tokens;
    done += std::min(prompt_tokens, job->sequence.valid() ? job->sequence.length() : 0);
  }
  options_.on_prefill(done, total);
}

}  // namespace pagekv::inline v0::engine
