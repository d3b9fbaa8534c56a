// What comes out of a pass: tokens, samples that go their own ways, and completions.
#include <algorithm>
#include <utility>

#include "engine/batch.h"

namespace pagekv::inline v0::engine {

// Samples at the job's last row and at those of its drafts, the first of `logits` [row,
// vocabulary], for as long as the drafts are what the sampler chooses. Returns how many were.
std::int64_t Batcher::sample_rows(Job& job, std::span<const float> logits) {
  const auto vocabulary = static_cast<std::size_t>(model_.info().vocabulary);
  for (std::size_t row = 0;; ++row) {
    const std::optional<Token> token = sample(job, logits.subspan(row * vocabulary, vocabulary));
    const bool accepted = token && row < job.drafts.size() && job.drafts[row] == *token;
    if (!accepted) return static_cast<std::int64_t>(row);
    if (job.finished) return static_cast<std::int64_t>(row) + 1;
  }
}

// Empty where the job ended without another token.
std::optional<Token> Batcher::sample(Job& job, std::span<const float> logits) {
  const Result<Token> token = job.sampler.sample(logits);
  if (!token) {
    finish(job, FinishReason::error, token.error());
    return {};
  }
  if (job.request.log_probabilities) {
    job.log_probabilities.push_back(log_probability(logits, *token));
  }
  if (options_.is_end && options_.is_end(*token)) {
    finish(job, FinishReason::end);
    return {};
  }
  job.tokens.push_back(*token);
  if (options_.on_token) {
    options_.on_token({.request = job.id, .sample = job.sample, .token = *token});
  }
  if (job.finished) return *token;  // the callback cancelled it
  if (job.generated() >= job.request.max_tokens) {
    finish(job, FinishReason::length);
  } else if (static_cast<std::int64_t>(job.tokens.size()) >= options_.context_tokens) {
    finish(job, FinishReason::context);
  }
  return *token;
}

// The prompt is computed: every sample gets a job and a sequence of its own, and its first token
// from the same logits. The oldest comes first among them, as among all that run.
void Batcher::fork_samples(Job& job, std::span<const float> logits) {
  if (job.finished) return;
  std::vector<std::pair<Job*, Status>> samples = {{&job, Status()}};
  auto at = std::find_if(running_.begin(), running_.end(),
                         [&](const auto& other) { return other.get() == &job; });
  for (int sample = 1; sample < job.samples; ++sample) {
    std::unique_ptr<Job> forked = copy_for_sample(job, sample);
    Result<Sequence> sequence = job.sequence.fork();
    samples.emplace_back(forked.get(), Status());
    if (sequence) {
      forked->sequence = std::move(*sequence);
    } else {
      samples.back().second = tl::unexpected<Error>(sequence.error());
    }
    at = running_.insert(at + 1, std::move(forked));
  }
  job.samples = 1;
  for (const auto& [sampled, status] : samples) {
    if (sampled->finished) continue;
    if (status) sample(*sampled, logits);
    if (!status) finish(*sampled, FinishReason::error, status.error());
  }
}

std::unique_ptr<Batcher::Job> Batcher::copy_for_sample(const Job& job, int sample) {
  SamplerOptions sampling = job.request.sampling;
  sampling.seed += static_cast<std::uint64_t>(sample);
  auto copy = std::make_unique<Job>(Job{.id = job.id,
                                        .request = job.request,
                                        .sampler = *Sampler::make(sampling),
                                        .sample = sample,
                                        .tokens = job.tokens,
                                        .space = job.space,
                                        .shared_tokens = job.sequence.length()});
  stats_.shared_tokens += copy->shared_tokens;
  return copy;
}

bool Batcher::cancel(int request) {
  // Callbacks may submit and cancel too: nothing is being walked over while they run.
  std::vector<std::unique_ptr<Job>> waiting;
  for (std::unique_ptr<Job>& job : waiting_) {
    if (job->id == request) waiting.push_back(std::move(job));
  }
  std::erase(waiting_, nullptr);
  std::vector<Job*> jobs;
  for (const auto& job : waiting) jobs.push_back(job.get());
  for (const auto& job : running_) {
    if (job->id == request && !job->finished) jobs.push_back(job.get());
  }
  const bool outermost = !std::exchange(in_step_, true);
  for (Job* job : jobs) {
    if (!job->finished) finish(*job, FinishReason::cancelled);
  }
  if (outermost) {
    in_step_ = false;
    drop_finished();
  }
  return !jobs.empty();
}

void Batcher::finish(Job& job, FinishReason reason, std::optional<Error> error) {
  job.finished = true;
  job.cancelled = reason == FinishReason::cancelled;
  if (job.sequence.valid()) short_of_pages_ = false;
  if (!options_.on_finish) return;
  const auto prompt_tokens = static_cast<std::int64_t>(job.request.prompt.size());
  for (int i = 0; i < job.samples; ++i) {
    options_.on_finish({.request = job.id,
                        .sample = job.sample + i,
                        .tokens = {job.tokens.begin() + prompt_tokens, job.tokens.end()},
                        .reason = reason,
                        .error = error,
                        .prompt_tokens = prompt_tokens,
                        .shared_tokens = job.shared_tokens,
                        .log_probabilities = job.log_probabilities,
                        .draws = job.sampler.draws()});
  }
}

}  // namespace pagekv::inline v0::engine
