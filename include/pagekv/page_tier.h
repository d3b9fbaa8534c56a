// PageTier: pages of a prefix index in a Tier, below RAM.
//
//   auto pages = PageTier::make(store, tier);
//   auto index = PrefixIndex::make(store, {.sink = pages->sink()});   // given up in RAM: goes down
//   auto space = index->open(identity);
//   pages->attach(*space);
//   ...
//   auto fetch = pages->fetch(*index, *space, prompt);                // ahead of need
//   while (!fetch->poll()) compute_something_else();
//   auto sequence = index->match(*space, prompt);                     // finds what came up, too
//   ...
//   pages->store(*space, tokens, sequence->ref());                    // before the process ends
//
// Whole pages only, each group's part a record of its own (docs/tier.md). Its key is of the chain
// of digests that the prefix index makes of a namespace and its tokens, so equal prefixes of
// different requests and processes are stored once, and nothing that another model, layout, page
// size, tenant, build or instruction set computed is ever found. A record's tag names its tokens,
// and they are compared. What a tier loses is computed again: results never depend on it.
//
// A namespace that is invalidated is given another secret name in the tier: what is stored under
// the old one is out of reach from then on, for all processes as soon as they fetch, and ages out.
//
// Handles share what is behind them. All functions may be called on any thread; a fetch belongs to
// one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pagekv/digest.h"
#include "pagekv/error.h"
#include "pagekv/export.h"
#include "pagekv/prefix_index.h"
#include "pagekv/store.h"
#include "pagekv/tier.h"
#include "pagekv/view.h"

namespace pagekv::inline v0 {

namespace internal {
class PageFetchState;
class PageTierState;
}  // namespace internal

struct PageTierOptions {
  // Bytes of pages that one fetch has on their way into memory, twice: while some are copied into
  // pages, others are read. Also how many bytes store() lets wait.
  std::int64_t batch_bytes = std::int64_t{32} << 20;
  // How long attach(), and the end of a namespace, wait for the tier.
  std::chrono::milliseconds patience{5000};
};

struct PageTierStats {
  std::int64_t offered_pages = 0;  // given up in RAM
  std::int64_t skipped_pages = 0;  // of those, not written: no memory, namespace not attached
  std::int64_t stored_pages = 0;   // by store(): that were not there before
  std::int64_t fetches = 0;
  std::int64_t wanted_pages = 0;   // of fetches, that RAM had not
  std::int64_t fetched_pages = 0;  // of those, brought up
  std::int64_t fetched_bytes = 0;
  std::int64_t wrong_records = 0;         // found under a key, and not of its page
  std::int64_t failed_invalidations = 0;  // the tier did not take the new name
};

// Pages on their way up; in the index when it is done. Move-only; dropping it ends it.
class PAGEKV_API PageFetch {
 public:
  PageFetch();  // of nothing: done
  explicit PageFetch(std::unique_ptr<internal::PageFetchState> state);
  ~PageFetch();
  PageFetch(PageFetch&&) noexcept;
  PageFetch& operator=(PageFetch&&) noexcept;

  // Copies what has arrived into pages, on this thread, and in the end into the index. Whether it
  // is done.
  bool poll();
  // The same until then at most, sleeping in between.
  bool wait(std::chrono::steady_clock::time_point until = kNoDeadline);
  // Why it ended early, if it did for want of pages or memory. A miss is no error.
  const Status& status() const;
  std::int64_t tokens() const;  // brought up so far

 private:
  std::unique_ptr<internal::PageFetchState> state_;
};

struct FetchOptions {
  std::int64_t leave_tokens = 1;  // as MatchOptions
  std::chrono::steady_clock::time_point deadline = kNoDeadline;
};

// What the tag of a page's record says: for tools.
struct PageRecordInfo {
  Digest space{};
  Digest digest{};
  Digest parent{};
  int group = 0;
  std::vector<TokenId> tokens;  // empty where they are too many for a tag
};
// Errors: corrupt_file (not a page's tag).
PAGEKV_API Result<PageRecordInfo> read_page_tag(std::span<const std::byte> tag);
// The key of the record that holds a namespace's secret name: for tools. Its tag is empty.
PAGEKV_API Digest namespace_record_key(const Digest& space);

class PAGEKV_API PageTier {
 public:
  // Errors: invalid_argument.
  static Result<PageTier> make(const Store& store, std::shared_ptr<Tier> tier,
                               PageTierOptions options = {});

  // For PrefixIndexOptions::sink. Copies a page and lets the tier write it later; what the tier is
  // too busy for is lost.
  std::shared_ptr<PageSink> sink() const;

  // Pages of the namespace go down and come up from now on. Reads its name from the tier, or gives
  // it one. Errors: io_error (the tier did not answer).
  Status attach(const PrefixNamespace& space);

  // Begins to bring up what the tier has of `tokens` behind what the index has. Ends where a page
  // is missing, and where windows could not be served. Errors: invalid_argument (a namespace of
  // another index), out_of_memory.
  Result<PageFetch> fetch(const PrefixIndex& index, const PrefixNamespace& space,
                          std::span<const TokenId> tokens, FetchOptions options = {});

  // Writes the view's whole pages that the tier has not, and waits until the last of them is on its
  // way. Returns how many. Errors: invalid_argument (fewer tokens than the view has; a namespace
  // that is not attached), wrong_store, out_of_memory.
  Result<std::int64_t> store(const PrefixNamespace& space, std::span<const TokenId> tokens,
                             ViewRef view);
  // Waits until all that went down so far is written or refused. False: not by then.
  bool flush(std::chrono::steady_clock::time_point until = kNoDeadline);

  Tier& tier() const;
  PageTierStats stats() const;

 private:
  explicit PageTier(std::shared_ptr<internal::PageTierState> state) : state_(std::move(state)) {}
  std::shared_ptr<internal::PageTierState> state_;
};

}  // namespace pagekv::inline v0
