// Who joins a batch, and what they share: the admission half of Batcher.
#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/batch.h"

namespace pagekv::inline v0::engine {

namespace {

// Requests whose prefixes are brought up before there is room for them.
constexpr std::size_t kFetchedAhead = 4;
constexpr auto kNap = std::chrono::milliseconds(20);

}  // namespace

// In order of arrival; one whose prefix somebody is about to compute lets others pass.
Status Batcher::admit() {
  bool full = false;  // from then on nobody is admitted
  for (std::size_t i = 0; i < waiting_.size();) {
    Job& job = *waiting_[i];
    const bool room = running_samples() + job.samples <= options_.max_running;
    full = full || (!running_.empty() && (!room || short_of_pages_));
    if (full && (!pages_ || i >= kFetchedAhead)) return {};
    const Result<bool> ready = may_start(job);
    if (!ready) return tl::unexpected<Error>(ready.error());
    if (full || !*ready) {
      ++i;
      continue;
    }
    Result<Sequence> sequence = start_sequence(job);
    if (!sequence) return tl::unexpected<Error>(sequence.error());
    job.sequence = std::move(*sequence);
    if (!job.preempted) {
      job.shared_tokens = job.sequence.length();
      stats_.shared_tokens += job.shared_tokens;
    }
    // Running jobs stay in order of arrival, so that the youngest is always the last.
    const auto younger = std::find_if(running_.begin(), running_.end(), [&](const auto& other) {
      return std::pair(other->id, other->sample) > std::pair(job.id, job.sample);
    });
    running_.insert(younger, std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return {};
}

int Batcher::running_samples() const {
  int samples = 0;
  for (const std::unique_ptr<Job>& job : running_) samples += job->samples;
  return samples;
}

// False while a running request is computing a page more of this prompt than is kept.
Result<bool> Batcher::may_start(Job& job) {
  if (!options_.reuse) return true;
  if (!job.wanted.valid()) {
    Result<PrefixRequest> wanted = index_.request(job.space, job.tokens);
    if (!wanted) return tl::unexpected<Error>(wanted.error());
    job.wanted = std::move(*wanted);
  }
  return job.wanted.poll() && fetched(job);
}

// Whether what the tier has of the prompt is in the index. Those that begin alike wait meanwhile,
// as they do while it is computed. What cannot be fetched is computed.
bool Batcher::fetched(Job& job) {
  if (!pages_) return true;
  if (!job.fetch) {
    Result<PageFetch> fetch = pages_->fetch(index_, job.space, job.tokens);
    job.fetch = fetch ? std::move(*fetch) : PageFetch();
  }
  if (!job.fetch->poll()) return false;
  stats_.fetched_tokens += job.fetch->tokens();
  job.fetch = PageFetch();
  return true;
}

// Nobody computes: all wait for the tier.
void Batcher::await_fetch() {
  for (const std::unique_ptr<Job>& job : waiting_) {
    if (!job->fetch) continue;
    job->fetch->wait(std::chrono::steady_clock::now() + kNap);
    return;
  }
}

// At least one token is left to compute: its logits are wanted.
Result<Sequence> Batcher::start_sequence(const Job& job) {
  return options_.reuse ? index_.match(job.space, job.tokens) : store_.create_sequence();
}

// Keeps what the job has computed. What cannot be kept is computed again: no reason to fail.
void Batcher::keep(Job& job) {
  if (!options_.reuse || !job.sequence.valid()) return;
  const auto computed = static_cast<std::size_t>(job.sequence.length());
  static_cast<void>(index_.insert(job.space, std::span(job.tokens).first(computed), job.sequence));
  if (pages_ && job.finished) {
    static_cast<void>(pages_->store(job.space, job.tokens, job.sequence.ref()));
  }
}

// Keeps prompts as they are computed, for those who wait for them; in one piece where there are
// windows, since each part would keep the rows of a whole window more.
void Batcher::keep_prompts(const Pass& pass) {
  for (Job* job : pass.jobs) {
    if (!job->wanted.valid() || job->cancelled) continue;
    const bool whole =
        job->sequence.length() >= static_cast<std::int64_t>(job->request.prompt.size());
    if (whole || !store_.layout().has_windows()) keep(*job);
    if (whole) job->wanted = PrefixRequest();
  }
}

}  // namespace pagekv::inline v0::engine
