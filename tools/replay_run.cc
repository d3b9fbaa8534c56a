#include "tools/replay_run.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "pagekv/page_tier.h"
#include "pagekv/store.h"

namespace pagekv_tool {
namespace {

using pagekv::ErrorCode;
using pagekv::TokenId;
using Tokens = std::span<const TokenId>;

// What a page holds does not matter here, so it holds as little as it can.
constexpr int kDim = 8;
constexpr std::size_t kDigestedRequests = 200;

// Processor time of this thread: other work on the machine does not count.
class Clock {
 public:
  explicit Clock(double& seconds) : seconds_(seconds) {}
  ~Clock() { seconds_ += now() - start_; }
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  double& seconds_;
  double start_ = now();
};

std::int64_t all_blocks(const Trace& trace) {
  std::int64_t blocks = 0;
  for (const TraceRequest& request : trace.requests) blocks += request.blocks;
  return blocks;
}

pagekv::Result<pagekv::Store> make_store(const Trace& trace, std::int64_t capacity_blocks) {
  pagekv::LayoutSpec spec;
  spec.layers.push_back({.kv_heads = 1,
                         .key_dim = kDim,
                         .value_dim = kDim,
                         .format = *pagekv::Format::parse("bf16")});
  spec.page_tokens = trace.page_tokens;
  auto layout = pagekv::CacheLayout::make(spec);
  if (!layout) return tl::unexpected<pagekv::Error>(layout.error());
  auto device = pagekv::make_cpu_device();
  if (!device) return tl::unexpected<pagekv::Error>(device.error());
  std::size_t longest = 1;
  for (const TraceRequest& request : trace.requests) {
    longest = std::max(longest, request.tokens.size());
  }
  const std::int64_t page_bytes = layout->group(0).page_bytes;
  return pagekv::Store::make(std::move(*layout), std::move(*device),
                             {.cap_bytes = capacity_blocks * page_bytes,
                              .max_sequence_tokens = static_cast<std::int64_t>(longest)});
}

class Replay {
 public:
  Replay(const Trace& trace, const ReplaySettings& settings, std::int64_t capacity_blocks,
         pagekv::Store store, std::optional<pagekv::PageTier> pages, pagekv::PrefixIndex index,
         pagekv::PrefixNamespace space)
      : trace_(trace),
        settings_(settings),
        capacity_blocks_(capacity_blocks),
        store_(std::move(store)),
        pages_(std::move(pages)),
        index_(std::move(index)),
        space_(std::move(space)) {}

  pagekv::Status serve(const TraceRequest& request) {
    while (static_cast<int>(running_.size()) >= settings_.concurrency) running_.pop_front();
    Tokens tokens = request.tokens;
    const auto most = static_cast<std::size_t>(capacity_blocks_ * trace_.page_tokens);
    if (tokens.size() > most) {
      ++result_.cut_requests;
      tokens = tokens.first(most);
    }
    if (auto ok = fetch(tokens); !ok) return ok;
    auto sequence = match(tokens);
    if (!sequence) return tl::unexpected<pagekv::Error>(sequence.error());
    const std::int64_t found = sequence->length();
    count_hit(request, found);
    if (auto ok = compute(*sequence, tokens.size()); !ok) return ok;
    if (auto ok = insert(tokens, found, *sequence); !ok) return ok;
    running_.push_back(std::move(*sequence));
    note_use(request);
    wait_for_writes();
    return {};
  }

  pagekv::Result<ReplayResult> finish() {
    const pagekv::PrefixStats stats = index_.stats();
    result_.inserted_blocks = stats.inserted_pages;
    result_.evicted_blocks = stats.evicted_pages;
    result_.block_operations += stats.evicted_pages;
    if (pages_) result_.sunk_blocks = pages_->tier().stats().written - 1;  // and a namespace's name
    if (stats.stored_pages > 0) {
      result_.index_bytes_per_block =
          static_cast<double>(stats.index_bytes) / static_cast<double>(stats.stored_pages);
    }
    std::int64_t pages = 0;
    double seconds = 0;
    for (std::size_t at = 0; at < std::min(kDigestedRequests, trace_.requests.size()); ++at) {
      const Clock clock(seconds);
      const auto chain = index_.digests(space_, trace_.requests[at].tokens);
      if (!chain) return tl::unexpected<pagekv::Error>(chain.error());
      pages += static_cast<std::int64_t>(chain->size());
    }
    if (pages > 0) result_.digest_seconds_per_page = seconds / static_cast<double>(pages);
    thin_out(result_.use);
    return std::move(result_);
  }

 private:
  // Waits for the tier, which a server would not.
  pagekv::Status fetch(Tokens tokens) {
    if (!pages_) return {};
    const auto start = std::chrono::steady_clock::now();
    auto fetch = pages_->fetch(index_, space_, tokens, {.leave_tokens = 0});
    if (!fetch) return tl::unexpected<pagekv::Error>(fetch.error());
    fetch->wait();
    result_.risen_blocks += fetch->tokens() / trace_.page_tokens;
    count_wait(start);
    return {};
  }

  // So that what the next request finds does not depend on who is faster.
  void wait_for_writes() {
    if (!pages_) return;
    const auto start = std::chrono::steady_clock::now();
    pages_->flush();
    count_wait(start);
  }

  void count_wait(std::chrono::steady_clock::time_point start) {
    result_.tier_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  pagekv::Result<pagekv::Sequence> match(Tokens tokens) {
    const Clock clock(result_.match_seconds);
    return index_.match(space_, tokens, {.leave_tokens = 0});
  }

  void count_hit(const TraceRequest& request, std::int64_t found) {
    const std::int64_t blocks = (found + trace_.page_tokens - 1) / trace_.page_tokens;
    const bool whole = found == static_cast<std::int64_t>(request.tokens.size());
    const std::int64_t full_blocks = whole ? request.blocks : found / trace_.page_tokens;
    ++result_.requests;
    result_.blocks += request.blocks;
    result_.hit_blocks += full_blocks;
    result_.prompt_tokens += request.prompt_tokens;
    result_.hit_tokens +=
        trace_.by_id ? std::min(full_blocks * trace_.block_tokens, request.prompt_tokens) : found;
    result_.block_operations += std::min(blocks + 1, request.blocks) + request.blocks;
  }

  // Stores rows for what was not found. When running requests hold too many pages, the oldest of
  // them have to end first.
  pagekv::Status compute(pagekv::Sequence& sequence, std::size_t tokens) {
    const std::int64_t missing = static_cast<std::int64_t>(tokens) - sequence.length();
    if (missing == 0) return {};
    for (;;) {
      auto step = reserve(sequence, missing);
      if (step) return write(*step, missing);
      if (step.error().code() != ErrorCode::pool_exhausted || running_.empty()) {
        return tl::unexpected<pagekv::Error>(step.error());
      }
      running_.pop_front();
    }
  }

  pagekv::Result<pagekv::Step> reserve(pagekv::Sequence& sequence, std::int64_t tokens) {
    const Clock clock(result_.reserve_seconds);
    const pagekv::Append append{&sequence, tokens};
    return store_.reserve({&append, 1});
  }

  pagekv::Status write(pagekv::Step& step, std::int64_t tokens) {
    zeros_.resize(std::max(zeros_.size(), static_cast<std::size_t>(tokens * kDim)));
    const auto rows = pagekv::Rows::packed(zeros_.data(), pagekv::DType::f32, 1, kDim);
    if (auto ok = step.write(0, rows, rows); !ok) return ok;
    const auto done = step.commit();
    if (!done) return tl::unexpected<pagekv::Error>(done.error());
    return {};
  }

  // slru: what has been found again is given up after all that was used once.
  pagekv::Status insert(Tokens tokens, std::int64_t found, const pagekv::Sequence& sequence) {
    const Clock clock(result_.insert_seconds);
    auto done = index_.insert(space_, tokens, sequence);
    if (done && settings_.policy == "slru" && found > 0) {
      done = index_.insert(space_, tokens.first(static_cast<std::size_t>(found)), sequence,
                           {.priority = 1});
    }
    if (!done) return tl::unexpected<pagekv::Error>(done.error());
    return {};
  }

  void note_use(const TraceRequest& request) {
    const pagekv::GroupStats group = store_.stats().groups.front();
    result_.peak_blocks = std::max(result_.peak_blocks, group.referenced_pages);
    result_.peak_shared_blocks = std::max(result_.peak_shared_blocks, group.shared_pages);
    result_.use.push_back({request.seconds, group.referenced_pages});
  }

  static void thin_out(std::vector<ReplayResult::Use>& use) {
    if (use.size() <= kMostUses) return;
    std::vector<ReplayResult::Use> kept;
    for (std::size_t at = 0; at < kMostUses; ++at) {
      kept.push_back(use[at * (use.size() - 1) / (kMostUses - 1)]);
    }
    use = std::move(kept);
  }

  const Trace& trace_;
  const ReplaySettings& settings_;
  std::int64_t capacity_blocks_;
  pagekv::Store store_;
  std::optional<pagekv::PageTier> pages_;
  pagekv::PrefixIndex index_;
  pagekv::PrefixNamespace space_;
  std::deque<pagekv::Sequence> running_;  // oldest first
  std::vector<float> zeros_;
  ReplayResult result_;
};

}  // namespace

pagekv::Result<ReplayResult> run_replay(const Trace& trace, const ReplaySettings& settings) {
  const std::int64_t capacity =
      settings.capacity_blocks > 0 ? settings.capacity_blocks : all_blocks(trace);
  auto store = make_store(trace, capacity);
  if (!store) return tl::unexpected<pagekv::Error>(store.error());
  std::optional<pagekv::PageTier> pages;
  if (settings.tier) {
    auto made = pagekv::PageTier::make(*store, settings.tier);
    if (!made) return tl::unexpected<pagekv::Error>(made.error());
    pages = std::move(*made);
  }
  auto index = pagekv::PrefixIndex::make(*store, {.sink = pages ? pages->sink() : nullptr});
  if (!index) return tl::unexpected<pagekv::Error>(index.error());
  auto space = index->open({.model = "replay"});
  if (!space) return tl::unexpected<pagekv::Error>(space.error());
  if (pages) {
    if (auto ok = pages->attach(*space); !ok) return tl::unexpected<pagekv::Error>(ok.error());
  }
  Replay replay(trace, settings, capacity, std::move(*store), std::move(pages), std::move(*index),
                std::move(*space));
  const auto total = static_cast<std::int64_t>(trace.requests.size());
  for (std::int64_t at = 0; at < total; ++at) {
    if (auto ok = replay.serve(trace.requests[static_cast<std::size_t>(at)]); !ok) {
      return tl::unexpected<pagekv::Error>(ok.error());
    }
    if (settings.progress) settings.progress(at + 1, total);
  }
  return replay.finish();
}

}  // namespace pagekv_tool
