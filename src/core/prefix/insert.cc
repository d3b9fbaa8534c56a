// Storing the pages of a sequence.
#include <algorithm>
#include <cassert>
#include <mutex>

#include "core/prefix/index_state.h"

namespace pagekv::inline v0::internal {

// What one insertion will change, with all memory for it: after check_keepers() nothing can fail.
struct PrefixIndexState::Insertion {
  std::span<const TokenId> tokens;
  std::vector<PrefixNode*> covered;  // pages that are there already
  // Behind them: a shorter page that the sequence's continues, which grows; null: none.
  PrefixNode* grown = nullptr;
  std::unique_ptr<TokenId[]> grown_tokens;
  std::uint32_t grown_rows = 0;
  PrefixNode* parent = nullptr;  // of the first fresh page
  std::vector<std::unique_ptr<PrefixNode>> fresh;
  std::vector<PrefixNode*> path;  // all of them, when done
  std::int64_t new_tokens = 0;
};

namespace {

std::span<const TokenId> page_of(std::span<const TokenId> tokens, std::int64_t page,
                                 std::int64_t page_tokens) {
  const auto begin = static_cast<std::size_t>(page * page_tokens);
  return tokens.subspan(begin,
                        std::min(static_cast<std::size_t>(page_tokens), tokens.size() - begin));
}

// kNoPage where the sequence does not have all rows from the page's first on.
PageId page_id(const SequenceState& sequence, int group, std::int64_t page) {
  const PageTable& table = sequence.table(group);
  const std::int64_t first = page * sequence.store()->layout().page_tokens();
  return page < table.first_page || first < table.first_token ? kNoPage : table.at(page);
}

std::unique_ptr<PrefixNode> make_node(PrefixSpace& space, std::int64_t depth,
                                      std::span<const TokenId> tokens, EvictionOrder& order,
                                      int groups) {
  auto node = std::make_unique<PrefixNode>();
  node->space = &space;
  node->depth = depth;
  node->token_ids = copy_tokens(tokens);
  node->token_count = static_cast<std::uint32_t>(tokens.size());
  node->order = &order;
  node->pages = std::make_unique<KeptPage::Held[]>(static_cast<std::size_t>(groups));
  return node;
}

}  // namespace

Result<std::int64_t> PrefixIndexState::insert(PrefixSpace& space, std::span<const TokenId> tokens,
                                              const Sequence& sequence, int priority) {
  const std::lock_guard lock(mutex_);
  if (auto ok = check_insertion(space, tokens, sequence); !ok) return tl::unexpected(ok.error());
  Insertion insertion = prepare(space, tokens, *sequence.state());
  {
    const std::lock_guard store_lock(store_->mutex());
    if (auto ok = check_keepers(insertion, *sequence.state()); !ok)
      return tl::unexpected(ok.error());
    store_pages(insertion, *sequence.state(), priority);
  }
  ++space.insertions;
  count(space, [&](PrefixStats& stats) {
    ++stats.inserts;
    stats.inserted_pages += static_cast<std::int64_t>(insertion.path.size()) -
                            static_cast<std::int64_t>(insertion.covered.size());
    stats.duplicate_pages += static_cast<std::int64_t>(insertion.covered.size());
  });
  if (events_.wanted()) tell_stored(insertion);
  return insertion.new_tokens;
}

Status PrefixIndexState::check_insertion(const PrefixSpace& space, std::span<const TokenId> tokens,
                                         const Sequence& sequence) const {
  if (space.ended) {
    return fail(ErrorCode::invalidated,
                "the namespace was invalidated; open it again for what is "
                "computed from now on");
  }
  if (!sequence.valid()) {
    return fail(ErrorCode::invalid_argument, "an empty sequence handle has no tokens to insert");
  }
  if (sequence.state()->store() != store_) {
    return fail(ErrorCode::wrong_store, "the sequence is of another store than the index");
  }
  if (static_cast<std::int64_t>(tokens.size()) > sequence.length()) {
    return fail(ErrorCode::invalid_argument,
                "cannot insert {0} tokens of a sequence that has committed {1}",
                {static_cast<std::int64_t>(tokens.size()), sequence.length()});
  }
  return {};
}

PrefixIndexState::Insertion PrefixIndexState::prepare(PrefixSpace& space,
                                                      std::span<const TokenId> tokens,
                                                      const SequenceState& sequence) {
  Insertion plan;
  plan.tokens = tokens;
  plan.parent = &space.root;
  const std::int64_t end = store_->pages_over(static_cast<std::int64_t>(tokens.size()));
  plan.path.reserve(static_cast<std::size_t>(end));
  std::int64_t page = 0;
  for (; page < end; ++page) {
    const auto wanted = page_of(tokens, page, page_tokens());
    const ChildMatch match = find_child(*plan.parent, wanted);
    if (match.child == nullptr || match.common < static_cast<std::int64_t>(wanted.size())) {
      if (match.child != nullptr && match.common == match.child->token_count)
        plan.grown = match.child;
      break;
    }
    plan.path.push_back(match.child);
    plan.parent = match.child;
  }
  plan.covered = plan.path;
  if (plan.grown != nullptr) {
    const auto wanted = page_of(tokens, page++, page_tokens());
    plan.grown_tokens = copy_tokens(wanted);
    plan.grown_rows = static_cast<std::uint32_t>(wanted.size());
    plan.parent = plan.grown;
  }
  for (; page < end; ++page) {
    plan.fresh.push_back(
        make_node(space, page, page_of(tokens, page, page_tokens()), order_, sequence.groups()));
    plan.fresh.back()->children.reserve(page + 1 < end ? 1 : 0);
  }
  if (!plan.fresh.empty()) plan.parent->children.reserve(plan.parent->children.size() + 1);
  return plan;
}

// A page that is kept already must not be kept again under other tokens: that is how one tenant's
// rows would come to another, or a new model's name to an old model's rows. Of a window's page a
// node may keep less than its tokens, so there a second one is no contradiction; see keep_page().
Status PrefixIndexState::check_keepers(const Insertion& insertion,
                                       const SequenceState& sequence) const {
  const std::int64_t end = store_->pages_over(static_cast<std::int64_t>(insertion.tokens.size()));
  for (auto at = static_cast<std::int64_t>(insertion.covered.size()); at < end; ++at) {
    for (int group = 0; group < layout().group_count(); ++group) {
      const PageId page = page_id(sequence, group, at);
      if (page == kNoPage) continue;
      const auto* keeper = static_cast<const PrefixNode*>(store_->pool(group).keeper(page));
      const bool window = layout().group(group).window_tokens > 0;
      if (keeper == nullptr || keeper == insertion.grown) continue;
      if (window && keeper->space == insertion.parent->space) continue;
      return fail(ErrorCode::invalid_argument,
                  "page {0} of the sequence is stored already, under other tokens or in another "
                  "namespace",
                  {at});
    }
  }
  return {};
}

// REQUIRES both mutexes.
void PrefixIndexState::store_pages(Insertion& insertion, const SequenceState& sequence,
                                   int priority) {
  for (PrefixNode* node : insertion.covered) {
    const auto wanted = page_of(insertion.tokens, node->depth, page_tokens());
    exchange_pages(*node, static_cast<std::uint32_t>(wanted.size()), sequence);
  }
  if (insertion.grown != nullptr) {
    PrefixNode& node = *insertion.grown;
    insertion.new_tokens += insertion.grown_rows - node.token_count;
    count_node(node, -1);
    node.token_ids = std::move(insertion.grown_tokens);
    node.token_count = insertion.grown_rows;
    keep_pages(node, sequence);
    count_node(node, 1);
    insertion.path.push_back(&node);
  }
  for (std::unique_ptr<PrefixNode>& fresh : insertion.fresh) {
    PrefixNode& node = link(*insertion.parent, std::move(fresh));
    keep_pages(node, sequence);
    insertion.new_tokens += node.token_count;
    count_node(node, 1);
    insertion.path.push_back(&node);
    insertion.parent = &node;
  }
  touch(insertion.path, priority);
}

// The sequence has pages of the first `rows` rows of a node that is there. Its page is taken where
// it has more rows than the node's, which is so behind windows; and where it has as many and nobody
// reads the node's, so that one copy is free at once and what is stored is in use as long as the
// sequence is.
void PrefixIndexState::exchange_pages(PrefixNode& node, std::uint32_t rows,
                                      const SequenceState& sequence) {
  for (int group = 0; group < sequence.groups(); ++group) {
    const PageId own = page_id(sequence, group, node.depth);
    const KeptPage::Held& stored = node.pages[static_cast<std::size_t>(group)];
    const PagePool& pool = store_->pool(group);
    if (own == kNoPage) continue;
    if (stored.rows < rows || (stored.rows == rows && pool.references(stored.id) == 1)) {
      keep_page(node, group, own, rows);
    }
  }
}

// A page that the sequence's window has let go of stays as the node has it.
void PrefixIndexState::keep_pages(PrefixNode& node, const SequenceState& sequence) {
  for (int group = 0; group < sequence.groups(); ++group) {
    const PageId page = page_id(sequence, group, node.depth);
    if (page != kNoPage) keep_page(node, group, page, node.token_count);
  }
}

// A page has one keeper. A sibling that has less of it than its own tokens, since its window had
// moved on, hands it over: the new node serves what that one could. Otherwise the first keeps it.
void PrefixIndexState::keep_page(PrefixNode& node, int group, PageId page, std::uint32_t rows) {
  KeptPage::Held& held = node.pages[static_cast<std::size_t>(group)];
  if (held.id != page) {
    if (auto* keeper = static_cast<PrefixNode*>(store_->pool(group).keeper(page))) {
      const bool less = keeper->pages[static_cast<std::size_t>(group)].rows < keeper->token_count;
      if (keeper->parent != node.parent || keeper->pins > 0 || !less) return;
      let_go(*keeper, group);
    }
    let_go(node, group);
    store_->pool(group).keep(page, node);
  }
  held = {page, rows};
}

void PrefixIndexState::let_go(PrefixNode& node, int group) {
  KeptPage::Held& held = node.pages[static_cast<std::size_t>(group)];
  if (held.id != kNoPage) store_->pool(group).unkeep(held.id);
  held = {};
}

void PrefixIndexState::count_node(const PrefixNode& node, int sign) {
  const std::int64_t bytes = node.bytes(layout().group_count());
  count(*node.space, [&](PrefixStats& stats) {
    stats.stored_pages += sign;
    stats.stored_tokens += sign * static_cast<std::int64_t>(node.token_count);
    stats.index_bytes += sign * bytes;
  });
}

void PrefixIndexState::tell_stored(const Insertion& insertion) noexcept {
  for (std::size_t at = insertion.covered.size(); at < insertion.path.size(); ++at) {
    PrefixNode& node = *insertion.path[at];
    if (node.token_count < page_tokens()) continue;
    events_.add([&] {
      return PrefixEvent{.kind = PrefixEvent::Kind::stored,
                         .space = node.space->digest(),
                         .digest = digest_of(node),
                         .parent = parent_digest(node),
                         .tokens = {node.tokens().begin(), node.tokens().end()}};
    });
  }
}

}  // namespace pagekv::inline v0::internal
