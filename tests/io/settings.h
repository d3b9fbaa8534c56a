// Layouts that tests of files and tiers go through, and what attention gives over their pages.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/token_cache.h"
#include "support/random_data.h"

namespace pagekv::testing {

struct Setting {
  const char* name;
  const char* format;
  const char* overrides;
  std::vector<std::int64_t> windows;
  int donor = -1;  // of the last layer
};

inline LayoutSpec layout(const Setting& setting, std::int64_t page_tokens = 16,
                         std::int64_t slack = 20) {
  const Format base = *Format::parse(setting.format);
  const int layers = static_cast<int>(setting.windows.size());
  const auto formats = parse_layer_formats(base, setting.overrides, layers);
  LayoutSpec spec = small_layout(setting.windows, base, page_tokens, slack);
  for (std::size_t at = 0; at < spec.layers.size(); ++at) {
    spec.layers[at].format = formats->at(at);
    spec.layers[at].key_dim = 32;
    spec.layers[at].value_dim = 32;
  }
  if (setting.donor >= 0) spec.layers.back().donor = setting.donor;
  return spec;
}

// Of one query after the sequence's last token, in every layer.
inline std::vector<float> attend_all(TokenCache& cache, const Sequence& sequence) {
  constexpr int kQueryHeads = 4;
  Random random(5);
  Tensor q(DType::f32, 1, kQueryHeads, 32);
  q.fill_normal(random, 0.05f);
  std::vector<float> all;
  for (int layer = 0; layer < cache.layout().layer_count(); ++layer) {
    const QueryRows row{.view = sequence.ref()};
    auto plan = cache.store().plan(
        {&row, 1}, {.group = cache.layout().layer(layer).group, .query_heads = kQueryHeads});
    EXPECT_TRUE(plan) << plan.error().message();
    if (!plan) return {};
    std::vector<float> out(kQueryHeads * 32);
    const Status done = plan->run(
        layer,
        {.q = q.view(0), .out = MutableRows::packed(out.data(), DType::f32, kQueryHeads, 32)});
    EXPECT_TRUE(done) << done.error().message();
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

// What the suites that go through all of it go through.
inline std::vector<Setting> all_settings() {
  return {{"bf16", "bf16", "", {0, 0}},
          {"f32_f16", "f32", "1=f16", {0, 0}},
          {"kv8", "kv8", "", {0}},
          {"kv3", "kv3", "", {0, 0}},
          {"k8v3", "k8v3", "", {0, 0}},
          {"codebooks", "k=codebook:5:head:rot,v=codebook:2:norm", "", {0}},
          {"mixed", "k4v4", "0=bf16;1=kv5:f16:rot", {0, 0, 0}},
          {"windows", "kv4", "0=f32", {0, 40, 100}},
          {"windows_only", "bf16", "", {40, 64}},
          {"donors", "kv6", "", {0, 40, 0}, 0}};
}

}  // namespace pagekv::testing
