// PrefixIndexState: what the handles of one index share.
//
// Two mutexes, taken in this order: the index's guards trees, namespaces, counters and events; the
// store's, inside it, guards page ids, pins and the eviction order. Whatever may block or call out,
// a sink above all, happens under neither.
//
//   path.cc     what of a token string is stored, and how much of that the windows can serve
//   match.cc    sharing it, pinning it
//   insert.cc   storing more
//   evict.cc    giving pages up
//   request.cc  who computes and who waits
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

#include "core/kept_page.h"
#include "core/prefix/events.h"
#include "core/prefix/node.h"
#include "core/prefix/path.h"
#include "core/prefix/space.h"
#include "core/store_core.h"
#include "pagekv/prefix_index.h"

namespace pagekv::inline v0::internal {

class PrefixIndexState final : public Reclaimer,
                               public std::enable_shared_from_this<PrefixIndexState> {
 public:
  PrefixIndexState(std::shared_ptr<StoreCore> store, PrefixIndexOptions options);
  ~PrefixIndexState() override;
  PrefixIndexState(const PrefixIndexState&) = delete;
  PrefixIndexState& operator=(const PrefixIndexState&) = delete;

  std::shared_ptr<PrefixSpace> open(const NamespaceSpec& spec);
  Result<Sequence> match(PrefixSpace& space, std::span<const TokenId> tokens);
  std::int64_t peek(const PrefixSpace& space, std::span<const TokenId> tokens) const;
  Result<std::int64_t> insert(PrefixSpace& space, std::span<const TokenId> tokens,
                              const Sequence& sequence, int priority);
  std::unique_ptr<PrefixPinState> pin(PrefixSpace& space, std::span<const TokenId> tokens);
  void unpin(PrefixPinState& pin);
  bool poll(PrefixRequestState& request);
  void leave(PrefixRequestState& request);
  void invalidate(PrefixSpace& space);
  void clear();
  PrefixStats stats() const;
  PrefixStats stats(const PrefixSpace& space) const;
  std::vector<PrefixEvent> take_events();
  Status check() const;
  std::int64_t page_tokens() const { return layout().page_tokens(); }
  std::size_t namespace_count() const;

  Pages pages(int group) const noexcept override;
  void reclaim(int group, std::int64_t pages) noexcept override;

 private:
  struct Insertion;  // insert.cc

  const CacheLayout& layout() const { return store_->layout(); }
  PrefixPath find(const PrefixSpace& space, std::span<const TokenId> tokens) const {
    return find_path(layout(), space.root, tokens);
  }
  // All counters of a namespace, and those of the index, by the same amount.
  template <typename Change>
  void count(PrefixSpace& space, Change change) {
    change(space.stats);
    change(totals_);
  }
  void count_node(const PrefixNode& node, int sign);
  // Makes the pages of a prefix most recently used, its end first. REQUIRES both mutexes.
  void touch(std::span<PrefixNode* const> nodes, int priority);
  void change_pins(PrefixNode& node, int by);  // REQUIRES both mutexes

  Status check_insertion(const PrefixSpace& space, std::span<const TokenId> tokens,
                         const Sequence& sequence) const;
  Insertion prepare(PrefixSpace& space, std::span<const TokenId> tokens,
                    const SequenceState& sequence);
  Status check_keepers(const Insertion& insertion, const SequenceState& sequence) const;
  void store_pages(Insertion& insertion, const SequenceState& sequence, int priority);
  void exchange_pages(PrefixNode& node, std::uint32_t rows, const SequenceState& sequence);
  void keep_pages(PrefixNode& node, const SequenceState& sequence);
  void keep_page(PrefixNode& node, int group, PageId page, std::uint32_t rows);
  void let_go(PrefixNode& node, int group);
  void tell_stored(const Insertion& insertion) noexcept;

  // Pages that the reclaimer has taken out, for the sink to look at afterwards.
  using Offers = std::vector<PageSink::Page>;
  struct Goal {
    int group = 0;
    std::int64_t missing = 0;  // pages
  };
  bool in_use(const KeptPage& page) const;
  bool serves(const PrefixNode& node) const;
  PrefixNode* next_leaf();
  void give_up_leaves(Goal& goal, Offers& offers);
  void give_up_windows(Goal& goal);
  void give_up_subtrees(Goal& goal);
  void give_up(PrefixNode& leaf, Goal& goal, Offers& offers);
  void offer(PrefixNode& node, Offers& offers);
  void remove_leaf(PrefixNode& node);
  void remove_below(PrefixNode& node);
  void wait_for_offers();
  void end(PrefixSpace& space);
  void forget_idle_spaces();
  Status check_node(const PrefixNode& node) const;

  std::shared_ptr<StoreCore> store_;
  std::shared_ptr<PageSink> sink_;
  // Held, shared, from when pages are taken out until the sink has them: who ends a namespace waits
  // for those. Taken before mutex_.
  std::shared_mutex offering_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<PrefixSpace>> spaces_;  // by all their fields
  std::size_t spaces_worth_a_look_ = 16;
  std::vector<PrefixPinState*> pins_;
  PrefixEvents events_;
  PrefixStats totals_;
  EvictionOrder order_;  // guarded by the store's mutex
};

struct PrefixPinState {
  std::shared_ptr<PrefixIndexState> index;
  PrefixNode* last = nullptr;  // null: its namespace has ended
  std::int64_t tokens = 0;
  ~PrefixPinState() { index->unpin(*this); }
};

struct PrefixRequestState {
  std::shared_ptr<PrefixIndexState> index;
  std::shared_ptr<PrefixSpace> space;
  std::vector<TokenId> tokens;
  bool ready = false;
  std::int64_t insertions = -1;  // of the namespace when it was last told to wait
  ~PrefixRequestState() { index->leave(*this); }
};

}  // namespace pagekv::inline v0::internal
