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
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "bench/measure.h"
#include "pagekv/pagekv.h"

namespace {

using namespace pagekv;  // NOLINT(google-build-using-namespace): a program, not a header

constexpr int kQueryHeads = 32, kKvHeads = 8, kDim = 128;

struct Options {
  int threads = 1;
  int rounds = 9;
  int layers = 4;
  std::int64_t tokens = 16384;
};

struct Setting {
  std::int64_t page_tokens;
  PageOrder order;
};

// A store whose one sequence lies in pages of random physical order, and a plan that decodes it.
struct Subject {
  Setting setting;
  Store store;
  Sequence sequence;
  Plan plan;
  std::vector<double> share;  // of the read probe, by round
  std::vector<double> milliseconds;
};

template <typename T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().message().c_str());
  std::exit(1);
}
void need(const Status& status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.error().message().c_str());
  std::exit(1);
}

std::vector<float> normals(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void append(Store& store, Sequence& sequence, std::int64_t tokens, const std::vector<float>& rows) {
  const Append append{&sequence, tokens};
  Step step = need(store.reserve({&append, 1}));
  for (int layer = 0; layer < store.layout().layer_count(); ++layer) {
    const Rows tensor = Rows::packed(rows.data() + layer * kDim, DType::f32, kKvHeads, kDim);
    need(step.write(layer, tensor, tensor));
  }
  need(step.commit());
}

// Leaves the free list in random order: one sequence a page, then all of them dropped.
void shuffle_pages(Store& store, std::int64_t pages, const std::vector<float>& rows) {
  std::vector<Sequence> holders;
  for (std::int64_t page = 0; page < pages; ++page) {
    holders.push_back(need(store.create_sequence()));
    append(store, holders.back(), 1, rows);
  }
  std::shuffle(holders.begin(), holders.end(), std::mt19937(3));
}

Subject make_subject(const Setting& setting, const Options& options, const Device& device) {
  LayoutSpec spec{.page_tokens = setting.page_tokens,
                  .order = setting.order,
                  .arrangement = device.suggested_arrangement()};
  for (int layer = 0; layer < options.layers; ++layer) {
    spec.layers.push_back({.kv_heads = kKvHeads, .key_dim = kDim, .value_dim = kDim});
  }
  const CacheLayout layout = need(CacheLayout::make(spec));
  const std::int64_t pages = layout.pages_for(0, options.tokens);
  Store store = need(Store::make(
      layout, device,
      {.cap_bytes = pages * layout.group(0).page_bytes, .max_sequence_tokens = options.tokens}));
  constexpr std::int64_t kChunk = 1024;
  const auto rows = normals((kChunk + 8) * kKvHeads * kDim, 1);
  shuffle_pages(store, pages, rows);
  Sequence sequence = need(store.create_sequence());
  for (std::int64_t at = 0; at < options.tokens; at += kChunk) {
    append(store, sequence, std::min(kChunk, options.tokens - at), rows);
  }
  const QueryRows query{.view = sequence.ref(), .rows = 1};
  Plan plan =
      need(store.plan({&query, 1}, {.query_heads = kQueryHeads, .arithmetic = Arithmetic::fast}));
  return {setting, std::move(store), std::move(sequence), std::move(plan), {}, {}};
}

void attend_all(Subject& subject, Plan& plan, const std::vector<float>& q,
                std::vector<float>& out) {
  for (int layer = 0; layer < subject.store.layout().layer_count(); ++layer) {
    need(plan.run(layer, {.q = Rows::packed(q.data(), DType::f32, kQueryHeads, kDim),
                          .out = MutableRows::packed(out.data(), DType::f32, kQueryHeads, kDim)}));
  }
}

// Relative L2 distance of the direct arm from the gathered one.
double distance_from_control(Subject& subject, const std::vector<float>& q) {
  std::vector<float> direct(q.size()), control(q.size());
  attend_all(subject, subject.plan, q, direct);
  const QueryRows query{.view = subject.sequence.ref(), .rows = 1};
  Plan gathered =
      need(subject.store.plan({&query, 1}, {.query_heads = kQueryHeads, .arm = ReadArm::gathered}));
  attend_all(subject, gathered, q, control);
  double error = 0, norm = 0;
  for (std::size_t at = 0; at < q.size(); ++at) {
    error += std::pow(static_cast<double>(direct[at]) - control[at], 2);
    norm += std::pow(static_cast<double>(control[at]), 2);
  }
  return std::sqrt(error / norm);
}

void measure(std::vector<Subject>& subjects, const Options& options, Executor& executor) {
  const auto q = normals(kQueryHeads * kDim, 2);
  std::vector<float> out(q.size());
  for (Subject& subject : subjects) {
    if (const double distance = distance_from_control(subject, q); distance > 3e-3) {
      std::fprintf(stderr, "wrong answer: %g from the control\n", distance);
      std::exit(1);
    }
  }
  bench::ReadProbe probe(std::int64_t{512} << 20);
  for (int round = 0; round < options.rounds; ++round) {
    for (Subject& subject : subjects) {
      const double read = probe.bytes_per_second(executor);
      const double elapsed = bench::seconds([&] { attend_all(subject, subject.plan, q, out); });
      const double bytes =
          static_cast<double>(subject.store.layout().bytes_per_token() * options.tokens);
      subject.share.push_back(bytes / elapsed / read);
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

  const Device device = need(make_cpu_device({.threads = options.threads}));
  std::vector<Subject> subjects;
  for (const std::int64_t page_tokens : {16, 32, 64, 128, 256}) {
    for (const PageOrder order : {PageOrder::page_major, PageOrder::layer_major}) {
      subjects.push_back(make_subject({page_tokens, order}, options, device));
    }
  }
  measure(subjects, options, device.executor());
  std::printf("%s, device %s, %d threads, %lld tokens, %d layers, %d rounds\n",
              bench::machine_line().c_str(), device.name().c_str(), options.threads,
              static_cast<long long>(options.tokens), options.layers, options.rounds);
  std::printf("| page | order | ms a layer | share of the read probe |\n|---|---|---|---|\n");
  for (const Subject& subject : subjects) {
    std::printf("| %lld | %s | %s | %s |\n", static_cast<long long>(subject.setting.page_tokens),
                subject.setting.order == PageOrder::page_major ? "page-major" : "layer-major",
                bench::spread(subject.milliseconds).c_str(), bench::spread(subject.share).c_str());
  }
  return 0;
}
