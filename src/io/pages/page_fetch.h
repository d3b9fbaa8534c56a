// PageFetchState: pages of one prompt on their way up.
//
//   looking   the tier is asked which records are there, and for the namespace's name
//   reading   records are read, some ahead; those that have come are copied into a sequence's pages
//   done      the sequence is in the index, and dropped
//
// Where a record turns out to be missing the prefix ends; not where there are windows, since a
// shorter prefix would want rows that the longer one does not: nothing is taken then.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "io/pages/page_tier_state.h"
#include "pagekv/prefix_index.h"
#include "pagekv/sequence.h"

namespace pagekv::inline v0::internal {

class PageFetchState {
 public:
  PageFetchState(std::shared_ptr<PageTierState> tier, PrefixIndex index, PrefixNamespace space,
                 std::span<const TokenId> tokens, FetchOptions options);

  Status begin();
  bool poll();
  bool wait(std::chrono::steady_clock::time_point until);
  const Status& status() const { return status_; }
  std::int64_t fetched_tokens() const { return fetched_pages_ * page_tokens_; }

 private:
  enum class Phase : std::uint8_t { looking, reading, done };
  // What is wanted of pages [first, end), page after page, and its answers. Of pages that all
  // windows have left behind nothing is.
  struct Piece {
    std::int64_t first;
    std::int64_t end;
    std::vector<PagePart> parts;
    TierBatch batch;
  };

  const CacheLayout& layout() const { return tier_->layout(); }
  int groups() const { return layout().group_count(); }
  std::span<const TokenId> first_tokens(std::int64_t pages) const;

  Result<std::int64_t> pages_in_index() const;
  Status look();
  Status read_answers();
  bool has(std::int64_t page, int group) const;
  std::int64_t first_gap() const;
  bool serves(std::int64_t end) const;
  bool wanted(std::int64_t page, int group) const;
  Status begin_reading();
  Status read_ahead();
  Status take(Piece& piece);
  bool fits(const TierAnswer& answer, PagePart part) const;
  Status take_parts(const Piece& piece, std::size_t parts, std::int64_t pages);
  void finish();

  std::shared_ptr<PageTierState> tier_;
  PrefixIndex index_;
  PrefixNamespace space_;
  std::vector<TokenId> tokens_;  // without those to be left
  FetchOptions options_;
  std::int64_t page_tokens_;
  std::vector<Digest> chain_;

  Phase phase_ = Phase::looking;
  Status status_;
  Epoch epoch_{};
  TierBatch name_;               // the namespace's, in the tier
  TierBatch exists_;             // [page from first_page_ on][group]
  std::int64_t first_page_ = 0;  // that is not in the index
  std::int64_t end_page_ = 0;    // of what can be served
  std::int64_t next_page_ = 0;   // to be asked for
  std::deque<Piece> pieces_;
  Sequence sequence_;
  std::int64_t fetched_pages_ = 0;
};

}  // namespace pagekv::inline v0::internal
