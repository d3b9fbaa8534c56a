// Saved, loaded, continued: the same rows and the same attention, whatever the page size on the
// other side. And what load() refuses, and that a refusal changes nothing.
#include "pagekv/snapshot.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <vector>

#include "core/test_backend.h"
#include "core/token_cache.h"
#include "io/settings.h"
#include "support/files.h"

namespace pagekv::testing {
namespace {

const NamespaceSpec kIdentity{.model = "m", .adapter = "a", .salt = "s"};

struct Side {
  explicit Side(LayoutSpec spec, std::int64_t cap_bytes = 16 << 20)
      : cache(test.device, std::move(spec), {.cap_bytes = cap_bytes}) {}

  Sequence compute(const Tokens& tokens, std::int64_t chunk = 1000) {
    Sequence sequence = *cache.store().create_sequence();
    for (std::size_t at = 0; at < tokens.size(); at += static_cast<std::size_t>(chunk)) {
      const std::size_t end = std::min(at + static_cast<std::size_t>(chunk), tokens.size());
      EXPECT_TRUE(cache.append(sequence, {tokens.begin() + static_cast<std::ptrdiff_t>(at),
                                          tokens.begin() + static_cast<std::ptrdiff_t>(end)}));
    }
    return sequence;
  }
  std::vector<float> attend(const Sequence& sequence) { return attend_all(cache, sequence); }
  std::int64_t pages() {
    std::int64_t pages = 0;
    for (const auto& group : cache.store().stats().groups) pages += group.referenced_pages;
    return pages;
  }

  TestDevice test{2};
  TokenCache cache;
};

class Snapshot : public ::testing::TestWithParam<Setting> {
 protected:
  // Going back is refused, or what is left has the rows it says it has.
  void expect_exact_or_lost(Side& side, const Sequence& sequence) {
    for (std::int64_t length = 203; length >= 0; length -= 7) {
      Sequence fork = *sequence.fork();
      const Status cut = fork.truncate(length);
      if (!cut) {
        EXPECT_EQ(cut.error().code(), ErrorCode::window_lost);
        continue;
      }
      EXPECT_TRUE(side.cache.holds(fork, {tokens_.begin(), tokens_.begin() + length}));
      ASSERT_TRUE(side.cache.append(fork, count_up(800, 3)));
      EXPECT_TRUE(side.cache.holds(
          fork, join({tokens_.begin(), tokens_.begin() + length}, count_up(800, 3))));
    }
  }

  TemporaryFolder folder_;
  const Tokens tokens_ = count_up(7, 203);
};

TEST_P(Snapshot, ContinuesAsIfItHadNeverLeft) {
  Side here(layout(GetParam(), 16));
  Sequence sequence = here.compute(tokens_, 10);
  const auto bytes = save(here.cache.store(), sequence.ref(), ids(tokens_), folder_.path("s"),
                          {.identity = kIdentity});
  ASSERT_TRUE(bytes) << bytes.error().message();
  EXPECT_EQ(static_cast<std::uintmax_t>(*bytes), std::filesystem::file_size(folder_.path("s")));
  EXPECT_EQ(folder_.files(), 1u);
  ASSERT_TRUE(here.cache.append(sequence, count_up(900, 40)));
  const auto expected = here.attend(sequence);

  for (const std::int64_t page_tokens : {16, 48, 128}) {
    LayoutSpec spec = layout(GetParam(), page_tokens, page_tokens == 48 ? 3 : 20);
    if (page_tokens == 48) {
      spec.order = PageOrder::layer_major;
      spec.arrangement = TileArrangement::row_major;
    }
    Side there(spec);
    auto loaded = load(there.cache.store(), folder_.path("s"), {.identity = kIdentity});
    ASSERT_TRUE(loaded) << loaded.error().message();
    EXPECT_EQ(loaded->tokens, ids(tokens_));
    EXPECT_TRUE(there.cache.holds(loaded->sequence, tokens_));
    expect_exact_or_lost(there, loaded->sequence);
    ASSERT_TRUE(there.cache.append(loaded->sequence, count_up(900, 40)));
    const auto actual = there.attend(loaded->sequence);
    ASSERT_EQ(actual.size(), expected.size());
    EXPECT_EQ(std::memcmp(actual.data(), expected.data(), actual.size() * sizeof(float)), 0)
        << "pages of " << page_tokens;
    EXPECT_TRUE(there.cache.store().check());
  }
}

TEST_P(Snapshot, SameContentSameBytes) {
  Side here(layout(GetParam(), 16));
  const Sequence whole = here.compute(tokens_);
  Sequence longer = here.compute(join(tokens_, count_up(500, 10)), 7);
  ASSERT_TRUE(longer.truncate(203));
  const Sequence fork = *longer.fork();
  ASSERT_TRUE(
      save(here.cache.store(), whole.ref(), ids(tokens_), folder_.path("a"), {.sync = false}));
  ASSERT_TRUE(
      save(here.cache.store(), fork.ref(), ids(tokens_), folder_.path("b"), {.sync = false}));
  const bool windows = here.cache.layout().group_count() > 1;
  if (!windows) {  // else what was kept behind them may differ
    EXPECT_EQ(read_file(folder_.path("a")), read_file(folder_.path("b")));
  }
  auto loaded = load(here.cache.store(), folder_.path("a"));
  ASSERT_TRUE(loaded);
  ASSERT_TRUE(save(here.cache.store(), loaded->sequence.ref(), loaded->tokens, folder_.path("c")));
  EXPECT_EQ(read_file(folder_.path("a")), read_file(folder_.path("c")));
}

TEST_P(Snapshot, APrefixCanBeLoadedAlone) {
  Side here(layout(GetParam(), 16));
  const Sequence sequence = here.compute(tokens_);
  ASSERT_TRUE(save(here.cache.store(), sequence.ref(), ids(tokens_), folder_.path("s")));
  for (const std::int64_t length : {0, 1, 16, 100, 190, 203, 999}) {
    auto loaded = load(here.cache.store(), folder_.path("s"), {.max_tokens = length});
    const auto kept = static_cast<std::ptrdiff_t>(std::min<std::int64_t>(length, 203));
    if (!loaded) {
      EXPECT_EQ(loaded.error().code(), ErrorCode::window_lost) << loaded.error().message();
      EXPECT_LT(length, 190) << "within the slack";
      continue;
    }
    EXPECT_EQ(loaded->sequence.length(), kept);
    EXPECT_TRUE(here.cache.holds(loaded->sequence, {tokens_.begin(), tokens_.begin() + kept}));
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, Snapshot, ::testing::ValuesIn(all_settings()),
                         [](const auto& setting) { return std::string(setting.param.name); });

const Setting kPlain{"plain", "kv8", "", {0, 0}};

class SnapshotRefusals : public ::testing::Test {
 protected:
  SnapshotRefusals() {
    const Sequence sequence = side_.compute(tokens_);
    EXPECT_TRUE(save(side_.cache.store(), sequence.ref(), ids(join(tokens_, {4})),
                     folder_.path("s"), {.identity = kIdentity}));
  }
  std::string refusal(Side& side, const LoadOptions& options) {
    const std::int64_t pages = side.pages();
    const auto loaded = load(side.cache.store(), folder_.path("s"), options);
    EXPECT_FALSE(loaded);
    EXPECT_EQ(side.pages(), pages);
    EXPECT_TRUE(side.cache.store().check());
    if (loaded) return "";
    std::string message = loaded.error().message();
    const std::size_t at = message.find(folder_.path("s"));
    return at == std::string::npos ? message
                                   : message.replace(at, folder_.path("s").size(), "FILE");
  }

  TemporaryFolder folder_;
  const Tokens tokens_ = count_up(0, 60);
  Side side_{layout(kPlain, 16)};
};

TEST_F(SnapshotRefusals, NameTheFieldThatDiffers) {
  EXPECT_EQ(refusal(side_, {}), "FILE: model is \"m\" in the file, empty here");
  EXPECT_EQ(refusal(side_, {.identity = {.model = "n", .adapter = "a", .salt = "s"}}),
            "FILE: model is \"m\" in the file, \"n\" here");
  EXPECT_EQ(refusal(side_, {.identity = {.model = "m", .adapter = "b", .salt = "s"}}),
            "FILE: adapter is \"a\" in the file, \"b\" here");
  EXPECT_NE(refusal(side_, {.identity = {.model = "m", .adapter = "a", .salt = "t"}}).find("salt"),
            std::string::npos);
  EXPECT_EQ(refusal(side_, {.identity = {.model = "m",
                                         .adapter = "a",
                                         .salt = "s",
                                         .arithmetic = Arithmetic::fast}}),
            "FILE: arithmetic is \"exact\" in the file, \"fast\" here");
  Side other_format(layout({"", "kv4", "", {0, 0}}, 16));
  EXPECT_EQ(refusal(other_format, {.identity = kIdentity}),
            "FILE: format of layer 0 is \"affine:8:32\" in the file, \"affine:4:32\" here");
  Side other_window(layout({"", "kv8", "", {0, 40}}, 16));
  EXPECT_EQ(refusal(other_window, {.identity = kIdentity}),
            "FILE: window of layer 1 is \"0\" in the file, \"40\" here");
  Side more_layers(layout({"", "kv8", "", {0, 0, 0}}, 16));
  EXPECT_EQ(refusal(more_layers, {.identity = kIdentity}),
            "FILE: number of layers is \"2\" in the file, \"3\" here");
  LayoutSpec heads = layout(kPlain, 16);
  for (LayerSpec& layer : heads.layers) layer.kv_heads = 4;
  Side other_heads(heads);
  EXPECT_EQ(refusal(other_heads, {.identity = kIdentity}),
            "FILE: number of KV heads of layer 0 is \"2\" in the file, \"4\" here");
}

TEST_F(SnapshotRefusals, AFullStoreStaysAsItWas) {
  const CacheLayout made = *CacheLayout::make(layout(kPlain, 16));
  Side small(layout(kPlain, 16), 5 * made.group(0).page_bytes);
  Sequence running = small.compute(count_up(0, 40));
  EXPECT_NE(refusal(small, {.identity = kIdentity}).find("page pool of group 0 is full"),
            std::string::npos);
  EXPECT_TRUE(small.cache.holds(running, count_up(0, 40)));
  ASSERT_TRUE(small.cache.append(running, count_up(40, 30)));
}

TEST_F(SnapshotRefusals, TokensThatAreNotComputedAreKept) {
  auto loaded = load(side_.cache.store(), folder_.path("s"), {.identity = kIdentity});
  ASSERT_TRUE(loaded);
  EXPECT_EQ(loaded->sequence.length(), 60);
  EXPECT_EQ(loaded->tokens, ids(join(tokens_, {4})));
}

TEST_F(SnapshotRefusals, SaveAsksForWhatItNeeds) {
  const Sequence sequence = side_.compute(tokens_);
  const auto few =
      save(side_.cache.store(), sequence.ref(), ids(count_up(0, 59)), folder_.path("x"));
  ASSERT_FALSE(few);
  EXPECT_EQ(few.error().message(), "59 tokens for a view of 60");
  EXPECT_FALSE(save(side_.cache.store(), {}, {}, folder_.path("x")));
  const auto nowhere =
      save(side_.cache.store(), sequence.ref(), ids(tokens_), folder_.path("no/such"));
  ASSERT_FALSE(nowhere);
  EXPECT_EQ(nowhere.error().code(), ErrorCode::io_error);
  EXPECT_EQ(nowhere.error().number(0), ENOENT);
  EXPECT_EQ(folder_.files(), 1u) << "nothing is left behind";
}

TEST_F(SnapshotRefusals, ANoteIsTheCallers) {
  const Sequence sequence = side_.compute(tokens_);
  const std::string note = "{\"draws\": 7, \"text\": \"\xc3\xa4\"}\n";
  ASSERT_TRUE(save(side_.cache.store(), sequence.ref(), ids(tokens_), folder_.path("n"),
                   {.identity = kIdentity, .note = note}));
  auto loaded = load(side_.cache.store(), folder_.path("n"), {.identity = kIdentity});
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->note, note);
  EXPECT_EQ(inspect(folder_.path("n"))->note, note);
  EXPECT_EQ(load(side_.cache.store(), folder_.path("s"), {.identity = kIdentity})->note, "");
  const std::string longest(kMaxSnapshotNoteBytes, 'x');
  EXPECT_TRUE(save(side_.cache.store(), sequence.ref(), ids(tokens_), folder_.path("n"),
                   {.note = longest}));
  EXPECT_EQ(inspect(folder_.path("n"), true)->note, longest);
  const auto refused = save(side_.cache.store(), sequence.ref(), ids(tokens_), folder_.path("n"),
                            {.note = longest + "x"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), ErrorCode::invalid_argument);
  for (const SaveOptions& bad :
       {SaveOptions{.identity = {.model = "\xff"}}, SaveOptions{.identity = {.adapter = "a\xc3"}},
        SaveOptions{.note = "\xed\xa0\x80"}}) {
    EXPECT_EQ(save(side_.cache.store(), sequence.ref(), ids(tokens_), folder_.path("n"), bad)
                  .error()
                  .code(),
              ErrorCode::invalid_argument);
  }
}

TEST_F(SnapshotRefusals, EmptySequencesAreFilesToo) {
  const Sequence empty = *side_.cache.store().create_sequence();
  ASSERT_TRUE(save(side_.cache.store(), empty.ref(), {}, folder_.path("e")));
  auto loaded = load(side_.cache.store(), folder_.path("e"));
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->sequence.length(), 0);
  ASSERT_TRUE(side_.cache.append(loaded->sequence, tokens_));
}

TEST_F(SnapshotRefusals, InspectTellsWhatIsThere) {
  const auto info = inspect(folder_.path("s"), true);
  ASSERT_TRUE(info) << info.error().message();
  EXPECT_EQ(info->version, 1);
  EXPECT_EQ(info->tokens, 60);
  EXPECT_EQ(info->model, "m");
  EXPECT_EQ(info->layers.size(), 2u);
  ASSERT_EQ(info->tensors.size(), 1u + 2 * 6);
  EXPECT_EQ(info->tensors[0].name, "tokens");
  EXPECT_EQ(info->tensors[1].name, "layers.0.k.codes");
  EXPECT_EQ(info->tensors[1].shape, (std::vector<std::int64_t>{2, 60, 32}));
  EXPECT_EQ(info->tensors[2].dtype, "BF16");
  for (const SnapshotTensor& tensor : info->tensors) EXPECT_EQ(tensor.offset % 4096, 0);
}

}  // namespace
}  // namespace pagekv::testing
