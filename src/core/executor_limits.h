// What all executors of ours agree on.
#pragma once

namespace pagekv::inline v0::internal {

inline constexpr int kMaxExecutorThreads = 1024;

}  // namespace pagekv::inline v0::internal
