#include "io/pages/page_fetch.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include "core/prefix/space.h"
#include "core/reserve_step.h"
#include "core/windows.h"

namespace pagekv::inline v0::internal {

namespace {

constexpr std::size_t kPiecesAhead = 2;

}  // namespace

PageFetchState::PageFetchState(std::shared_ptr<PageTierState> tier, PrefixIndex index,
                               PrefixNamespace space, std::span<const TokenId> tokens,
                               FetchOptions options)
    : tier_(std::move(tier)),
      index_(std::move(index)),
      space_(std::move(space)),
      options_(options),
      page_tokens_(tier_->layout().page_tokens()) {
  const auto most = static_cast<std::size_t>(tier_->core()->options().max_sequence_tokens);
  const auto left = static_cast<std::size_t>(std::max<std::int64_t>(options.leave_tokens, 0));
  const std::size_t kept = tokens.size() > left ? std::min(tokens.size() - left, most) : 0;
  tokens_.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(kept));
}

std::span<const TokenId> PageFetchState::first_tokens(std::int64_t pages) const {
  return std::span(tokens_).first(static_cast<std::size_t>(pages * page_tokens_));
}

// Whole pages that the index has.
Result<std::int64_t> PageFetchState::pages_in_index() const {
  std::int64_t pages = static_cast<std::int64_t>(tokens_.size()) / page_tokens_;
  for (;;) {  // windows may serve less than what was found
    const auto found = index_.peek(space_, first_tokens(pages), {.leave_tokens = 0});
    if (!found) return tl::unexpected(found.error());
    if (*found == pages * page_tokens_) return pages;
    pages = *found / page_tokens_;
  }
}

// ---- Looking

Status PageFetchState::begin() {
  auto chain = index_.digests(space_, tokens_);
  if (!chain) return tl::unexpected(chain.error());
  chain_ = std::move(*chain);
  const auto epoch = tier_->names().find(*space_.state());
  const auto pages = pages_in_index();
  if (!pages) return tl::unexpected(pages.error());
  first_page_ = end_page_ = next_page_ = *pages;
  const std::int64_t missing = static_cast<std::int64_t>(chain_.size()) - first_page_;
  tier_->count(&PageTierStats::fetches);
  if (!epoch || missing <= 0) {
    phase_ = Phase::done;
    return {};
  }
  tier_->count(&PageTierStats::wanted_pages, missing);
  epoch_ = *epoch;
  const Digest key = epoch_key(space_.digest());
  auto name = tier_->tier().get({&key, 1}, {.deadline = options_.deadline});
  if (!name) return tl::unexpected(name.error());
  name_ = std::move(*name);
  return look();
}

Status PageFetchState::look() {
  std::vector<Digest> keys;
  for (std::size_t page = static_cast<std::size_t>(first_page_); page < chain_.size(); ++page) {
    for (int group = 0; group < groups(); ++group) {
      keys.push_back(page_key(epoch_, chain_[page], group));
    }
  }
  auto exists = tier_->tier().exists(keys, {.deadline = options_.deadline});
  if (!exists) return tl::unexpected(exists.error());
  exists_ = std::move(*exists);
  return {};
}

bool PageFetchState::has(std::int64_t page, int group) const {
  const std::int64_t at = (page - first_page_) * groups() + group;
  return exists_.answer(static_cast<std::size_t>(at)).outcome == TierOutcome::ok;
}

// Whether page `page` of a group is needed by a prefix that ends at end_page_.
bool PageFetchState::wanted(std::int64_t page, int group) const {
  const std::int64_t needed =
      first_needed_token(layout().group(group).window_tokens, end_page_ * page_tokens_);
  return (page + 1) * page_tokens_ > needed;
}

// The first page that a group without a window lacks.
std::int64_t PageFetchState::first_gap() const {
  auto end = static_cast<std::int64_t>(chain_.size());
  for (int group = 0; group < groups(); ++group) {
    if (layout().group(group).window_tokens > 0) continue;
    std::int64_t page = first_page_;
    while (page < end && has(page, group)) ++page;
    end = page;
  }
  return end;
}

// Whether the windows of a prefix of `end` pages find what its next row would see.
bool PageFetchState::serves(std::int64_t end) const {
  for (int group = 0; group < groups(); ++group) {
    const std::int64_t window = layout().group(group).window_tokens;
    if (window == 0) continue;
    const std::int64_t needed = first_needed_token(window, end * page_tokens_);
    for (std::int64_t page = std::max(first_page_, needed / page_tokens_); page < end; ++page) {
      if (!has(page, group)) return false;
    }
  }
  return true;
}

// Another process may have given the namespace another name: what is asked for then is of that one.
Status PageFetchState::read_answers() {
  if (name_.size() > 0) {
    const TierAnswer& answer = name_.answer(0);
    Epoch stored = epoch_;
    if (answer.outcome == TierOutcome::ok && answer.value.size() == stored.size()) {
      std::memcpy(stored.data(), answer.value.data(), stored.size());
    }
    name_ = {};
    if (stored != epoch_) {
      epoch_ = stored;
      tier_->names().rename(*space_.state(), epoch_);
      return look();
    }
  }
  end_page_ = first_gap();
  while (end_page_ > first_page_ && !serves(end_page_)) --end_page_;
  exists_ = {};
  return begin_reading();
}

// ---- Reading

Status PageFetchState::begin_reading() {
  phase_ = Phase::done;
  if (end_page_ == first_page_) return {};
  auto sequence = index_.match(space_, first_tokens(first_page_), {.leave_tokens = 0});
  if (!sequence) return tl::unexpected(sequence.error());
  if (sequence->length() != first_page_ * page_tokens_) return {};  // given up in the meantime
  sequence_ = std::move(*sequence);
  phase_ = Phase::reading;
  return read_ahead();
}

Status PageFetchState::read_ahead() {
  while (pieces_.size() < kPiecesAhead && next_page_ < end_page_) {
    std::vector<PagePart> parts;
    std::vector<Digest> keys;
    std::int64_t bytes = 0;
    const std::int64_t first = next_page_;
    for (; next_page_ < end_page_ && (bytes == 0 || bytes < tier_->options().batch_bytes);
         ++next_page_) {
      for (int group = 0; group < groups(); ++group) {
        if (!wanted(next_page_, group)) continue;
        parts.push_back({next_page_, group});
        keys.push_back(page_key(epoch_, chain_[static_cast<std::size_t>(next_page_)], group));
        bytes += tier_->record(group).bytes();
      }
    }
    auto batch = tier_->tier().get(keys, {.deadline = options_.deadline});
    if (!batch) return tl::unexpected(batch.error());
    pieces_.push_back({first, next_page_, std::move(parts), std::move(*batch)});
  }
  return {};
}

// A record is what its key says; that its tag and size agree is proved all the same.
bool PageFetchState::fits(const TierAnswer& answer, PagePart part) const {
  if (answer.outcome != TierOutcome::ok) return false;
  const PageTag tag = tag_of(space_.digest(), chain_, tokens_, page_tokens_, part);
  const bool right =
      static_cast<std::int64_t>(answer.value.size()) == tier_->record(part.group).bytes() &&
      std::ranges::equal(answer.tag, write_tag(tag));
  if (!right) tier_->count(&PageTierStats::wrong_records);
  return right;
}

// Takes the pages of a piece up to the first that has not come whole, and no more pieces then.
Status PageFetchState::take(Piece& piece) {
  std::size_t parts = 0;
  while (parts < piece.parts.size() && fits(piece.batch.answer(parts), piece.parts[parts])) ++parts;
  std::int64_t end = piece.end;
  if (parts < piece.parts.size()) {
    end = piece.parts[parts].page;
    while (parts > 0 && piece.parts[parts - 1].page == end) --parts;
    next_page_ = end_page_;
    pieces_.erase(pieces_.begin() + 1, pieces_.end());
  }
  return end > piece.first ? take_parts(piece, parts, end - piece.first) : Status();
}

// The first `parts` of a piece, which are whole pages.
Status PageFetchState::take_parts(const Piece& piece, std::size_t parts, std::int64_t pages) {
  const Append append{&sequence_, pages * page_tokens_};
  auto state = reserve_step(tier_->core(), {&append, 1});
  if (!state) return tl::unexpected(state.error());
  std::ranges::fill((*state)->written, std::uint8_t{1});
  Step step(std::move(*state));
  const auto write = [&](int /* worker */, std::int64_t index) {
    const auto at = static_cast<std::size_t>(index);
    const auto [page, group] = piece.parts[at];
    tier_->record(group).write(*tier_->core(), sequence_.state()->table(group), page,
                               piece.batch.answer(at).value.data());
  };
  tier_->core()->backend().executor().parallel_for(static_cast<std::int64_t>(parts), write);
  if (auto done = step.commit(); !done) return tl::unexpected(done.error());
  fetched_pages_ += pages;
  std::int64_t bytes = 0;
  for (std::size_t at = 0; at < parts; ++at) bytes += tier_->record(piece.parts[at].group).bytes();
  tier_->count(&PageTierStats::fetched_bytes, bytes);
  return {};
}

// What windows let go of was never written: it must not be taken for rows.
void PageFetchState::finish() {
  phase_ = Phase::done;
  pieces_.clear();
  const std::int64_t end = first_page_ + fetched_pages_;
  if (layout().has_windows() && end < end_page_) fetched_pages_ = 0;
  if (fetched_pages_ == 0) {
    sequence_ = Sequence();
    return;
  }
  {
    StoreCore& core = *tier_->core();
    const std::lock_guard lock(core.mutex());
    for (int group = 0; group < groups(); ++group) {
      const std::int64_t window = layout().group(group).window_tokens;
      const std::int64_t first = first_needed_token(window, end * page_tokens_) / page_tokens_;
      if (window == 0 || first <= first_page_) continue;
      PageTable& table = sequence_.state()->table(group);
      core.let_go(group, table, first);
      table.first_token = std::max(table.first_token, first * page_tokens_);
    }
  }
  const auto inserted = index_.insert(space_, first_tokens(end), sequence_);
  sequence_ = Sequence();
  if (!inserted) {
    status_ = tl::unexpected(inserted.error());
    fetched_pages_ = 0;
    return;
  }
  tier_->count(&PageTierStats::fetched_pages, fetched_pages_);
}

bool PageFetchState::poll() {
  const auto step = [&]() -> Status {
    if (phase_ == Phase::looking) return read_answers();
    if (auto ok = take(pieces_.front()); !ok) return ok;
    pieces_.pop_front();
    return read_ahead();
  };
  while (phase_ != Phase::done) {
    const bool here = phase_ == Phase::looking ? name_.poll() && exists_.poll()
                                               : pieces_.empty() || pieces_.front().batch.poll();
    if (!here) return false;
    if (phase_ == Phase::reading && pieces_.empty()) {
      finish();
      break;
    }
    status_ = guard_memory(step);
    if (!status_) finish();
  }
  return true;
}

bool PageFetchState::wait(std::chrono::steady_clock::time_point until) {
  while (!poll()) {
    const bool looking = phase_ == Phase::looking;
    const bool here =
        looking ? name_.wait(until) && exists_.wait(until) : pieces_.front().batch.wait(until);
    if (!here) return poll();
  }
  return true;
}

}  // namespace pagekv::inline v0::internal
