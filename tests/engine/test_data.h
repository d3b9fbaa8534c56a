// Where tests find files that are not part of the repository. Tests skip where they are absent.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace pagekv::testing {

// The folder of test data: the environment variable PAGEKV_DATA, or ../shared/data of the
// repository.
inline std::filesystem::path data_folder() {
  if (const char* folder = std::getenv("PAGEKV_DATA")) return folder;
  const auto repository = std::filesystem::path(__FILE__).parent_path().parent_path().parent_path();
  return repository.parent_path() / "shared" / "data";
}

// SmolLM2-135M-Instruct as a Q4_1 GGUF: PAGEKV_MODEL, or where the pagekv command caches it.
inline std::filesystem::path demo_model() {
  if (const char* path = std::getenv("PAGEKV_MODEL")) return path;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::filesystem::path folder =
      cache != nullptr && *cache != '\0'
          ? std::filesystem::path(cache)
          : std::filesystem::path(home == nullptr ? "" : home) / ".cache";
  return folder / "pagekv" / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

}  // namespace pagekv::testing
