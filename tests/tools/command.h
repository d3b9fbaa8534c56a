// Runs the real pagekv command and collects what it says.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pagekv::testing {

struct Outcome {
  int exit_code = -1;  // -1: killed by a signal
  std::string out;
  std::string err;
};

// A folder of its own, removed at the end.
class Workplace {
 public:
  Workplace();
  ~Workplace();
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;

  // Writes a file and returns its path.
  std::string write(const std::string& name, std::string_view bytes) const;
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  // Arguments reach the command as they are. `environment`: assignments, "NAME=value". `out_path`:
  // where standard output goes instead of into Outcome::out.
  Outcome run(const std::vector<std::string>& arguments, std::string_view input = {},
              const std::vector<std::string>& environment = {},
              const std::string& out_path = {}) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace pagekv::testing
