// Logits for the peer tests: logits MODEL [--weights bf16|f32] < ids > logits
//
// Standard input holds token ids as text, each text's ids on one line. For each line the logits of
// every position go to standard output as raw f32, [position, vocabulary], prefilled in one chunk
// from an f32 cache. A first line on standard error says the size of the vocabulary.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/engine.h"

namespace {

namespace engine = pagekv::engine;

int fail_with(const pagekv::Error& error) {
  std::cerr << error.message() << '\n';
  return 1;
}

pagekv::Result<std::vector<float>> all_logits(engine::Runner& runner, pagekv::Store& store,
                                              int vocabulary,
                                              const std::vector<engine::Token>& tokens) {
  auto sequence = store.create_sequence();
  if (!sequence) return tl::unexpected<pagekv::Error>(sequence.error());
  const std::vector<pagekv::Append> appends = {
      {&*sequence, static_cast<std::int64_t>(tokens.size())}};
  auto step = store.reserve(appends);
  if (!step) return tl::unexpected<pagekv::Error>(step.error());
  std::vector<std::int64_t> rows(tokens.size());
  for (std::size_t row = 0; row < rows.size(); ++row) rows[row] = static_cast<std::int64_t>(row);
  std::vector<float> logits(tokens.size() * static_cast<std::size_t>(vocabulary));
  const pagekv::Status status =
      runner.forward(*step, {.tokens = tokens, .logit_rows = rows}, logits);
  if (!status) return tl::unexpected<pagekv::Error>(status.error());
  return logits;
}

int run(const std::string& path, const engine::OpenOptions& options) {
  const auto open = engine::open_model(path, options);
  if (!open) return fail_with(open.error());
  const auto device = pagekv::make_cpu_device({.executor = options.load.executor});
  if (!device) return fail_with(device.error());
  auto store =
      engine::make_model_store(*open->model, *device, {.format = *pagekv::Format::parse("f32")});
  if (!store) return fail_with(store.error());
  const auto runner = open->model->make_runner(*store, pagekv::Arithmetic::exact);
  if (!runner) return fail_with(runner.error());
  const int vocabulary = open->model->info().vocabulary;
  std::cerr << vocabulary << '\n';
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream ids(line);
    std::vector<engine::Token> tokens;
    for (engine::Token token = 0; ids >> token;) tokens.push_back(token);
    const auto logits = all_logits(**runner, *store, vocabulary, tokens);
    if (!logits) return fail_with(logits.error());
    std::fwrite(logits->data(), sizeof(float), logits->size(), stdout);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  engine::OpenOptions options;
  const bool has_weights = argc == 4 && std::string_view(argv[2]) == "--weights";
  if (argc != 2 && !has_weights) {
    std::cerr << "usage: logits MODEL [--weights bf16|f32] < ids > logits\n";
    return 2;
  }
  if (has_weights) {
    options.load.weights =
        std::string_view(argv[3]) == "f32" ? pagekv::DType::f32 : pagekv::DType::bf16;
  }
  const auto executor = pagekv::make_thread_executor(
      static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  if (!executor) return fail_with(executor.error());
  options.load.executor = *executor;
  return run(argv[1], options);
}
