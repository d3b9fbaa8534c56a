// A prompt's pages in a file beside computing them, and beside plain writes and reads of as many
// bytes on the same disk, in turns.
//
//   bench_snapshot --model FILE --folder DIR [--tokens 8191] [--threads 2] [--rounds 9]
//                  [--prefills 2] [--kv bf16,kv8,kv4]
//
// Before anything is timed, what was loaded is compared with what was saved, byte for byte.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/need.h"
#include "engine/batch.h"
#include "engine/engine.h"
#include "pagekv/pagekv.h"

namespace {

using namespace pagekv;  // NOLINT(google-build-using-namespace): a program, not a header
using bench::need;
using bench::seconds;

struct Options {
  std::string model;
  std::string folder = ".";
  std::int64_t tokens = 8191;  // leaves room for an answer in a context of 8,192
  int threads = 2;
  int rounds = 9;
  int prefills = 2;
  std::vector<std::string> formats = {"bf16", "kv8", "kv4"};
};

void must(bool fine, const std::string& what) {
  if (fine) return;
  std::perror(what.c_str());
  std::exit(1);
}

// The same bytes as a snapshot's, one write() after the other, and on the disk.
void write_plainly(const std::string& path, const std::vector<char>& bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  must(file >= 0, path);
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const std::size_t size = std::min(kPiece, bytes.size() - at);
    must(write(file, bytes.data() + at, size) == static_cast<ssize_t>(size), path);
  }
  must(fsync(file) == 0, path);
  close(file);
}

void read_plainly(const std::string& path, std::vector<char>& bytes) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  const int file = open(path.c_str(), O_RDONLY);
  must(file >= 0, path);
  std::size_t at = 0;
  for (ssize_t got = 1; got > 0; at += static_cast<std::size_t>(got)) {
    got = read(file, bytes.data() + at, std::min(kPiece, bytes.size() - at));
    must(got >= 0, path);
  }
  close(file);
}

std::vector<char> bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Subject {
 public:
  Subject(const engine::Model& model, const Device& device, const Options& options,
          const std::string& format)
      : options_(options),
        identity_{.model = model.info().fingerprint},
        store_(need(engine::make_model_store(
            model, device,
            {.format = need(Format::parse(format)), .cap_bytes = std::int64_t{4} << 30}))) {
    tokens_.reserve(static_cast<std::size_t>(options.tokens));
    for (std::int64_t at = 0; at < options.tokens; ++at) {
      tokens_.push_back(static_cast<TokenId>(1000 + at * 7919 % 30000));
    }
    for (int i = 0; i < options.prefills; ++i) compute(model);
  }

  void run(const std::string& format) {
    const std::string path = options_.folder + "/bench_snapshot.safetensors";
    const std::string plain = options_.folder + "/bench_snapshot.plain";
    need(save(store_, sequence_.ref(), tokens_, path, {.identity = identity_}));
    const std::vector<char> bytes = bytes_of(path);
    check(path, bytes);
    std::vector<char> read_bytes(bytes.size());
    for (int round = 0; round < options_.rounds; ++round) {
      write_.push_back(seconds([&] { write_plainly(plain, bytes); }));
      save_.push_back(seconds(
          [&] { need(save(store_, sequence_.ref(), tokens_, path, {.identity = identity_})); }));
      read_.push_back(seconds([&] { read_plainly(plain, read_bytes); }));
      load_.push_back(seconds([&] { need(load(store_, path, {.identity = identity_})); }));
      unverified_.push_back(
          seconds([&] { need(load(store_, path, {.identity = identity_, .verify = false})); }));
    }
    report(format, bytes.size());
    std::filesystem::remove(path);
    std::filesystem::remove(plain);
  }

 private:
  void compute(const engine::Model& model) {
    auto batcher = need(engine::Batcher::make(model, store_, {.reuse = true}));
    need(batcher->submit({.prompt = tokens_, .max_tokens = 1}));
    prefill_.push_back(seconds([&] { need(batcher->run()); }));
    const auto space = need(batcher->index().open(identity_));
    sequence_ = need(batcher->index().match(space, tokens_, {.leave_tokens = 0}));
  }

  void check(const std::string& path, const std::vector<char>& bytes) {
    const std::string again = options_.folder + "/bench_snapshot.again";
    const LoadedSequence loaded = need(load(store_, path, {.identity = identity_}));
    need(save(store_, loaded.sequence.ref(), loaded.tokens, again, {.identity = identity_}));
    const bool same = bytes_of(again) == bytes;
    std::filesystem::remove(again);
    if (same) return;
    fmt::print(stderr, "what was loaded is not what was saved\n");
    std::exit(1);
  }

  static std::vector<double> ratios(const std::vector<double>& over,
                                    const std::vector<double>& under) {
    std::vector<double> all;
    for (std::size_t i = 0; i < over.size(); ++i) all.push_back(over[i] / under[i]);
    return all;
  }

  void report(const std::string& format, std::size_t bytes) const {
    const double prefill = bench::quantile(prefill_, 0.5);
    std::vector<double> faster;
    for (const double each : load_) faster.push_back(prefill / each);
    const auto milliseconds = [](const std::vector<double>& values) {
      return fmt::format("{:.1f}", 1e3 * bench::quantile(values, 0.5));
    };
    fmt::print("| {} | {:.0f} | {:.1f} | {} | {} | {} | {} | {} | {} | {} |\n", format,
               static_cast<double>(bytes) / 1e6, prefill, milliseconds(load_),
               bench::spread(faster), milliseconds(save_), bench::spread(ratios(write_, save_)),
               milliseconds(read_), bench::spread(ratios(read_, load_)),
               bench::spread(ratios(read_, unverified_)));
  }

  const Options& options_;
  NamespaceSpec identity_;
  Store store_;
  std::vector<TokenId> tokens_;
  Sequence sequence_;
  std::vector<double> prefill_, write_, save_, read_, load_, unverified_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("A prompt's pages in a file");
  app.add_option("--model", options.model, "A model file")->required();
  app.add_option("--folder", options.folder, "On the disk in question")->capture_default_str();
  app.add_option("--tokens", options.tokens)->capture_default_str();
  app.add_option("--threads", options.threads)->capture_default_str();
  app.add_option("--rounds", options.rounds)->capture_default_str();
  app.add_option("--prefills", options.prefills)->capture_default_str();
  app.add_option("--kv", options.formats)->delimiter(',');
  CLI11_PARSE(app, argc, argv);
  const auto executor = need(make_thread_executor(options.threads));
  const Device device = need(make_cpu_device({.executor = executor}));
  engine::OpenOptions open;
  open.load.executor = executor;
  const engine::OpenModel model = need(engine::open_model(options.model, open));
  fmt::print("{}; device {}, {} threads, {} tokens, {} rounds\n\n", bench::machine_line(),
             device.name(), options.threads, options.tokens, options.rounds);
  fmt::print(
      "| kv | MB | prefill s | load ms | prefill : load | save ms | plain write : save | plain "
      "read "
      "ms | plain read : load | unverified |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const std::string& format : options.formats) {
    Subject(*model.model, device, options, format).run(format);
    std::fflush(stdout);
  }
  return 0;
}
