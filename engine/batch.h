// Batcher: continuous batching over one Store.
//
// Requests are admitted, their prompts computed in chunks, and then all running requests advance
// together by one token per forward pass; they join and leave at any pass. A prompt that begins
// like one that was computed before shares its pages: a PrefixIndex over the store keeps what
// prompts and answers left, and finds the longest common beginning, token by token. Of prompts that
// begin alike and arrive together the beginning is computed once. When the pool is full, the index
// gives up what nobody uses; then the youngest running request gives its pages back and waits until
// another one has finished.
//
// With a tier below the store, what requests computed is written there when they end, and prompts
// come up from it while others compute: a request waits for its own prefix only, and for no more
// than the tier has.
//
// With speculation a request has a row in a pass for each guessed token too. The sampler chooses at
// each row as it would have without; the step commits the rows up to the first guess that was not
// chosen. A request of several samples computes its prompt once; then its sequence is forked, and
// each sample goes on as a request of its own would.
//
// A request's tokens are the same whatever else runs: logits do not depend on the batch, on chunks,
// or on where a prefix came from, and every request has its own sampler. One thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/model.h"
#include "engine/prompt_lookup.h"
#include "engine/sampler.h"
#include "pagekv/page_tier.h"
#include "pagekv/prefix_index.h"
#include "pagekv/store.h"

namespace pagekv::inline v0::engine {

struct Request {
  std::vector<Token> prompt = {};  // at least one token
  std::int64_t max_tokens = 128;   // generated at most
  SamplerOptions sampling = {};
  // Continuations of the same prompt, at most BatcherOptions::max_running. Sample i has the seed
  // sampling.seed + i and is what a request with that seed alone would get.
  int samples = 1;
  bool log_probabilities = false;  // wanted in the Completion
  // Who asks: requests share pages only with those of the same salt (NamespaceSpec::salt).
  std::string salt = {};
};

enum class FinishReason : std::uint8_t {
  end = 0,      // the model said so
  length = 1,   // max_tokens
  context = 2,  // the longest sequence there is room for
  error = 3,
  cancelled = 4,
};

struct NewToken {
  int request = 0;
  int sample = 0;
  Token token = kNoToken;
};

// Every sample of a request has one.
struct Completion {
  int request = 0;  // as submit() numbered it
  int sample = 0;
  std::vector<Token> tokens = {};  // generated, without the end token
  FinishReason reason = FinishReason::error;
  std::optional<Error> error = {};
  std::int64_t prompt_tokens = 0;
  // Of the prompt, not computed but shared when the request was first admitted.
  std::int64_t shared_tokens = 0;
  // Where asked for: ln of the probability that the model, at temperature 1, gives each of
  // `tokens`, and then the end token where there was one.
  std::vector<double> log_probabilities = {};
  std::uint64_t draws = 0;  // of the sampler, SamplerOptions::draws included
};

// Guesses what comes after `tokens`: writes tokens of the vocabulary into `drafts` from its
// beginning and returns how many. What is generated does not depend on it, only how fast.
using Drafter = std::function<std::size_t(std::span<const Token> tokens, std::span<Token> drafts)>;

struct BatcherOptions {
  // Prompt rows computed at once are cut to fit. Every running request has a row in every pass:
  // more requests than rows make larger passes.
  std::int64_t rows_per_pass = 512;
  int max_running = 64;  // every sample counts
  bool reuse = true;     // keep what was computed, for prompts that begin alike
  // Pages beyond RAM; null: none. Needs `reuse`. What it does not answer is computed.
  std::shared_ptr<Tier> tier = {};
  std::int64_t context_tokens = 0;  // longest sequence; 0: the model's context
  Arithmetic arithmetic = Arithmetic::exact;
  // Tokens guessed per sample and pass, at most; 0: no speculation. Fewer where the pass has no
  // rows or pages left: nobody waits or gives pages back for a guess.
  std::int64_t draft_tokens = 0;
  Drafter drafter = PromptLookup{};
  std::function<bool(Token)> is_end = {};  // may be empty: nothing ends
  // These are called from step() and cancel(), and may call submit() and cancel().
  std::function<void(const NewToken& token)> on_token = {};  // not called for end tokens
  std::function<void(const Completion& completion)> on_finish = {};
  std::function<void(std::int64_t done, std::int64_t total)> on_prefill = {};  // of running prompts
};

struct BatcherStats {
  std::int64_t passes = 0;
  // A pass that computes any prompt row counts as prefill with all its rows. Rows of rejected
  // drafts are not counted.
  std::int64_t prefill_rows = 0;
  double prefill_seconds = 0;
  std::int64_t decode_rows = 0;
  double decode_seconds = 0;
  std::int64_t shared_tokens = 0;    // sum over all requests
  std::int64_t fetched_tokens = 0;   // of those, brought up from the tier
  std::int64_t preemptions = 0;      // requests that gave their pages back for a while
  std::int64_t drafted_tokens = 0;   // guesses that were computed
  std::int64_t accepted_tokens = 0;  // and then chosen
  // At the pass that held most: pages over all groups, but for those that only the index keeps, and
  // how many of them were held twice or more.
  std::int64_t peak_pages = 0;
  std::int64_t peak_shared_pages = 0;
};

class Batcher {
 public:
  // The model must outlive the batcher. Errors: those of Model::make_runner(), invalid_argument.
  static Result<std::unique_ptr<Batcher>> make(const Model& model, Store store,
                                               BatcherOptions options);

  // Numbers requests from 0. Errors: invalid_argument (no prompt, sampling options, samples),
  // too_long.
  Result<int> submit(Request request);
  // Ends what is left of a request, with the reason `cancelled`; its pages are free afterwards, or,
  // where a callback of step() calls this, at the end of that step. False: nothing was left.
  bool cancel(int request);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  // One forward pass, or none: when idle, and while all that is left waits for the tier. What
  // concerns one request ends up in its Completion; an error here is of the whole batch.
  Status step();
  // step() until idle.
  Status run();

  // Waits until the tier has written what it was given. False: not by then.
  bool flush(std::chrono::steady_clock::time_point until = kNoDeadline);

  const BatcherStats& stats() const { return stats_; }
  PrefixIndex& index() { return index_; }
  const std::optional<PageTier>& pages() const { return pages_; }  // none without a tier

 private:
  struct Job {
    int id = 0;
    Request request;
    Sampler sampler;
    int sample = 0;                  // the first of those that this job stands for
    int samples = 1;                 // more than one until the prompt is computed
    std::vector<Token> tokens = {};  // prompt and what was generated
    std::vector<Token> drafts = {};  // guessed to follow, in the pass under way
    Sequence sequence = {};          // its length: how many of `tokens` are computed
    PrefixNamespace space = {};
    PrefixRequest wanted = {};            // until its prompt is computed
    std::optional<PageFetch> fetch = {};  // from when its turn to compute its prompt has come
    std::int64_t shared_tokens = 0;
    std::vector<double> log_probabilities = {};
    bool preempted = false;      // ever
    bool drafts_failed = false;  // in the pass before
    bool finished = false;
    bool cancelled = false;

    std::int64_t pending() const;
    std::int64_t generated() const;
    bool in_prompt() const;  // more than its last token is to be computed
  };
  struct Pass {
    std::vector<Job*> jobs;
    std::vector<Append> appends;
    bool has_prompt = false;
    bool has_drafts = false;
    std::int64_t rejected_rows = 0;
  };

  Batcher(const Model& model, Store store, PrefixIndex index, std::optional<PageTier> pages,
          BatcherOptions options);
  Status admit();
  Result<bool> may_start(Job& job);
  bool fetched(Job& job);
  void await_fetch();
  Result<Sequence> start_sequence(const Job& job);
  void keep(Job& job);
  void keep_prompts(const Pass& pass);
  int running_samples() const;
  Status one_pass();
  Pass choose_rows(bool with_drafts);
  void choose_drafts(Job& job, std::int64_t room) const;
  Result<Step> reserve(Pass& pass);
  void preempt_youngest();
  Status forward(Step& step, const Pass& pass);
  Status commit(Step& step, Pass& pass);
  std::int64_t sample_rows(Job& job, std::span<const float> logits);
  std::optional<Token> sample(Job& job, std::span<const float> logits);
  void fork_samples(Job& job, std::span<const float> logits);
  std::unique_ptr<Job> copy_for_sample(const Job& job, int sample);
  void finish(Job& job, FinishReason reason, std::optional<Error> error = {});
  void drop_finished();
  void count_pass(const Pass& pass, double seconds);
  void report_prefill() const;

  const Model& model_;
  Store store_;
  PrefixIndex index_;
  std::optional<PageTier> pages_;
  BatcherOptions options_;
  std::unique_ptr<Runner> runner_;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // oldest first
  bool short_of_pages_ = false;                // nobody is admitted until somebody has finished
  bool in_step_ = false;                       // pages are given back at its end
  int next_id_ = 0;
  BatcherStats stats_;

  // Of the pass under way; kept to reuse their memory.
  std::vector<Token> pass_tokens_;
  std::vector<std::int64_t> logit_rows_;
  std::vector<float> logits_;
};

}  // namespace pagekv::inline v0::engine
