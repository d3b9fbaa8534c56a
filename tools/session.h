// Session: a model, its store and a batcher, as one run of the command uses them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/batch.h"
#include "engine/conversation.h"
#include "engine/engine.h"
#include "pagekv/error.h"
#include "tools/console.h"
#include "tools/output.h"
#include "tools/run.h"

namespace pagekv_tool {

using pagekv::engine::Token;

class Session {
 public:
  // Loads the model, with progress on stderr.
  static pagekv::Result<std::unique_ptr<Session>> open(const RunOptions& options);

  // A prompt's tokens: the text's, or, with --chat, those of a user's turn.
  pagekv::Result<std::vector<Token>> encode(const std::string& text) const;

  // Of a text that goes on, unless it is the `first`.
  pagekv::Result<std::vector<Token>> encode_more(const std::string& text, bool first) const;

  struct Answers {
    std::vector<pagekv::engine::Completion> best;  // of every prompt
    bool failed = false;  // some answer ended in an error, which has been reported
  };
  // Answers all prompts together and prints the answers. Errors: of the batch as a whole.
  // `draws`: of the sampler, before. The seed is `seed_shift` more than the option says.
  pagekv::Result<Answers> answer(const std::vector<std::vector<Token>>& prompts,
                                 std::uint64_t seed_shift = 0, std::uint64_t draws = 0);

  struct Snapshot {
    std::vector<Token> tokens;
    std::string note;
  };
  // Takes the pages of a snapshot into the index. Errors: those of pagekv::load().
  pagekv::Result<Snapshot> load_snapshot(const std::string& path);
  // Writes what the index has of the tokens. Errors: those of pagekv::save().
  pagekv::Status save_snapshot(const std::string& path, const Snapshot& snapshot);

  // A chat by the model's template. Errors: unsupported (the model has none).
  pagekv::Result<pagekv::engine::Conversation> converse(const std::string& system) const;

  // The timing block: on stderr, or with --json as a last line on stdout.
  void print_figures() const;

 private:
  Session(const RunOptions& options, pagekv::engine::OpenModel model, pagekv::Store store);
  pagekv::Status make_batcher();
  pagekv::NamespaceSpec identity() const;

  const RunOptions& options_;
  pagekv::engine::OpenModel model_;
  pagekv::Store store_;
  std::unique_ptr<pagekv::engine::Batcher> batcher_;
  Progress prefill_{"reading the prompt"};
  std::optional<Output> output_;  // of the latest answer()
  int first_request_ = 0;         // its first request
};

}  // namespace pagekv_tool
