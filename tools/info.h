// `pagekv info`: what this machine has, and what a model needs.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace pagekv_tool {

struct InfoOptions {
  std::string model;
  std::uint64_t memory_bytes = std::uint64_t{1} << 30;
  bool json = false;
};

CLI::App* add_info(CLI::App& app, InfoOptions& options);

int info(const InfoOptions& options);

}  // namespace pagekv_tool
