// Who joins a batch, and what they share: the admission half of Batcher.
#include <algorithm>
#include <utility>

#include "engine/batch.h"

namespace pagekv::inline v0::engine {
namespace {

std::int64_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return end - a.begin();
}

}  // namespace

// In order of arrival; one whose prefix somebody is about to compute lets others pass.
Status Batcher::admit() {
  for (std::size_t i = 0; i < waiting_.size();) {
    Job& job = *waiting_[i];
    const bool room = running_samples() + job.samples <= options_.max_running;
    if (!running_.empty() && (!room || short_of_pages_)) return {};
    if (better_prefix_coming(job)) {
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

// Whether a running request will soon have computed a page more of this prompt than anybody has.
bool Batcher::better_prefix_coming(const Job& job) const {
  std::int64_t stored = 0;
  for (const Kept& kept : kept_) stored = std::max(stored, common_prefix(job.tokens, kept.tokens));
  std::int64_t coming = 0;
  for (const std::unique_ptr<Job>& other : running_) {
    const std::int64_t common = common_prefix(job.tokens, other->tokens);
    stored = std::max(stored, std::min(common, other->sequence.length()));
    coming = std::max(coming, common);
  }
  return coming >= stored + store_.layout().page_tokens();
}

// A fork of whoever has the longest common beginning; an empty sequence where nobody shares a
// token. At least one token is left to compute: its logits are wanted.
Result<Sequence> Batcher::start_sequence(const Job& job) {
  const auto wanted = static_cast<std::int64_t>(job.tokens.size()) - 1;
  const Sequence* best = nullptr;
  std::int64_t best_tokens = 0;
  const auto consider = [&](const std::vector<Token>& tokens, const Sequence& sequence) {
    const std::int64_t common =
        std::min({common_prefix(job.tokens, tokens), sequence.length(), wanted});
    if (common > best_tokens) {
      best = &sequence;
      best_tokens = common;
    }
  };
  for (const Kept& kept : kept_) consider(kept.tokens, kept.sequence);
  for (const std::unique_ptr<Job>& other : running_) consider(other->tokens, other->sequence);
  if (best != nullptr) {
    Result<View> prefix = best->publish(best_tokens);
    if (prefix) return store_.create_sequence(*prefix);
    // Rows behind a window are gone: nothing to share.
    if (prefix.error().code() != ErrorCode::window_lost) {
      return tl::unexpected<Error>(prefix.error());
    }
  }
  return store_.create_sequence();
}

}  // namespace pagekv::inline v0::engine
