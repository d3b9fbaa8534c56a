#include "tools/model_path.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace pagekv_tool {
namespace {

constexpr const char* kDefaultModel = "SmolLM2-135M-Instruct.Q4_1.gguf";

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

}  // namespace

std::string default_model_path() {
  if (const std::string_view named = environment("PAGEKV_MODEL"); !named.empty()) {
    return std::string(named);
  }
  std::filesystem::path cache = environment("XDG_CACHE_HOME");
  if (cache.empty()) cache = std::filesystem::path(environment("HOME")) / ".cache";
  return (cache / "pagekv" / kDefaultModel).string();
}

pagekv::Result<std::string> find_model(const std::string& given) {
  const std::string path = given.empty() ? default_model_path() : given;
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored)) return path;
  return pagekv::fail(pagekv::ErrorCode::io_error,
                      "there is no model at {s}; scripts/demo fetches the default one, "
                      "-m or PAGEKV_MODEL names another",
                      {ENOENT}, path);
}

}  // namespace pagekv_tool
