// View: an immutable prefix of a sequence, and ViewRef, the borrowed form that reads take.
//
// A View holds references to pages and a length. It never changes, whatever happens to the sequence
// it came from; its pages are not recycled while it lives. Copying a View copies one pointer.
// Views may be used, copied and dropped on any thread at any time.
#pragma once

#include <cstdint>
#include <memory>

#include "pagekv/export.h"

namespace pagekv::inline v0 {

namespace internal {
class PageHolder;
class ViewState;
}  // namespace internal

// A borrowed look at page tables: what plan() and gather() read. Does not keep pages alive: the
// View, the Sequence or the Step it came from must outlive every use. Two words; pass by value.
class ViewRef {
 public:
  ViewRef() = default;
  ViewRef(const internal::PageHolder* holder, std::int64_t length)
      : holder_(holder), length_(length) {}
  std::int64_t length() const { return length_; }
  const internal::PageHolder* holder() const { return holder_; }

 private:
  const internal::PageHolder* holder_ = nullptr;
  std::int64_t length_ = 0;
};

class PAGEKV_API View {
 public:
  View() = default;  // empty: valid() is false
  explicit View(std::shared_ptr<const internal::ViewState> state) : state_(std::move(state)) {}

  bool valid() const { return state_ != nullptr; }
  std::int64_t length() const;  // tokens; 0 when not valid
  // First token whose rows `group` still has. REQUIRES: `group` is one of the layout's.
  std::int64_t first(int group) const;
  ViewRef ref() const&;
  ViewRef ref() && = delete;                   // would outlive what it borrows from
  operator ViewRef() const& { return ref(); }  // NOLINT(google-explicit-constructor)
  operator ViewRef() && = delete;

  const std::shared_ptr<const internal::ViewState>& state() const { return state_; }

 private:
  std::shared_ptr<const internal::ViewState> state_;
};

}  // namespace pagekv::inline v0
