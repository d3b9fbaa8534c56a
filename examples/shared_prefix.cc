// One system prompt, many continuations: fork shares pages, and each writer copies at most one.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "pagekv/pagekv.h"

namespace {

template <typename T>
T need(pagekv::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    std::exit(1);
  }
  return std::move(*result);
}

// Appends `count` made-up tokens to one sequence of a one-layer store.
void append(pagekv::Store& store, pagekv::Sequence& sequence, std::int64_t count) {
  const std::vector<float> rows(static_cast<std::size_t>(count * 64), 0.5f);
  const auto tensor = pagekv::Rows::packed(rows.data(), pagekv::DType::f32, 1, 64);
  const pagekv::Append append{&sequence, count};
  pagekv::Step step = need(store.reserve({&append, 1}));
  if (!step.write(0, tensor, tensor)) std::exit(1);
  need(step.commit());
}

long long pages(const pagekv::Store& store) {
  return static_cast<long long>(store.stats().groups[0].referenced_pages);
}

}  // namespace

int main() {
  const auto device = need(pagekv::make_cpu_device());
  const auto layout = need(pagekv::CacheLayout::make(
      {.layers = {{.kv_heads = 1, .key_dim = 64, .value_dim = 64}}, .page_tokens = 16}));
  auto store = need(pagekv::Store::make(layout, device, {.cap_bytes = 1 << 20}));

  pagekv::Sequence prompt = need(store.create_sequence());
  append(store, prompt, 1000);
  std::printf("the prompt alone: %lld pages\n", pages(store));

  std::vector<pagekv::Sequence> answers;
  for (int answer = 0; answer < 8; ++answer) answers.push_back(need(prompt.fork()));
  std::printf("with 8 forks: %lld pages\n", pages(store));

  for (pagekv::Sequence& answer : answers) append(store, answer, 1);
  std::printf("each fork one token longer: %lld pages\n", pages(store));

  // Seven of the eight copied the prompt's tail page; the first wrote behind it in place.
  return pages(store) == 63 + 7 ? 0 : 1;
}
