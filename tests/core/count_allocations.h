// Linked into a test, count_allocations.cc replaces operator new by one that counts.
#pragma once

#include <cstdint>

namespace pagekv::testing {

std::int64_t allocations();  // since the process started, on all threads

}  // namespace pagekv::testing
