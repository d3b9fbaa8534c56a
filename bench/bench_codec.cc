// How fast are pages written and gathered, for the formats people use? Each time beside a plain
// copy of the same input rows.
//
//   bench_codec [--threads N] [--rounds N] [--tokens N] [--target NAME] [FORMAT...]
//
// One layer, 8 KV heads of dim 128, rows of bf16: 2,048 tokens are encoded in one step and gathered
// again as bf16. Encode, gather and copy take turns on the same threads, over all formats in each
// round. Before it is timed, what was gathered is checked against the rows: bit for bit where pages
// are bf16, else within the error the format may have. Shown are medians and quartiles.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "bench/need.h"
#include "pagekv/pagekv.h"

namespace {

using namespace pagekv;  // NOLINT(google-build-using-namespace): a program, not a header
using bench::need;

constexpr int kKvHeads = 8, kDim = 128;

struct Options {
  int threads = 1;
  int rounds = 15;
  std::int64_t tokens = 2048;
  std::string target;
  std::vector<std::string> formats = {
      "bf16", "kv8", "kv4", "k8v4", "k8v3", "k4v4", "k=codebook:4:64:rot,v=codebook:4:64:rot"};
};

using Elements = std::vector<std::uint16_t>;  // bf16, [tokens][heads][dim]

Elements normals(std::int64_t tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Elements values(static_cast<std::size_t>(tokens * kKvHeads * kDim));
  for (std::uint16_t& value : values) value = bf16_from_f32(normal(random));
  return values;
}

Rows rows(const Elements& elements) {
  return Rows::packed(elements.data(), DType::bf16, kKvHeads, kDim);
}
MutableRows mutable_rows(Elements& elements) {
  return MutableRows::packed(elements.data(), DType::bf16, kKvHeads, kDim);
}

// One format's store and what was measured of it.
struct Subject {
  std::string name;
  Store store;
  Sequence sequence;
  std::vector<double> encode_ms = {};
  std::vector<double> encode_copies = {};  // time over that of a copy
  std::vector<double> gather_ms = {};
  std::vector<double> gather_copies = {};
};

struct Tensors {
  Elements k;
  Elements v;
};

Subject make_subject(const std::string& name, const Options& options, const Device& device) {
  const LayoutSpec spec{.layers = {{.kv_heads = kKvHeads,
                                    .key_dim = kDim,
                                    .value_dim = kDim,
                                    .format = need(Format::parse(name))}},
                        .arrangement = device.suggested_arrangement()};
  const CacheLayout layout = need(CacheLayout::make(spec));
  const std::int64_t bytes = layout.pages_for(0, options.tokens) * layout.group(0).page_bytes;
  Store store = need(
      Store::make(layout, device, {.cap_bytes = bytes, .max_sequence_tokens = options.tokens}));
  Sequence sequence = need(store.create_sequence());
  return {name, std::move(store), std::move(sequence)};
}

// Writes all tokens in one step; returns the seconds that the write took.
double encode(Subject& subject, const Tensors& input, std::int64_t tokens) {
  need(subject.sequence.truncate(0));
  const Append append{&subject.sequence, tokens};
  Step step = need(subject.store.reserve({&append, 1}));
  const double elapsed = bench::seconds([&] { need(step.write(0, rows(input.k), rows(input.v))); });
  need(step.commit());
  return elapsed;
}

double gather(Subject& subject, Tensors& output) {
  return bench::seconds([&] {
    need(subject.store.gather(subject.sequence.ref(), 0, mutable_rows(output.k),
                              mutable_rows(output.v)));
  });
}

double copy(const Tensors& input, Tensors& output, Executor& executor) {
  constexpr std::int64_t kPiece = 64 * kKvHeads * kDim;  // 64 tokens
  const auto count = static_cast<std::int64_t>(input.k.size());
  return bench::seconds([&] {
    executor.parallel_for((count + kPiece - 1) / kPiece, [&](int, std::int64_t piece) {
      const std::int64_t at = piece * kPiece;
      const auto bytes = static_cast<std::size_t>(2 * std::min(kPiece, count - at));
      std::memcpy(output.k.data() + at, input.k.data() + at, bytes);
      std::memcpy(output.v.data() + at, input.v.data() + at, bytes);
    });
  });
}

double distance(const Elements& got, const Elements& want) {
  double error = 0, norm = 0;
  for (std::size_t at = 0; at < want.size(); ++at) {
    const double element = f32_from_bf16(want[at]);
    error += std::pow(f32_from_bf16(got[at]) - element, 2);
    norm += element * element;
  }
  return std::sqrt(error / norm);
}

// A wrong answer is at the distance of unrelated rows, about 1.
void check(Subject& subject, const Tensors& input, Tensors& output, const Options& options) {
  constexpr double kMost = 0.4;
  encode(subject, input, options.tokens);
  gather(subject, output);
  const bool exact = subject.name == "bf16";
  const double most = exact ? 0 : kMost;
  if (distance(output.k, input.k) <= most && distance(output.v, input.v) <= most) return;
  std::fprintf(stderr, "%s: wrong answer\n", subject.name.c_str());
  std::exit(1);
}

void measure(std::vector<Subject>& subjects, const Options& options, Executor& executor) {
  const Tensors input{normals(options.tokens, 1), normals(options.tokens, 2)};
  Tensors output = input;
  for (Subject& subject : subjects) check(subject, input, output, options);
  for (int round = 0; round < options.rounds; ++round) {
    for (Subject& subject : subjects) {
      const double copied = copy(input, output, executor);
      const double encoded = encode(subject, input, options.tokens);
      const double gathered = gather(subject, output);
      subject.encode_ms.push_back(encoded * 1e3);
      subject.encode_copies.push_back(encoded / copied);
      subject.gather_ms.push_back(gathered * 1e3);
      subject.gather_copies.push_back(gathered / copied);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Encode and gather of page formats, beside a copy of the rows");
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", options.rounds, "rounds")->check(CLI::Range(1, 1000));
  app.add_option("--tokens", options.tokens, "tokens")->check(CLI::Range(16, 1 << 20));
  app.add_option("--target", options.target, "instruction set, as `pagekv info` names it");
  app.add_option("formats", options.formats, "page formats");
  CLI11_PARSE(app, argc, argv);

  const Device device =
      need(make_cpu_device({.threads = options.threads, .target = options.target}));
  std::vector<Subject> subjects;
  for (const std::string& name : options.formats) {
    subjects.push_back(make_subject(name, options, device));
  }
  measure(subjects, options, device.executor());
  std::printf("%s, device %s, %d threads, %lld tokens of %d heads of %d, %d rounds\n",
              bench::machine_line().c_str(), device.name().c_str(), options.threads,
              static_cast<long long>(options.tokens), kKvHeads, kDim, options.rounds);
  std::printf(
      "| format | encode, ms | in copies of the rows | gather, ms | in copies |\n"
      "|---|---|---|---|---|\n");
  for (const Subject& subject : subjects) {
    std::printf(
        "| %s | %s | %s | %s | %s |\n", subject.name.c_str(),
        bench::spread(subject.encode_ms).c_str(), bench::spread(subject.encode_copies).c_str(),
        bench::spread(subject.gather_ms).c_str(), bench::spread(subject.gather_copies).c_str());
  }
  return 0;
}
