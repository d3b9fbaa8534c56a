// `pagekv inspect`: what a snapshot holds.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "pagekv/snapshot.h"

namespace pagekv_tool {

struct InspectOptions {
  std::string file;
  bool verify = false;
  bool json = false;
};

CLI::App* add_inspect(CLI::App& app, InspectOptions& options);
int inspect(const InspectOptions& options);

void print_snapshot(const pagekv::SnapshotInfo& info, bool json);

}  // namespace pagekv_tool
