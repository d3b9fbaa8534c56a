// Batcher: continuous batching over one Store.
//
// Requests are admitted, their prompts computed in chunks, and then all running requests advance
// together by one token per forward pass; they join and leave at any pass. A prompt that begins
// like a running or lately finished one shares its pages by fork: the longest common beginning is
// found token by token. When the pool is full, finished sequences kept for their prefixes go first;
// then the youngest running request gives its pages back and waits until another one has finished.
//
// A request's tokens are the same whatever else runs: logits do not depend on the batch, on chunks,
// or on where a prefix came from, and every request has its own sampler. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/model.h"
#include "engine/sampler.h"
#include "pagekv/store.h"

namespace pagekv::inline v0::engine {

struct Request {
  std::vector<Token> prompt = {};  // at least one token
  std::int64_t max_tokens = 128;   // generated at most
  SamplerOptions sampling = {};
};

enum class FinishReason : std::uint8_t {
  end = 0,      // the model said so
  length = 1,   // max_tokens
  context = 2,  // the longest sequence there is room for
  error = 3,
};

struct Completion {
  int request = 0;                 // as submit() numbered it
  std::vector<Token> tokens = {};  // generated, without the end token
  FinishReason reason = FinishReason::error;
  std::optional<Error> error = {};
  std::int64_t prompt_tokens = 0;
  // Of the prompt, not computed but shared when the request was first admitted.
  std::int64_t shared_tokens = 0;
};

struct BatcherOptions {
  // Prompt rows computed at once are cut to fit. Every running request has a row in every pass:
  // more requests than rows make larger passes.
  std::int64_t rows_per_pass = 512;
  int max_running = 64;
  int max_kept = 16;                // finished sequences kept for their prefixes
  std::int64_t context_tokens = 0;  // longest sequence; 0: the model's context
  Arithmetic arithmetic = Arithmetic::exact;
  std::function<bool(Token)> is_end = {};                       // may be empty: nothing ends
  std::function<void(int request, Token token)> on_token = {};  // not called for end tokens
  std::function<void(const Completion& completion)> on_finish = {};
  std::function<void(std::int64_t done, std::int64_t total)> on_prefill = {};  // of running prompts
};

struct BatcherStats {
  std::int64_t passes = 0;
  // A pass that computes any prompt row counts as prefill with all its rows.
  std::int64_t prefill_rows = 0;
  double prefill_seconds = 0;
  std::int64_t decode_rows = 0;
  double decode_seconds = 0;
  std::int64_t shared_tokens = 0;  // sum over all requests
  std::int64_t preemptions = 0;    // requests that gave their pages back for a while
  // At the pass that held most: pages over all groups, and how many of them were held twice or
  // more.
  std::int64_t peak_pages = 0;
  std::int64_t peak_shared_pages = 0;
};

class Batcher {
 public:
  // The model must outlive the batcher. Errors: those of Model::make_runner(), invalid_argument.
  static Result<std::unique_ptr<Batcher>> make(const Model& model, Store store,
                                               BatcherOptions options);

  // Numbers requests from 0. Errors: invalid_argument (no prompt, sampling options), too_long.
  Result<int> submit(Request request);
  bool idle() const { return waiting_.empty() && running_.empty(); }
  // One forward pass, or none when idle. What concerns one request ends up in its Completion; an
  // error here is of the whole batch.
  Status step();
  // step() until idle.
  Status run();

  const BatcherStats& stats() const { return stats_; }

 private:
  struct Job {
    int id = 0;
    Request request;
    Sampler sampler;
    std::vector<Token> tokens = {};  // prompt and what was generated
    Sequence sequence = {};          // its length: how many of `tokens` are computed
    std::int64_t shared_tokens = 0;
    bool preempted = false;  // ever
    bool finished = false;

    std::int64_t pending() const;
    bool in_prompt() const;  // more than its last token is to be computed
  };
  struct Kept {
    std::vector<Token> tokens;
    Sequence sequence;
  };
  struct Pass {
    std::vector<Job*> jobs;
    std::vector<Append> appends;
    bool has_prompt = false;
  };

  Batcher(const Model& model, Store store, BatcherOptions options);
  Status admit();
  Result<Sequence> start_sequence(const Job& job);
  bool better_prefix_coming(const Job& job) const;
  Pass choose_rows();
  Result<Step> reserve(Pass& pass);
  bool give_up_pages();
  void preempt_youngest();
  Status forward(Step& step, const Pass& pass);
  void commit(Step& step, const Pass& pass);
  void sample(Job& job, std::span<const float> logits);
  void finish(Job& job, FinishReason reason, std::optional<Error> error = {});
  void drop_finished();
  void count_pass(const Pass& pass, double seconds);
  void report_prefill() const;

  const Model& model_;
  Store store_;
  BatcherOptions options_;
  std::unique_ptr<Runner> runner_;
  std::deque<std::unique_ptr<Job>> waiting_;
  std::vector<std::unique_ptr<Job>> running_;  // oldest first
  std::deque<Kept> kept_;                      // oldest first
  bool short_of_pages_ = false;                // nobody is admitted until somebody has finished
  int next_id_ = 0;
  BatcherStats stats_;

  // Of the pass under way; kept to reuse their memory.
  std::vector<Token> pass_tokens_;
  std::vector<std::int64_t> logit_rows_;
  std::vector<float> logits_;
};

}  // namespace pagekv::inline v0::engine
