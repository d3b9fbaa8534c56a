// Which page size and which order of a page's bytes? Decode attention over pages in random physical
// order, cold, for all of them in turn.
//
//   bench_pages [--threads N] [--rounds N] [--tokens N] [--layers N]
//
// One query per layer, 32 query heads on 8 KV heads of dim 128, bf16, `fast`. The stores of all
// settings live side by side and are larger than the caches, every layer is read once per round,
// and a plain read of memory is timed beside each reading. Answers are checked against the gathered
// arm first. Shown are medians and quartiles.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/attention.h"
#include "bench/measure.h"
#include "bench/need.h"

namespace {

using namespace pagekv;  // NOLINT(google-build-using-namespace): a program, not a header
using bench::need;

struct Options {
  int threads = 1;
  int rounds = 9;
  int layers = 4;
  std::int64_t tokens = 16384;
};

struct Subject {
  bench::Attention attention;
  std::vector<double> share = {};  // of the read probe, by round
  std::vector<double> milliseconds = {};
};

Subject make_subject(const Options& options, std::int64_t page_tokens, PageOrder order) {
  bench::AttentionCase shape{.context = options.tokens,
                             .page_tokens = page_tokens,
                             .order = order,
                             .threads = options.threads};
  const std::int64_t layer_bytes =
      std::int64_t{2} * 2 * shape.kv_heads * shape.dim * options.tokens;
  Subject subject{need(bench::Attention::make(shape, options.layers * layer_bytes, ""))};
  const double distance = need(subject.attention.distance());
  if (!(distance <= subject.attention.tolerance())) {
    std::fprintf(stderr, "wrong answer: %g from the control\n", distance);
    std::exit(1);
  }
  return subject;
}

void measure(std::vector<Subject>& subjects, const Options& options) {
  bench::ReadProbe probe(std::int64_t{512} << 20);
  for (int round = 0; round < options.rounds; ++round) {
    for (Subject& subject : subjects) {
      const double read = probe.bytes_per_second(subject.attention.executor());
      const double elapsed = bench::seconds([&] {
        for (int layer = 0; layer < options.layers; ++layer) subject.attention.run(layer);
      });
      subject.share.push_back(subject.attention.bytes() * options.layers / elapsed / read);
      subject.milliseconds.push_back(elapsed * 1e3 / options.layers);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Decode attention over page sizes and page orders");
  app.add_option("--threads", options.threads, "threads")->check(CLI::Range(1, 1024));
  app.add_option("--rounds", options.rounds, "rounds")->check(CLI::Range(1, 1000));
  app.add_option("--layers", options.layers, "layers")->check(CLI::Range(1, 100));
  app.add_option("--tokens", options.tokens, "context")->check(CLI::Range(16, 1 << 20));
  CLI11_PARSE(app, argc, argv);

  std::vector<Subject> subjects;
  for (const std::int64_t page_tokens : {16, 32, 64, 128, 256}) {
    for (const PageOrder order : {PageOrder::page_major, PageOrder::layer_major}) {
      subjects.push_back(make_subject(options, page_tokens, order));
    }
  }
  measure(subjects, options);
  std::printf("%s, device %s, %d threads, %lld tokens, %d layers, %d rounds\n",
              bench::machine_line().c_str(), subjects.front().attention.device_name().c_str(),
              options.threads, static_cast<long long>(options.tokens), options.layers,
              options.rounds);
  std::printf("| page | order | ms a layer | share of the read probe |\n|---|---|---|---|\n");
  for (const Subject& subject : subjects) {
    const bench::AttentionCase& shape = subject.attention.shape();
    std::printf("| %lld | %s | %s | %s |\n", static_cast<long long>(shape.page_tokens),
                shape.order == PageOrder::page_major ? "page-major" : "layer-major",
                bench::spread(subject.milliseconds).c_str(), bench::spread(subject.share).c_str());
  }
  return 0;
}
