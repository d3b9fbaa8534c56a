// Where the model is when nobody says so.
#pragma once

#include <string>

#include "pagekv/error.h"

namespace pagekv_tool {

// $PAGEKV_MODEL, else pagekv/SmolLM2-135M-Instruct.Q4_1.gguf in the user's cache folder
// ($XDG_CACHE_HOME, else ~/.cache).
std::string default_model_path();

// `given`, or the default where it is empty. Errors: io_error (no such file; the text says how to
// get the default model).
pagekv::Result<std::string> find_model(const std::string& given);

}  // namespace pagekv_tool
