// Stores a few tokens, attends over them and prints what came out: exits with 0 iff it is right.
#include <pagekv/pagekv.h>

#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

namespace {

constexpr int kHeads = 2;
constexpr int kDim = 64;
constexpr std::int64_t kTokens = 37;  // more than one page, the last one not full

int report(const pagekv::Error& error) {
  std::fprintf(stderr, "consumer: %s\n", error.message().c_str());
  return 1;
}

// One layer, equal keys and value rows of 1, 2, 3, ...: attention is their mean.
int run() {
  pagekv::LayerSpec layer{.kv_heads = kHeads, .key_dim = kDim, .value_dim = kDim};
  auto layout = pagekv::CacheLayout::make({.layers = {layer}, .page_tokens = 16});
  if (!layout) return report(layout.error());
  auto device = pagekv::make_cpu_device();
  if (!device) return report(device.error());
  auto store = pagekv::Store::make(*layout, *device, {.cap_bytes = 1 << 20});
  if (!store) return report(store.error());
  auto sequence = store->create_sequence();
  if (!sequence) return report(sequence.error());

  const pagekv::Append append{.sequence = &*sequence, .tokens = kTokens};
  auto step = store->reserve(std::span(&append, 1));
  if (!step) return report(step.error());
  std::vector<float> k(kTokens * kHeads * kDim, 0.5f);
  std::vector<float> v(k.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / (kHeads * kDim) + 1);
  const auto packed = [](const std::vector<float>& rows) {
    return pagekv::Rows::packed(rows.data(), pagekv::DType::f32, kHeads, kDim);
  };
  if (auto status = step->write(0, packed(k), packed(v)); !status) return report(status.error());
  if (auto done = step->commit(); !done) return report(done.error());

  const pagekv::QueryRows last_row{.view = sequence->ref(), .rows = 1};
  auto plan = store->plan(std::span(&last_row, 1), {.query_heads = kHeads});
  if (!plan) return report(plan.error());
  const std::vector<float> q(kHeads * kDim, 1.0f);
  std::vector<float> out(q.size());
  auto status = plan->run(
      0, {.q = packed(q),
          .out = pagekv::MutableRows::packed(out.data(), pagekv::DType::f32, kHeads, kDim)});
  if (!status) return report(status.error());

  const float mean = (kTokens + 1) / 2.0f;
  for (const float value : out) {
    if (!(value > mean - 1e-4f && value < mean + 1e-4f)) {
      std::fprintf(stderr, "consumer: got %g, expected %g\n", value, mean);
      return 1;
    }
  }
  std::printf("pagekv %s on %s: %lld tokens, attention %g\n", PAGEKV_VERSION_STRING,
              device->name().c_str(), static_cast<long long>(sequence->length()), out[0]);
  return 0;
}

}  // namespace

int main() {
  return run();
}
