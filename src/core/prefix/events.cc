#include "core/prefix/events.h"

#include <iterator>

namespace pagekv::inline v0::internal {

std::vector<PrefixEvent> PrefixEvents::take() {
  std::vector<PrefixEvent> taken(std::make_move_iterator(events_.begin()),
                                 std::make_move_iterator(events_.end()));
  events_.clear();
  return taken;
}

}  // namespace pagekv::inline v0::internal
