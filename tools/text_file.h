// Reading a text whole.
#pragma once

#include <string>

#include "pagekv/error.h"

namespace pagekv_tool {

// The bytes of a file, or of standard input where `path` is "-". Errors: io_error, naming the file.
pagekv::Result<std::string> read_text(const std::string& path);

}  // namespace pagekv_tool
