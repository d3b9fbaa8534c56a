// Sharing what is stored, and pinning it.
#include <algorithm>
#include <cassert>

#include "core/prefix/index_state.h"

namespace pagekv::inline v0::internal {

namespace {

// Lets `sequence`, which is empty, hold what the path found. REQUIRES both mutexes.
void share_path(StoreCore& store, const PrefixPath& path, SequenceState& sequence) {
  const auto end_page = static_cast<std::int64_t>(path.nodes.size());
  for (int group = 0; group < sequence.groups(); ++group) {
    PageTable& table = sequence.table(group);
    table.first_page =
        std::min(end_page, std::max(path.first_page[static_cast<std::size_t>(group)],
                                    store.layout().first_kept_page(group, path.tokens)));
    table.pages.assign(static_cast<std::size_t>(table.first_page), kNoPage);
    for (std::int64_t at = table.first_page; at < end_page; ++at) {
      const PageId page =
          path.nodes[static_cast<std::size_t>(at)]->pages[static_cast<std::size_t>(group)].id;
      store.pool(group).add_reference(page);
      table.pages.push_back(page);
    }
  }
  sequence.length = path.tokens;
}

}  // namespace

Result<Sequence> PrefixIndexState::match(PrefixSpace& space, std::span<const TokenId> tokens) {
  const std::int64_t most = store_->options().max_sequence_tokens;
  if (static_cast<std::int64_t>(tokens.size()) > most) {
    tokens = tokens.first(static_cast<std::size_t>(most));
  }
  auto sequence = std::make_shared<SequenceState>(store_);
  const std::lock_guard lock(mutex_);
  const PrefixPath path = find(space, tokens);
  count(space, [&](PrefixStats& stats) {
    ++stats.matches;
    stats.hits += path.tokens > 0 ? 1 : 0;
    stats.matched_tokens += static_cast<std::int64_t>(tokens.size());
    stats.hit_tokens += path.tokens;
  });
  const std::lock_guard store_lock(store_->mutex());
  share_path(*store_, path, *sequence);
  touch(path.nodes, 0);
  return Sequence(std::move(sequence));
}

std::int64_t PrefixIndexState::peek(const PrefixSpace& space,
                                    std::span<const TokenId> tokens) const {
  const std::lock_guard lock(mutex_);
  return find(space, tokens).tokens;
}

void PrefixIndexState::touch(std::span<PrefixNode* const> nodes, int priority) {
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    PrefixNode& node = **at;
    order_.remove(node);
    node.priority = std::max(node.priority, static_cast<std::uint8_t>(priority));
    if (node.pins == 0) order_.touch(node);
  }
}

std::unique_ptr<PrefixPinState> PrefixIndexState::pin(PrefixSpace& space,
                                                      std::span<const TokenId> tokens) {
  auto pin = std::make_unique<PrefixPinState>(shared_from_this());
  const std::lock_guard lock(mutex_);
  const PrefixPath path = find(space, tokens);
  if (path.nodes.empty()) return pin;
  pins_.push_back(pin.get());
  pin->last = path.nodes.back();
  pin->tokens = path.tokens;
  const std::lock_guard store_lock(store_->mutex());
  for (PrefixNode* node : path.nodes) {
    change_pins(*node, 1);
    order_.remove(*node);
  }
  return pin;
}

void PrefixIndexState::unpin(PrefixPinState& pin) {
  const std::lock_guard lock(mutex_);
  if (pin.last == nullptr) return;
  std::erase(pins_, &pin);
  const std::lock_guard store_lock(store_->mutex());
  for (PrefixNode* node = pin.last; node->parent != nullptr; node = node->parent) {
    change_pins(*node, -1);
    if (node->pins == 0) order_.touch(*node);
  }
}

void PrefixIndexState::change_pins(PrefixNode& node, int by) {
  const auto count_groups = [&](int sign) {
    for (int group = 0; group < layout().group_count(); ++group) {
      const PageId page = node.pages[static_cast<std::size_t>(group)].id;
      if (page != kNoPage) store_->pool(group).count_pins(page, sign);
    }
  };
  count_groups(-1);
  node.pins += static_cast<std::uint32_t>(by);
  count_groups(1);
}

}  // namespace pagekv::inline v0::internal
