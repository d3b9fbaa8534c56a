// Runs the real pagekv command and collects what it says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/files.h"

namespace pagekv::testing {

struct Outcome {
  int exit_code = -1;  // -1: killed by a signal
  std::string out;
  std::string err;
};

// A folder of its own, in which the command runs.
class Workplace {
 public:
  // Writes a file and returns its path.
  std::string write(const std::string& name, std::string_view bytes) const;
  std::string path(const std::string& name) const { return folder_.path(name); }

  // Arguments reach the command as they are. `environment`: assignments, "NAME=value". `out_path`:
  // where standard output goes instead of into Outcome::out.
  Outcome run(const std::vector<std::string>& arguments, std::string_view input = {},
              const std::vector<std::string>& environment = {},
              const std::string& out_path = {}) const;

 private:
  TemporaryFolder folder_;
};

}  // namespace pagekv::testing
