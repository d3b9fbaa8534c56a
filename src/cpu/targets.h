// The kernel tables of this build that this processor can run.
#pragma once

#include <string_view>
#include <vector>

#include "cpu/kernel_table.h"

namespace pagekv::inline v0::internal {

// Best first; never empty. Made once, immutable, lives for ever.
const std::vector<KernelTable>& kernel_tables();

// The table called `name`, the best one for an empty name, null for an unknown one.
const KernelTable* find_kernel_table(std::string_view name);

}  // namespace pagekv::inline v0::internal
