// A tiny model that chats, and the command that talks with it.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/engine/small_model.h"
#include "tests/tools/command.h"

namespace pagekv::testing {

class SmallChat : public ::testing::Test {
 protected:
  SmallChat() {
    SmallModel model;
    model.chat_template = "{{ '<|im_start|>' }}";
    model.context_tokens = 1024;
    model_ = place_.write("small.gguf", model.gguf());
  }
  Outcome talk(const std::string& input, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {"chat", "-m", model_, "-n", "12", "--page", "16"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return place_.run(arguments, input);
  }

  Workplace place_;
  std::string model_;
};

}  // namespace pagekv::testing
