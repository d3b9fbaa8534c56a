// StoreCore: what all handles of one store share.
//
// One mutex guards the pools, the tables and the lists; it is never held while rows are read,
// written or copied. Page counts and claims change only under it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <vector>

#include "core/backend.h"
#include "core/holder.h"
#include "core/pool.h"
#include "core/step_state.h"
#include "pagekv/store.h"

namespace pagekv::inline v0::internal {

class StoreCore : public std::enable_shared_from_this<StoreCore> {
 public:
  StoreCore(CacheLayout layout, Device device, StoreOptions options);
  Status reserve_arenas();  // once, before anything else

  const CacheLayout& layout() const { return layout_; }
  Device& device() { return device_; }
  Backend& backend() { return device_.backend(); }
  const StoreOptions& options() const { return options_; }
  std::mutex& mutex() const { return mutex_; }

  // Everything below REQUIRES the mutex, but for address().
  PagePool& pool(int group) { return pools_[static_cast<std::size_t>(group)]; }
  const PagePool& pool(int group) const { return pools_[static_cast<std::size_t>(group)]; }
  LayerAddress address(int layer) const { return pool(layout_.layer(layer).group).address(layer); }

  // A page of `group`, from the free list or by committing memory; kNoPage when the cap is reached.
  // Errors: out_of_memory.
  Result<PageId> acquire(int group);
  std::int64_t committed_bytes() const;

  // Lets `to`, which holds nothing, hold the first `tokens` tokens of `from`.
  // REQUIRES: prefix_kept(from, tokens); to's tables have room.
  void share_prefix(const PageHolder& from, std::int64_t tokens, PageHolder& to);
  // Whether what the token at position `tokens` would see is all there. Errors: window_lost.
  Status prefix_kept(const PageHolder& holder, std::int64_t tokens) const;
  // Forgets pages of `table` at and past `end_page`, or below `first_page`.
  void shrink(int group, PageTable& table, std::int64_t end_page);
  void let_go(int group, PageTable& table, std::int64_t first_page);
  // Rows that a holder of `tokens` tokens sees of a page it sees only in part; 0: it has none.
  std::int64_t tail_rows(std::int64_t tokens) const { return tokens % layout_.page_tokens(); }
  std::int64_t pages_over(std::int64_t tokens) const {
    return (tokens + layout_.page_tokens() - 1) / layout_.page_tokens();
  }

  std::unique_ptr<StepState> take_step_state();
  void give_step_state(std::unique_ptr<StepState> state);  // never fails

  StoreStats stats() const;
  Status check() const;

  HolderList sequences;
  HolderList views;
  std::vector<StepState*> live_steps;
  std::weak_ptr<Reclaimer> reclaimer;  // it holds views, and they hold the core

 private:
  std::int64_t run_pages(int group, std::int64_t capacity_pages) const;
  using Held = std::vector<std::vector<std::uint32_t>>;  // [group][page]: how often it is held
  Status check_holder(const PageHolder& holder, std::int64_t seen_tokens, Held& held) const;
  Status check_step(const StepState& step, Held& held, Held& written) const;

  CacheLayout layout_;
  Device device_;
  StoreOptions options_;
  mutable std::mutex mutex_;
  std::vector<PagePool> pools_;  // by group
  std::vector<std::unique_ptr<StepState>> idle_steps_;
  std::size_t step_states_ = 0;  // idle ones and those in use
};

// Runs `body`, which returns a Result; a refusal of memory becomes out_of_memory.
template <typename Body>
auto guard_memory(Body body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "the system refused memory for bookkeeping");
  }
}

}  // namespace pagekv::inline v0::internal
