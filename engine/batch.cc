#include "engine/batch.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace pagekv::inline v0::engine {

std::int64_t Batcher::Job::pending() const {
  return static_cast<std::int64_t>(tokens.size()) - sequence.length();
}

std::int64_t Batcher::Job::generated() const {
  return static_cast<std::int64_t>(tokens.size() - request.prompt.size());
}

bool Batcher::Job::in_prompt() const {
  return pending() > 1 || tokens.size() == request.prompt.size();
}

Batcher::Batcher(const Model& model, Store store, PrefixIndex index, std::optional<PageTier> pages,
                 BatcherOptions options)
    : model_(model),
      store_(std::move(store)),
      index_(std::move(index)),
      pages_(std::move(pages)),
      options_(std::move(options)) {
  if (options_.context_tokens == 0) options_.context_tokens = model_.info().context_tokens;
}

Result<std::unique_ptr<Batcher>> Batcher::make(const Model& model, Store store,
                                               BatcherOptions options) {
  if (options.rows_per_pass < 1 || options.max_running < 1) {
    return fail(ErrorCode::invalid_argument, "{0} rows per pass, {1} requests at once",
                {options.rows_per_pass, options.max_running});
  }
  if (options.draft_tokens < 0 || (options.draft_tokens > 0 && !options.drafter)) {
    return fail(ErrorCode::invalid_argument, "{0} tokens to guess, by {s}", {options.draft_tokens},
                options.drafter ? "a drafter" : "nobody");
  }
  if (options.tier && !options.reuse) {
    return fail(ErrorCode::invalid_argument, "a tier of pages, and no reuse of any");
  }
  Result<std::unique_ptr<Runner>> runner = model.make_runner(store, options.arithmetic);
  if (!runner) return tl::unexpected<Error>(runner.error());
  std::optional<PageTier> pages;
  if (options.tier) {
    Result<PageTier> made = PageTier::make(store, options.tier);
    if (!made) return tl::unexpected<Error>(made.error());
    pages = std::move(*made);
  }
  Result<PrefixIndex> index = PrefixIndex::make(store, {.sink = pages ? pages->sink() : nullptr});
  if (!index) return tl::unexpected<Error>(index.error());
  std::unique_ptr<Batcher> batcher(new Batcher(model, std::move(store), std::move(*index),
                                               std::move(pages), std::move(options)));
  batcher->runner_ = std::move(*runner);
  return batcher;
}

Result<int> Batcher::submit(Request request) {
  const auto prompt_tokens = static_cast<std::int64_t>(request.prompt.size());
  if (prompt_tokens == 0 || request.max_tokens < 1) {
    return fail(ErrorCode::invalid_argument, "a prompt of {0} tokens with {1} to generate",
                {prompt_tokens, request.max_tokens});
  }
  if (request.samples < 1 || request.samples > options_.max_running) {
    return fail(ErrorCode::invalid_argument, "{0} samples of a prompt; 1 to {1} run at once",
                {request.samples, options_.max_running});
  }
  if (prompt_tokens >= options_.context_tokens) {
    return fail(
        ErrorCode::too_long,
        "the prompt has {0} tokens; with a context of {1} at most {2} leave room for an answer",
        {prompt_tokens, options_.context_tokens, options_.context_tokens - 1});
  }
  Result<Sampler> sampler = Sampler::make(request.sampling);
  if (!sampler) return tl::unexpected<Error>(sampler.error());
  Result<PrefixNamespace> space = index_.open({.model = model_.info().fingerprint,
                                               .salt = request.salt,
                                               .arithmetic = options_.arithmetic});
  if (!space) return tl::unexpected<Error>(space.error());
  if (pages_) static_cast<void>(pages_->attach(*space));  // else its pages stay in RAM
  auto job = std::make_unique<Job>(
      Job{.id = next_id_, .request = std::move(request), .sampler = std::move(*sampler)});
  job->samples = job->request.samples;
  job->tokens = job->request.prompt;
  job->space = std::move(*space);
  waiting_.push_back(std::move(job));
  return next_id_++;
}

bool Batcher::flush(std::chrono::steady_clock::time_point until) {
  return !pages_ || pages_->flush(until);
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
  if (running_.empty()) {
    await_fetch();
    return {};
  }
  in_step_ = true;
  Status status = one_pass();
  in_step_ = false;
  drop_finished();
  return status;
}

Status Batcher::one_pass() {
  Pass pass = choose_rows(true);
  Result<Step> reserved = reserve(pass);
  if (!reserved) {
    if (reserved.error().code() != ErrorCode::pool_exhausted &&
        reserved.error().code() != ErrorCode::out_of_memory) {
      return tl::unexpected<Error>(reserved.error());
    }
    finish(*running_.front(), FinishReason::error, reserved.error());
    return {};
  }
  const auto start = std::chrono::steady_clock::now();
  if (Status status = forward(*reserved, pass); !status) return status;
  if (Status status = commit(*reserved, pass); !status) return status;
  count_pass(pass, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  return {};
}

// A row for every running request, so that nobody waits until others have ended: neither those who
// talk for a long prompt, nor a prompt for those who talk. Prompts share what is left, oldest
// first, and guesses what is left then.
Batcher::Pass Batcher::choose_rows(bool with_drafts) {
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
  for (std::size_t i = 0; i < pass.jobs.size(); ++i) {
    Job& job = *pass.jobs[i];
    job.drafts.clear();
    if (!with_drafts || pass.appends[i].tokens < job.pending()) continue;
    choose_drafts(job, room);
    const auto drafts = static_cast<std::int64_t>(job.drafts.size());
    room -= drafts;
    pass.appends[i].tokens += drafts;
    pass.has_drafts |= drafts > 0;
  }
  return pass;
}

// At least one token of those that may still come is not guessed: the pass chooses one more than
// was right.
void Batcher::choose_drafts(Job& job, std::int64_t room) const {
  if (job.samples > 1 || job.drafts_failed) return;
  const std::int64_t most =
      std::min({options_.draft_tokens, room, job.request.max_tokens - job.generated() - 1,
                options_.context_tokens - static_cast<std::int64_t>(job.tokens.size()) - 1});
  if (most < 1) return;
  job.drafts.resize(static_cast<std::size_t>(most));
  job.drafts.resize(std::min(job.drafts.size(), options_.drafter(job.tokens, job.drafts)));
}

// Reserves the pass, giving up pages until it fits: what the index keeps, which the store sees to,
// then guesses, then requests.
// Fails with pool_exhausted where the oldest request alone does not fit.
Result<Step> Batcher::reserve(Pass& pass) {
  bool with_drafts = true;
  for (;;) {
    Result<Step> step = store_.reserve(pass.appends);
    if (step || step.error().code() != ErrorCode::pool_exhausted) return step;
    if (pass.has_drafts) {
      with_drafts = false;
    } else if (running_.size() > 1) {
      preempt_youngest();
    } else {
      return step;
    }
    pass = choose_rows(with_drafts);
  }
}

// Its tokens stay; the pages are computed again later, to the same bits.
void Batcher::preempt_youngest() {
  std::unique_ptr<Job> job = std::move(running_.back());
  running_.pop_back();
  job->sequence = Sequence();
  job->wanted = PrefixRequest();
  job->fetch.reset();
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
    const auto drafts = static_cast<std::int64_t>(job.drafts.size());
    pass_tokens_.insert(pass_tokens_.end(), begin, begin + rows - drafts);
    const auto last = static_cast<std::int64_t>(pass_tokens_.size()) - 1;
    pass_tokens_.insert(pass_tokens_.end(), job.drafts.begin(), job.drafts.end());
    if (rows - drafts < job.pending()) continue;
    for (std::int64_t row = last; row <= last + drafts; ++row) logit_rows_.push_back(row);
  }
  const auto vocabulary = static_cast<std::size_t>(model_.info().vocabulary);
  logits_.resize(std::max(logits_.size(), logit_rows_.size() * vocabulary));
  return runner_->forward(step, {.tokens = pass_tokens_, .logit_rows = logit_rows_},
                          std::span(logits_.data(), logit_rows_.size() * vocabulary));
}

// Samples while the step is live, since what the samplers choose says how many rows are kept.
Status Batcher::commit(Step& step, Pass& pass) {
  const auto vocabulary = static_cast<std::size_t>(model_.info().vocabulary);
  std::vector<std::int64_t> counts;
  std::vector<std::pair<Job*, std::span<const float>>> forks;
  std::span<const float> logits(logits_);
  for (std::size_t i = 0; i < pass.jobs.size(); ++i) {
    Job& job = *pass.jobs[i];
    const auto drafts = static_cast<std::int64_t>(job.drafts.size());
    const std::int64_t own_rows = pass.appends[i].tokens - drafts;
    const bool has_logits = own_rows == job.pending();
    const Error* failure = step.failure(static_cast<int>(i));
    std::int64_t accepted = 0;
    if (failure != nullptr && drafts == 0) {
      finish(job, FinishReason::error, *failure);
    } else if (failure == nullptr && has_logits && !job.finished) {
      if (job.samples > 1) forks.emplace_back(&job, logits.first(vocabulary));
      if (job.samples == 1) accepted = sample_rows(job, logits);
    }
    // It may have been a guess that could not be stored: the same rows again, without.
    job.drafts_failed = failure != nullptr && drafts > 0;
    counts.push_back(failure != nullptr ? 0 : own_rows + accepted);
    pass.rejected_rows += pass.appends[i].tokens - counts.back();
    stats_.drafted_tokens += drafts;
    stats_.accepted_tokens += accepted;
    if (has_logits) logits = logits.subspan((1 + job.drafts.size()) * vocabulary);
  }
  const Result<CommitResult> committed = step.commit(counts);
  if (!committed) return tl::unexpected<Error>(committed.error());
  keep_prompts(pass);
  for (const auto& [job, row] : forks) fork_samples(*job, row);
  report_prefill();
  return {};
}

void Batcher::drop_finished() {
  for (const std::unique_ptr<Job>& job : running_) {
    if (job->finished && !job->cancelled) keep(*job);
  }
  std::erase_if(running_, [](const std::unique_ptr<Job>& job) { return job->finished; });
}

void Batcher::count_pass(const Pass& pass, double seconds) {
  ++stats_.passes;
  const std::int64_t rows = static_cast<std::int64_t>(pass_tokens_.size()) - pass.rejected_rows;
  (pass.has_prompt ? stats_.prefill_rows : stats_.decode_rows) += rows;
  (pass.has_prompt ? stats_.prefill_seconds : stats_.decode_seconds) += seconds;
  std::int64_t pages = 0;
  std::int64_t shared = 0;
  for (const GroupStats& group : store_.stats().groups) {
    pages += group.referenced_pages - group.cached_pages;
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
