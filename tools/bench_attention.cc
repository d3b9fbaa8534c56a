#include "tools/bench_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "bench/attention.h"
#include "bench/measure.h"
#include "tools/console.h"
#include "tools/format_lists.h"

namespace pagekv_tool {
namespace {

namespace bench = pagekv::bench;

// So many queries take so long that it does not matter where their keys come from.
constexpr std::int64_t kMostColdQueries = 16;
constexpr double kLeastSeconds = 2e-3;  // of a warm sample

// A case and what was measured of it, by repetition.
struct Subject {
  bench::Attention attention;
  double distance = 0;
  bool cold = true;
  int runs = 1;  // layers of a sample
  std::vector<double> ms = {};
  std::vector<double> probe = {};      // GB/s
  std::vector<double> scattered = {};  // GB/s, of pieces as large as a head's keys of a page
  std::vector<double> share = {};
  std::vector<double> cycles = {};  // of one thread, for a token of a KV head
};

bool shares(const BenchOptions& options) {
  return std::ranges::any_of(options.shared, [](std::int64_t tokens) { return tokens > 0; });
}

std::vector<bench::AttentionCase> cases_of(const BenchOptions& options, std::int64_t context) {
  std::vector<bench::AttentionCase> cases = {{.context = context}};
  // Each option multiplies the cases.
  const auto vary = [&](const auto& values, const auto& set) {
    std::vector<bench::AttentionCase> more;
    for (const bench::AttentionCase& base : cases) {
      for (const auto& value : values) {
        more.push_back(base);
        set(more.back(), value);
      }
    }
    cases = std::move(more);
  };
  vary(options.threads, [](auto& to, int value) { to.threads = value; });
  vary(options.heads, [](auto& to, const BenchHeads& value) {
    to.query_heads = value.query;
    to.kv_heads = value.kv;
  });
  vary(options.dims, [](auto& to, int value) { to.dim = value; });
  vary(options.batches, [](auto& to, std::int64_t value) { to.batch = value; });
  vary(options.queries, [](auto& to, std::int64_t value) { to.queries = value; });
  vary(options.pages, [](auto& to, std::int64_t value) { to.page_tokens = value; });
  vary(options.arithmetics,
       [](auto& to, const std::string& value) { to.arithmetic = arithmetic_of(value); });
  vary(split_formats(options.formats), [](auto& to, const std::string& value) { to.kv = value; });
  vary(options.shared,
       [](auto& to, std::int64_t value) { to.shared = std::min(value, to.context); });
  if (shares(options)) {
    vary(std::vector{true, false}, [](auto& to, bool value) { to.cascade = value; });
  }
  for (bench::AttentionCase& each : cases) {
    each.query_type = options.query_type == "bf16" ? pagekv::DType::bf16 : pagekv::DType::f32;
  }
  return cases;
}

std::int64_t set_bytes(const BenchOptions& options) {
  return static_cast<std::int64_t>(options.set_bytes);
}

bool is_cold(const BenchOptions& options, const bench::AttentionCase& shape) {
  return !options.warm && shape.queries <= kMostColdQueries;
}

double pass(Subject& subject, int runs) {
  return bench::seconds([&] {
    for (int layer = 0; layer < runs; ++layer) subject.attention.run(layer);
  });
}

pagekv::Result<Subject> make_subject(const BenchOptions& options,
                                     const bench::AttentionCase& shape) {
  const bool cold = is_cold(options, shape);
  auto attention = bench::Attention::make(shape, cold ? set_bytes(options) : 0, options.target);
  if (!attention) return tl::unexpected<pagekv::Error>(attention.error());
  const auto distance = attention->distance();
  if (!distance) return tl::unexpected<pagekv::Error>(distance.error());
  if (!(*distance <= attention->tolerance())) {
    return pagekv::fail(
        pagekv::ErrorCode::books_broken, "{s}", {},
        fmt::format("wrong answer for {}: {:.2g} from the control", shape.kv, *distance));
  }
  Subject subject{std::move(*attention), *distance, cold};
  subject.runs = subject.attention.layers();
  if (!cold) {
    pass(subject, 1);
    const double once = pass(subject, 1);
    subject.runs = static_cast<int>(std::clamp(kLeastSeconds / once, 1.0, 1e5));
  }
  return subject;
}

void measure(Subject& subject, bench::ReadProbe& probe) {
  const bench::AttentionCase& shape = subject.attention.shape();
  const double read = probe.bytes_per_second(subject.attention.executor());
  const double scattered = probe.scattered_bytes_per_second(subject.attention.executor(),
                                                            subject.attention.piece_bytes());
  const double hertz = bench::cycles_per_second();
  if (!subject.cold) pass(subject, 1);  // the probe has left nothing of it in the caches
  const double seconds = pass(subject, subject.runs) / subject.runs;
  subject.ms.push_back(1e3 * seconds);
  subject.probe.push_back(read / 1e9);
  subject.scattered.push_back(scattered / 1e9);
  subject.share.push_back(subject.attention.bytes() / seconds / read);
  subject.cycles.push_back(seconds * hertz * shape.threads /
                           (subject.attention.head_tokens() * static_cast<double>(shape.queries)));
}

ReportRow report(const BenchOptions& options, const Subject& subject) {
  const bench::Attention& attention = subject.attention;
  const bench::AttentionCase& shape = attention.shape();
  const auto median = [](const std::vector<double>& values) {
    return bench::quantile(values, 0.5);
  };
  const bool cold = is_cold(options, shape);
  const std::string heads = fmt::format("{}/{}", shape.query_heads, shape.kv_heads);
  const std::string arithmetic = shape.arithmetic == pagekv::Arithmetic::fast ? "fast" : "exact";
  const double gbps = attention.bytes() / median(subject.ms) / 1e6;
  ReportRow row;
  row.fields = {{"kv", shape.kv},
                {"bits", attention.bits()},
                {"ctx", shape.context},
                {"batch", shape.batch},
                {"queries", shape.queries},
                {"heads", heads},
                {"dim", shape.dim},
                {"page", shape.page_tokens},
                {"shared", shape.shared},
                {"cascade", shape.cascade},
                {"threads", shape.threads},
                {"arithmetic", arithmetic},
                {"query_type", options.query_type},
                {"device", attention.device_name()},
                {"cold", cold},
                {"layers", attention.layers()},
                {"repetitions", options.repetitions},
                {"ms", median(subject.ms)},
                {"ms_min", bench::quantile(subject.ms, 0)},
                {"ms_max", bench::quantile(subject.ms, 1)},
                {"gbps", gbps},
                {"probe_gbps", median(subject.probe)},
                {"scattered_gbps", median(subject.scattered)},
                {"share", median(subject.share)},
                {"share_min", bench::quantile(subject.share, 0)},
                {"share_max", bench::quantile(subject.share, 1)},
                {"cycles", median(subject.cycles)},
                {"error", subject.distance}};
  row.shown = {{"kv", shape.kv},
               {"bits", fmt::format("{:.4g}", attention.bits())},
               {"ctx", fmt::format("{}", shape.context)},
               {"batch", fmt::format("{}", shape.batch)},
               {"queries", fmt::format("{}", shape.queries)},
               {"heads", heads},
               {"dim", fmt::format("{}", shape.dim)},
               {"page", fmt::format("{}", shape.page_tokens)},
               {"t", fmt::format("{}", shape.threads)},
               {"arithmetic", arithmetic},
               {cold ? "ms, cold" : "ms, warm", median_and_deviation(subject.ms)},
               {"GB/s", fmt::format("{:.1f}", gbps)},
               {"probe", fmt::format("{:.1f}", median(subject.probe))},
               {"scattered", fmt::format("{:.1f}", median(subject.scattered))},
               {"share", fmt::format("{:.1f} %", 100 * median(subject.share))},
               {"cycles", fmt::format("{:.1f}", median(subject.cycles))},
               {"error", fmt::format("{:.1e}", subject.distance)}};
  if (shares(options)) {
    row.shown.insert(row.shown.begin() + 4, {{"shared", fmt::format("{}", shape.shared)},
                                             {"cascade", shape.cascade ? "on" : "off"}});
  }
  return row;
}

}  // namespace

pagekv::Result<std::vector<ReportRow>> bench_attention(const BenchOptions& options) {
  bench::ReadProbe probe(set_bytes(options));
  std::vector<ReportRow> rows;
  Progress progress("measuring");
  std::int64_t done = 0;
  for (const std::int64_t context : options.contexts) {
    std::vector<Subject> subjects;
    const std::vector<bench::AttentionCase> cases = cases_of(options, context);
    for (const bench::AttentionCase& shape : cases) {
      auto subject = make_subject(options, shape);
      if (!subject) return tl::unexpected<pagekv::Error>(subject.error());
      subjects.push_back(std::move(*subject));
    }
    for (int repetition = 0; repetition < options.repetitions; ++repetition) {
      for (Subject& subject : subjects) {
        measure(subject, probe);
        progress.update(++done, static_cast<std::int64_t>(cases.size() * options.contexts.size()) *
                                    options.repetitions);
      }
    }
    for (const Subject& subject : subjects) rows.push_back(report(options, subject));
  }
  return rows;
}

}  // namespace pagekv_tool
