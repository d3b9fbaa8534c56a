// Sequence: the growing list of tokens of one request, and the pages that hold their keys and
// values.
//
// Move-only. A Sequence belongs to one thread at a time, the one its live step belongs to. It may
// be moved or destroyed while it is in a live step; the step keeps what it needs.
#pragma once

#include <cstdint>
#include <memory>

#include "pagekv/error.h"
#include "pagekv/export.h"
#include "pagekv/view.h"

namespace pagekv::inline v0 {

namespace internal {
class SequenceState;
}

class PAGEKV_API Sequence {
 public:
  Sequence() = default;  // empty: valid() is false
  explicit Sequence(std::shared_ptr<internal::SequenceState> state);
  ~Sequence();
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  bool valid() const { return state_ != nullptr; }
  std::int64_t length() const;  // committed tokens
  // First token whose rows `group` still has. REQUIRES: `group` is one of the layout's.
  std::int64_t first(int group) const;

  // A second sequence with the same committed tokens. Copies references, never rows; whichever of
  // the two appends first into a shared tail page keeps writing in place, the other copies that one
  // page. Errors: out_of_memory.
  Result<Sequence> fork() const;

  // Forgets all tokens at and past `tokens`. Errors: invalid_argument (negative, or past the
  // length), busy, window_lost (a window needs rows that are gone).
  Status truncate(std::int64_t tokens);

  // The first `tokens` committed tokens as an immutable View. Errors: as truncate(), but never
  // busy.
  Result<View> publish(std::int64_t tokens) const;
  Result<View> publish() const { return publish(length()); }

  // The committed tokens, borrowed; invalid after any change to this sequence.
  ViewRef ref() const&;
  ViewRef ref() && = delete;  // would outlive what it borrows from

  const std::shared_ptr<internal::SequenceState>& state() const { return state_; }

 private:
  std::shared_ptr<internal::SequenceState> state_;
};

}  // namespace pagekv::inline v0
