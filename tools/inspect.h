// `pagekv inspect`: what a snapshot holds.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pagekv_tool {

struct InspectOptions {
  std::string file;
  bool verify = false;
  bool json = false;
};

CLI::App* add_inspect(CLI::App& app, InspectOptions& options);
int inspect(const InspectOptions& options);

}  // namespace pagekv_tool
