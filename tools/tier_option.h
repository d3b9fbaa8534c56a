// `--tier dir:PATH[:SIZE]`: pages beyond RAM.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "pagekv/tier.h"

namespace pagekv_tool {

struct TierOption {
  std::string path;  // empty: no tier
  std::int64_t cap_bytes = std::int64_t{16} << 30;
};

// Adds --tier; `help`: what the command does with it.
void add_tier_option(CLI::App& app, TierOption& option, const std::string& help);

// Null where there is no tier. Errors: those of open_directory_tier().
pagekv::Result<std::shared_ptr<pagekv::Tier>> open_tier(const TierOption& option);

}  // namespace pagekv_tool
