// One decode step of a batch, from outside: layout, store, sequences, step, plan, commit.
//
// A real engine computes q, k and v with its weights; here they are made up, so that the program
// shows the calls and nothing else. It prefills two prompts of different lengths in one step, then
// decodes three tokens for both, and prints what the cache holds.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "pagekv/pagekv.h"

namespace {

constexpr int kLayers = 4;
constexpr int kQueryHeads = 8;
constexpr int kKvHeads = 2;
constexpr int kHeadDim = 64;

// Unwraps a Result, or says what went wrong and exits: fine for an example, not for a server.
template <typename T>
T need(pagekv::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    std::exit(1);
  }
  return std::move(*result);
}
void need(pagekv::Status status) {
  if (!status) {
    std::fprintf(stderr, "%s\n", status.error().message().c_str());
    std::exit(1);
  }
}

// Stands for a projection of the hidden state: `[rows, heads, kHeadDim]`.
std::vector<float> project(std::int64_t rows, int heads, int salt) {
  std::vector<float> out(static_cast<std::size_t>(rows * heads * kHeadDim));
  for (std::size_t at = 0; at < out.size(); ++at) {
    out[at] = std::sin(static_cast<float>(at % 1009) * 0.37f + static_cast<float>(salt));
  }
  return out;
}

// Runs all layers of one step over `appends`; returns the last layer's output.
std::vector<float> forward(pagekv::Store& store, std::vector<pagekv::Append> appends) {
  using pagekv::DType;
  pagekv::Step step = need(store.reserve(appends));

  // Every sequence attends with all its new rows: one row when decoding, many when prefilling.
  std::vector<pagekv::QueryRows> queries;
  for (int index = 0; index < step.size(); ++index) {
    queries.push_back({.view = step.view(index), .rows = step.tokens(index)});
  }
  pagekv::Plan plan = need(store.plan(queries, {.query_heads = kQueryHeads}));

  std::vector<float> out(static_cast<std::size_t>(step.rows() * kQueryHeads * kHeadDim));
  for (int layer = 0; layer < kLayers; ++layer) {
    const auto q = project(step.rows(), kQueryHeads, layer);
    const auto k = project(step.rows(), kKvHeads, layer + 100);
    const auto v = project(step.rows(), kKvHeads, layer + 200);
    need(step.write(layer, pagekv::Rows::packed(k.data(), DType::f32, kKvHeads, kHeadDim),
                    pagekv::Rows::packed(v.data(), DType::f32, kKvHeads, kHeadDim)));
    need(plan.run(layer, {.q = pagekv::Rows::packed(q.data(), DType::f32, kQueryHeads, kHeadDim),
                          .out = pagekv::MutableRows::packed(out.data(), DType::f32, kQueryHeads,
                                                             kHeadDim)}));
  }
  need(step.commit());
  return out;
}

}  // namespace

int main() {
  const auto device = need(pagekv::make_cpu_device({.threads = 2}));
  pagekv::LayoutSpec spec{.arrangement = device.suggested_arrangement()};
  for (int layer = 0; layer < kLayers; ++layer) {
    spec.layers.push_back({.kv_heads = kKvHeads, .key_dim = kHeadDim, .value_dim = kHeadDim});
  }
  auto store = need(pagekv::Store::make(need(pagekv::CacheLayout::make(spec)), device,
                                        {.cap_bytes = 64 << 20, .max_sequence_tokens = 4096}));

  pagekv::Sequence one = need(store.create_sequence());
  pagekv::Sequence two = need(store.create_sequence());
  forward(store, {{&one, 100}, {&two, 7}});  // prefill, ragged
  for (int token = 0; token < 3; ++token) forward(store, {{&one, 1}, {&two, 1}});

  const pagekv::StoreStats stats = store.stats();
  std::printf("device %s\n", device.name().c_str());
  std::printf("%lld and %lld tokens in %lld pages of %lld tokens, %lld bytes a token\n",
              static_cast<long long>(one.length()), static_cast<long long>(two.length()),
              static_cast<long long>(stats.groups[0].referenced_pages),
              static_cast<long long>(store.layout().page_tokens()),
              static_cast<long long>(store.layout().bytes_per_token()));
  need(store.check());
  return one.length() == 103 && two.length() == 10 ? 0 : 1;
}
