// Who computes a prefix that many want, and who waits for it.
#include <algorithm>
#include <mutex>

#include "core/prefix/index_state.h"

namespace pagekv::inline v0::internal {

namespace {

std::int64_t common_beginning(const PrefixRequestState& one, const PrefixRequestState& other) {
  const auto most = static_cast<std::ptrdiff_t>(std::min(one.tokens.size(), other.tokens.size()));
  return std::mismatch(one.tokens.begin(), one.tokens.begin() + most, other.tokens.begin()).first -
         one.tokens.begin();
}

}  // namespace

bool PrefixIndexState::poll(PrefixRequestState& request) {
  if (request.ready) return true;
  const std::lock_guard lock(mutex_);
  PrefixSpace& space = *request.space;
  if (request.insertions == space.insertions) return false;  // nothing is new
  const std::int64_t stored = find(space, request.tokens).tokens;
  const auto longer = std::ranges::find_if(space.computing, [&](const PrefixRequestState* other) {
    return common_beginning(request, *other) >= stored + page_tokens();
  });
  if (!space.ended && longer != space.computing.end()) {
    request.insertions = space.insertions;
    return false;
  }
  space.computing.push_back(&request);
  request.ready = true;
  return true;
}

// Whoever waited for it looks again when polled next.
void PrefixIndexState::leave(PrefixRequestState& request) {
  const std::lock_guard lock(mutex_);
  if (std::erase(request.space->computing, &request) > 0) ++request.space->insertions;
}

}  // namespace pagekv::inline v0::internal
