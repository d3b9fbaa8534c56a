#include "tools/text_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace pagekv_tool {

pagekv::Result<std::string> read_text(const std::string& path) {
  std::FILE* file = path == "-" ? stdin : std::fopen(path.c_str(), "rb");
  std::string text;
  bool complete = file != nullptr;
  char buffer[4096];
  while (complete) {
    const std::size_t count = std::fread(buffer, 1, sizeof buffer, file);
    text.append(buffer, count);
    complete = std::ferror(file) == 0;  // a folder opens, and fails at the first byte
    if (count < sizeof buffer) break;
  }
  const int reason = errno;
  if (file != nullptr && file != stdin) std::fclose(file);
  if (complete) return text;
  return pagekv::fail(pagekv::ErrorCode::io_error, "cannot read the text file {s}", {reason},
                      path + ": " + std::strerror(reason));
}

}  // namespace pagekv_tool
