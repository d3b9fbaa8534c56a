#include "tools/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "bench/measure.h"
#include "engine/random.h"
#include "tools/console.h"
#include "tools/format_lists.h"

namespace pagekv_tool {
namespace {

namespace bench = pagekv::bench;
namespace engine = pagekv::engine;

constexpr std::int64_t kRowsPerPass = 512;

// One kind of work at one depth: `rows` tokens at once where `prompt`, else one after the other.
struct Work {
  bool prompt = true;
  std::int64_t tokens = 0;
  std::int64_t depth = 0;
  std::string name() const {
    return fmt::format("{}{}{}", prompt ? "pp" : "tg", tokens,
                       depth > 0 ? fmt::format(" @ d{}", depth) : std::string());
  }
};

std::vector<Work> works_of(const BenchOptions& options) {
  std::vector<Work> works;
  for (const std::int64_t depth : options.depths) {
    for (const std::int64_t tokens : options.prompts) {
      if (tokens > 0) works.push_back({true, tokens, depth});
    }
    for (const std::int64_t tokens : options.generated) {
      if (tokens > 0) works.push_back({false, tokens, depth});
    }
  }
  return works;
}

std::int64_t longest(const std::vector<Work>& works) {
  std::int64_t most = 1;
  for (const Work& work : works) most = std::max(most, work.depth + work.tokens);
  return most;
}

// A store of one format with one sequence, fed with tokens that mean nothing.
class Lane {
 public:
  static pagekv::Result<Lane> make(const engine::Model& model, const pagekv::Device& device,
                                   const ModelOptions& options, const std::string& format,
                                   std::int64_t context) {
    const auto settings = store_settings(options, format, context);
    if (!settings) return tl::unexpected<pagekv::Error>(settings.error());
    auto store = engine::make_model_store(model, device, *settings);
    if (!store) return tl::unexpected<pagekv::Error>(store.error());
    auto runner = model.make_runner(*store, arithmetic_of(options.arithmetic));
    if (!runner) return tl::unexpected<pagekv::Error>(runner.error());
    auto sequence = store->create_sequence();
    if (!sequence) return tl::unexpected<pagekv::Error>(sequence.error());
    Lane lane(std::move(*store), std::move(*runner), std::move(*sequence));
    lane.logits_.resize(static_cast<std::size_t>(model.info().vocabulary));
    lane.vocabulary_ = model.info().vocabulary;
    return lane;
  }

  // The cache holds `depth` tokens after it.
  pagekv::Status go_to(std::int64_t depth) {
    if (sequence_.length() > depth) {
      if (pagekv::Status status = sequence_.truncate(depth); !status) return status;
    }
    return compute(depth - sequence_.length(), kRowsPerPass);
  }

  // Computes `tokens` tokens, `rows` a pass, the last one's logits of every pass.
  pagekv::Status compute(std::int64_t tokens, std::int64_t rows) {
    for (; tokens > 0; tokens -= rows) {
      if (pagekv::Status status = forward(std::min(tokens, rows)); !status) return status;
    }
    return {};
  }

 private:
  Lane(pagekv::Store store, std::unique_ptr<engine::Runner> runner, pagekv::Sequence sequence)
      : store_(std::move(store)), runner_(std::move(runner)), sequence_(std::move(sequence)) {}

  pagekv::Status forward(std::int64_t rows) {
    const pagekv::Append append{&sequence_, rows};
    pagekv::Result<pagekv::Step> step = store_.reserve({&append, 1});
    if (!step) return tl::unexpected<pagekv::Error>(step.error());
    tokens_.resize(static_cast<std::size_t>(rows));
    for (engine::Token& token : tokens_) {
      token = static_cast<engine::Token>(engine::splitmix64(1, ++count_) % vocabulary_);
    }
    const std::array<std::int64_t, 1> last = {rows - 1};
    pagekv::Status status = runner_->forward(*step, {tokens_, last}, logits_);
    if (!status) return status;
    const auto committed = step->commit();
    return committed ? pagekv::Status{} : tl::unexpected<pagekv::Error>(committed.error());
  }

  pagekv::Store store_;
  std::unique_ptr<engine::Runner> runner_;
  pagekv::Sequence sequence_;
  std::vector<engine::Token> tokens_;
  std::vector<float> logits_;
  std::uint64_t count_ = 0;
  std::uint64_t vocabulary_ = 1;
};

struct Subject {
  std::string format;
  std::string arithmetic;
  int threads = 1;
  Lane lane;
  std::vector<std::vector<double>> rates = {};  // tokens a second: [work][repetition]
};

pagekv::Status measure(Subject& subject, const Work& work, std::vector<double>& rates) {
  if (pagekv::Status status = subject.lane.go_to(work.depth); !status) return status;
  pagekv::Status status;
  const double seconds = bench::seconds(
      [&] { status = subject.lane.compute(work.tokens, work.prompt ? kRowsPerPass : 1); });
  rates.push_back(static_cast<double>(work.tokens) / seconds);
  return status;
}

ReportRow report(const BenchOptions& options, const engine::ModelInfo& info, const Subject& subject,
                 const Work& work, const std::vector<double>& rates) {
  ReportRow row;
  row.fields = {{"model", info.name},
                {"kv", subject.format},
                {"arithmetic", subject.arithmetic},
                {"threads", subject.threads},
                {"test", work.name()},
                {"tokens", work.tokens},
                {"depth", work.depth},
                {"repetitions", options.repetitions},
                {"tokens_per_second", bench::quantile(rates, 0.5)},
                {"min", bench::quantile(rates, 0)},
                {"max", bench::quantile(rates, 1)}};
  row.shown = {{"model", info.name},
               {"kv", subject.format},
               {"arithmetic", subject.arithmetic},
               {"t", fmt::format("{}", subject.threads)},
               {"test", work.name()},
               {"tokens/s", median_and_deviation(rates)}};
  return row;
}

}  // namespace

pagekv::Result<std::vector<ReportRow>> bench_model(const BenchOptions& options) {
  const std::vector<Work> works = works_of(options);
  const auto loader = pagekv::make_thread_executor(options.threads.front());
  if (!loader) return tl::unexpected<pagekv::Error>(loader.error());
  const auto open = load_model(options.model, *loader);
  if (!open) return tl::unexpected<pagekv::Error>(open.error());
  const engine::Model& model = *open->model;
  std::vector<Subject> subjects;
  for (const int threads : options.threads) {
    const auto device = pagekv::make_cpu_device({.threads = threads});
    if (!device) return tl::unexpected<pagekv::Error>(device.error());
    for (const std::string& arithmetic : options.arithmetics) {
      ModelOptions cache = options.model;
      cache.arithmetic = arithmetic;
      for (const std::string& format : split_formats(options.formats)) {
        auto lane = Lane::make(model, *device, cache, format, longest(works));
        if (!lane) return tl::unexpected<pagekv::Error>(lane.error());
        subjects.push_back({format, arithmetic, threads, std::move(*lane)});
        subjects.back().rates.resize(works.size());
      }
    }
  }
  Progress progress("measuring");
  const auto total = static_cast<std::int64_t>(works.size() * subjects.size());
  std::int64_t done = 0;
  for (std::size_t i = 0; i < works.size(); ++i) {
    for (int repetition = 0; repetition < options.repetitions; ++repetition) {
      for (Subject& subject : subjects) {
        pagekv::Status status = measure(subject, works[i], subject.rates[i]);
        if (!status) return tl::unexpected<pagekv::Error>(status.error());
        progress.update(++done, total * options.repetitions);
      }
    }
  }
  std::vector<ReportRow> rows;
  for (const Subject& subject : subjects) {
    for (std::size_t i = 0; i < works.size(); ++i) {
      rows.push_back(report(options, model.info(), subject, works[i], subject.rates[i]));
    }
  }
  return rows;
}

}  // namespace pagekv_tool
