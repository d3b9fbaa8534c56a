// `pagekv chat`: a conversation with a model, whose history stays in pages.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/run.h"

namespace pagekv_tool {

struct ChatOptions {
  RunOptions run;
  std::string system;  // empty: the model's own
};

CLI::App* add_chat(CLI::App& app, ChatOptions& options);
int chat(const ChatOptions& options);

}  // namespace pagekv_tool
