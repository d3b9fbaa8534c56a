// Store: the pages of a model's key/value cache. Start here.
//
//   auto layout = CacheLayout::make({.layers = ..., .page_tokens = 64});
//   auto store  = Store::make(*layout, *make_cpu_device(), {.cap_bytes = 1 << 30});
//   auto seq    = store->create_sequence();
//   auto step   = store->reserve({{{.sequence = &*seq, .tokens = 1}}});
//   step->write(layer, k, v);                        // every layer
//   auto plan   = store->plan({{{.view = step->view(0), .rows = 1}}}, spec);
//   plan->run(layer, {.q = q, .out = out});          // every layer
//   step->commit();
//
// A Store is a handle; sequences, steps, views and plans keep what is behind it alive. All
// functions of Store may be called on any thread; one mutex guards bookkeeping and is never held
// while rows are read, written or copied. See examples/decode_step.cc for the whole story.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pagekv/attend.h"
#include "pagekv/device.h"
#include "pagekv/error.h"
#include "pagekv/export.h"
#include "pagekv/layout.h"
#include "pagekv/sequence.h"
#include "pagekv/step.h"
#include "pagekv/view.h"

namespace pagekv::inline v0 {

struct StoreOptions {
  // Hard cap on page memory over all groups. Address space for it is reserved at once, memory only
  // as pages are first used.
  std::int64_t cap_bytes = 0;
  // Longest sequence; page tables are sized for it, so that appending never allocates.
  std::int64_t max_sequence_tokens = 8192;
};

struct GroupStats {
  std::int64_t page_bytes = 0;
  std::int64_t reserved_pages = 0;    // address space: what the cap allows this group alone
  std::int64_t committed_pages = 0;   // backed by memory = free + retiring + referenced
  std::int64_t free_pages = 0;        // of the committed ones
  std::int64_t retiring_pages = 0;    // given up, waiting for a stream to pass
  std::int64_t referenced_pages = 0;  // held by a sequence, view, step or prefix index
  std::int64_t shared_pages = 0;      // of those, held more than once
  std::int64_t cached_pages = 0;      // of those, held by a prefix index alone
  std::int64_t pinned_pages = 0;      // of those, what the reclaimer may not give up
};

struct StoreStats {
  std::int64_t sequences = 0;
  std::int64_t views = 0;
  std::int64_t live_steps = 0;
  std::int64_t tokens = 0;  // committed, over all sequences, shared ones counted for each
  std::int64_t cap_bytes = 0;
  std::int64_t committed_bytes = 0;
  std::int64_t referenced_bytes = 0;
  std::vector<GroupStats> groups;
};

// Who can give pages up when a pool is full: a prefix cache, say. Called without the store's mutex,
// from inside reserve(), so it may drop views and sequences. Must be thread-safe and must not
// throw.
class PAGEKV_API Reclaimer {
 public:
  struct Pages {
    std::int64_t reclaimable = 0;
    std::int64_t pinned = 0;
  };
  virtual ~Reclaimer();
  virtual Pages pages(int group) const noexcept = 0;
  // Try to make `pages` pages of `group` free. It may free fewer, or more.
  virtual void reclaim(int group, std::int64_t pages) noexcept = 0;
};

class PAGEKV_API Store {
 public:
  // Errors: invalid_argument (a cap smaller than one page of every group, lengths below 1),
  // out_of_memory (address space).
  static Result<Store> make(CacheLayout layout, Device device, StoreOptions options);

  const CacheLayout& layout() const;
  Device& device() const;

  Result<Sequence> create_sequence();                    // empty
  Result<Sequence> create_sequence(const View& prefix);  // shares the view's pages

  // Room for new rows in many sequences, all or nothing. Errors: invalid_argument, busy, too_long,
  // wrong_store (numbers: index into `appends`), pool_exhausted (after asking the reclaimer),
  // out_of_memory. Never blocks.
  Result<Step> reserve(std::span<const Append> appends);

  // Cuts the work of one read. Errors: invalid_argument, window_lost, unsupported.
  Result<Plan> plan(std::span<const QueryRows> rows, const AttendSpec& spec);
  // The same into an existing plan: no allocation once it has seen as large a batch. Where it fails
  // the plan cannot be run until it is made anew.
  Status replan(Plan& plan, std::span<const QueryRows> rows, const AttendSpec& spec);

  // First token whose rows `group` still has: 0 but for groups with a window. REQUIRES: `group` is
  // one of the layout's.
  std::int64_t first(ViewRef view, int group) const;
  // Decodes tokens [first(view, group of layer), view.length()) of a layer into contiguous rows,
  // rounding each stored value once to the output type. Row 0 of the output is that first token.
  Status gather(ViewRef view, int layer, MutableRows k, MutableRows v, Stream stream = {}) const;

  // One reclaimer; null removes it. The caller keeps it alive: the store only looks whether it
  // still is, since what it holds keeps the store alive.
  void set_reclaimer(const std::shared_ptr<Reclaimer>& reclaimer);

  StoreStats stats() const;
  // Proves the books: every page is free, retiring or referenced exactly as often as it is held,
  // and no holder sees an unclaimed row. Errors: books_broken, which is a bug in pagekv.
  Status check() const;

  const std::shared_ptr<internal::StoreCore>& core() const { return core_; }

 private:
  explicit Store(std::shared_ptr<internal::StoreCore> core) : core_(std::move(core)) {}
  std::shared_ptr<internal::StoreCore> core_;
};

}  // namespace pagekv::inline v0
