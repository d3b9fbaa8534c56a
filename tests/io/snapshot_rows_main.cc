// Snapshots for the peer tests: snapshot_rows FOLDER
//
// Writes for each of the settings below NAME.safetensors, and NAME.f32 with what gather() says of
// it: layer after layer, keys before values, [row][kv_head][dim] in f32, from the first row that is
// kept on.
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "pagekv/pagekv.h"

namespace pagekv::testing {
namespace {

constexpr std::int64_t kTokens = 53;
constexpr std::int64_t kNamedTokens = 55;  // two of them are not computed
constexpr int kHeads = 2;

struct Setting {
  const char* name;
  const char* format;
  const char* overrides = "";
  std::vector<std::int64_t> windows = {0};
  int key_dim = 64;
  int value_dim = 32;
  int donor = -1;  // of the last layer
};

const Setting kSettings[] = {
    {.name = "f32", .format = "f32"},
    {.name = "f16", .format = "f16"},
    {.name = "bf16", .format = "bf16"},
    {.name = "kv8", .format = "kv8"},
    {.name = "kv6", .format = "kv6"},
    {.name = "kv5", .format = "kv5"},
    {.name = "kv4", .format = "kv4"},
    {.name = "kv3", .format = "kv3"},
    {.name = "kv2", .format = "kv2"},
    {.name = "affine_f16_f32", .format = "k=affine:4:16:f16,v=affine:8:32:f32"},
    {.name = "affine_odd", .format = "kv3", .key_dim = 80, .value_dim = 24},
    {.name = "codebook_1_2", .format = "k=codebook:1:32,v=codebook:2:32:rms"},
    {.name = "codebook_3_4", .format = "k=codebook:3:64:norm,v=codebook:4:head"},
    {.name = "codebook_5_8", .format = "k=codebook:5:head:f16,v=codebook:8:32:f32"},
    {.name = "rotated_affine", .format = "kv4:rot"},
    {.name = "rotated_dense", .format = "k=bf16:rot,v=f16:rot"},
    {.name = "rotated_odd",
     .format = "k=codebook:4:head:rot,v=affine:5:8:rot",
     .key_dim = 80,
     .value_dim = 24},
    {.name = "k8v4", .format = "k8v4"},
    {.name = "mixed", .format = "k8v3", .overrides = "0=bf16;1=kv5:f16:rot", .windows = {0, 0, 0}},
    {.name = "windows", .format = "kv4", .overrides = "0=f32", .windows = {0, 10, 20}},
    {.name = "donor", .format = "kv6", .windows = {0, 10, 0}, .donor = 0},
};

template <typename T>
T need(Result<T> result) {
  if (result) return std::move(*result);
  std::fprintf(stderr, "%s\n", result.error().message().c_str());
  std::exit(1);
}
void need(Status status) {
  if (status) return;
  std::fprintf(stderr, "%s\n", status.error().message().c_str());
  std::exit(1);
}

CacheLayout layout(const Setting& setting) {
  const auto layers = static_cast<int>(setting.windows.size());
  const Format base = need(Format::parse(setting.format));
  const auto formats = need(parse_layer_formats(base, setting.overrides, layers));
  LayoutSpec spec{.page_tokens = 16};
  for (std::size_t at = 0; at < setting.windows.size(); ++at) {
    spec.layers.push_back({.kv_heads = kHeads,
                           .key_dim = setting.key_dim,
                           .value_dim = setting.value_dim,
                           .format = formats[at],
                           .window_tokens = setting.windows[at]});
  }
  if (setting.donor >= 0) spec.layers.back().donor = setting.donor;
  return need(CacheLayout::make(spec));
}

// Vectors of all lengths, some with outliers, some of zeros.
std::vector<float> vectors(std::mt19937& random, int dim) {
  std::normal_distribution<float> normal;
  std::vector<float> out;
  for (std::int64_t vector = 0; vector < kTokens * kHeads; ++vector) {
    const float size = vector % 7 == 0 ? 0.0f : std::exp2(static_cast<float>(vector % 16 - 8));
    for (int i = 0; i < dim; ++i) {
      out.push_back(size * normal(random) * (random() % 50 == 0 ? 20.0f : 1.0f));
    }
  }
  return out;
}

Sequence fill(Store& store, const Setting& setting) {
  std::mt19937 random(7);
  Sequence sequence = need(store.create_sequence());
  const Append append{&sequence, kTokens};
  Step step = need(store.reserve({&append, 1}));
  for (int layer = 0; layer < store.layout().layer_count(); ++layer) {
    if (store.layout().layer(layer).storage_layer != layer) continue;
    const auto k = vectors(random, setting.key_dim);
    const auto v = vectors(random, setting.value_dim);
    need(step.write(layer, Rows::packed(k.data(), DType::f32, kHeads, setting.key_dim),
                    Rows::packed(v.data(), DType::f32, kHeads, setting.value_dim)));
  }
  if (auto done = step.commit(); !done) need(tl::unexpected(done.error()));
  return sequence;
}

void write(std::FILE* file, const std::vector<float>& values, std::int64_t count) {
  if (std::fwrite(values.data(), sizeof(float), static_cast<std::size_t>(count), file) ==
      static_cast<std::size_t>(count)) {
    return;
  }
  std::perror("snapshot_rows");
  std::exit(1);
}

void write_rows(const Store& store, const Setting& setting, ViewRef view, const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    std::perror(path.c_str());
    std::exit(1);
  }
  for (int layer = 0; layer < store.layout().layer_count(); ++layer) {
    std::vector<float> k(static_cast<std::size_t>(kTokens * kHeads * setting.key_dim));
    std::vector<float> v(static_cast<std::size_t>(kTokens * kHeads * setting.value_dim));
    need(store.gather(view, layer,
                      MutableRows::packed(k.data(), DType::f32, kHeads, setting.key_dim),
                      MutableRows::packed(v.data(), DType::f32, kHeads, setting.value_dim)));
    const std::int64_t vectors =
        (kTokens - store.first(view, store.layout().layer(layer).group)) * kHeads;
    write(file, k, vectors * setting.key_dim);
    write(file, v, vectors * setting.value_dim);
  }
  std::fclose(file);
}

void write_setting(const Setting& setting, const std::string& folder) {
  Store store = need(
      Store::make(layout(setting), need(make_cpu_device()), {.cap_bytes = std::int64_t{8} << 20}));
  const Sequence sequence = fill(store, setting);
  std::vector<TokenId> tokens(kNamedTokens);
  std::iota(tokens.begin(), tokens.end(), 1000);
  const std::string path = folder + "/" + setting.name;
  need(save(store, sequence.ref(), tokens, path + ".safetensors", {.sync = false}));
  write_rows(store, setting, sequence.ref(), path + ".f32");
}

}  // namespace
}  // namespace pagekv::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: snapshot_rows FOLDER\n");
    return 2;
  }
  for (const auto& setting : pagekv::testing::kSettings) {
    pagekv::testing::write_setting(setting, argv[1]);
  }
  return 0;
}
