// Everything that must not change a bit of a row's result: how the work is cut, what else is in the
// batch, which loop nest runs, the pages, the threads, the arrangement.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "cpu/paged_cache.h"
#include "support/sanitized.h"

namespace pagekv::testing {
namespace {

// One sequence with its data, to be put into pages again and again.
struct Story {
  CacheShape shape;
  int query_heads;
  std::int64_t length;
  Tensor k;
  Tensor v;
  Tensor q;  // one row for each token
  std::vector<float> sinks;
  Arithmetic arithmetic = Arithmetic::exact;

  Story(const CacheShape& cache_shape, int heads, std::int64_t tokens, std::uint64_t seed,
        DType query_type = DType::f32)
      : shape(cache_shape),
        query_heads(heads),
        length(tokens),
        k(DType::f32, tokens, shape.kv_heads, shape.key_dim),
        v(DType::f32, tokens, shape.kv_heads, shape.value_dim),
        q(query_type, tokens, heads, shape.key_dim) {
    Random random(seed);
    k.fill_normal(random);
    v.fill_normal(random);
    q.fill_normal(random);
    for (int head = 0; head < heads; ++head) sinks.push_back(0.25f * static_cast<float>(head));
  }

  AttendSpec spec(std::int64_t window_tokens) const {
    AttendSpec made;
    made.query_heads = query_heads;
    made.window_tokens = window_tokens;
    made.logit_softcap = 20.0f;
    made.arithmetic = arithmetic;
    return made;
  }
};

// Dense, affine and codebook on either side, every way to share a scale, rotated and not. Dims that
// fit all of them: multiples of 32.
std::vector<std::string> formats() {
  std::vector<std::string> all = {
      "bf16", "k8v3", "k=affine:3:16:rot,v=affine:5:32:rot",   "kv8",
      "kv4",  "k4v4", "k=codebook:4:32:rot,v=codebook:2:head", "k=codebook:1:f16:norm,v=f32:rot"};
  if (kSanitized) all.resize(3);
  return all;
}

struct Case {
  std::string format;
  Arithmetic arithmetic = Arithmetic::exact;

  // bf16 pages have a way of their own for bf16 queries.
  DType query_type() const {
    const bool bf16 = format.find("bf16") != std::string::npos;
    return bf16 && arithmetic == Arithmetic::fast ? DType::bf16 : DType::f32;
  }
};

// All formats, and `fast` where it has ways of its own: bf16, affine keys or values, of every kind
// of packing and group.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& format : formats()) all.push_back({format});
  for (const char* format :
       {"kv4", "bf16", "k8v3", "kv2", "k=affine:3:32,v=affine:5:16:rot", "bf16:rot",
        "k=bf16,v=affine:4:32", "k=affine:8:32,v=bf16", "k=f32,v=bf16",
        "k=affine:6:32:f16:rot,v=affine:8:16", "affine:4:16", "affine:2:8",
        "k=affine:8:32,v=codebook:4:rot", "codebook:2:32", "codebook:5:head"}) {
    all.push_back({format, Arithmetic::fast});
    if (kSanitized && all.size() > 5) break;
  }
  return all;
}

std::ostream& operator<<(std::ostream& to, const Case& each) {
  return to << each.format << (each.arithmetic == Arithmetic::fast ? ", fast" : "");
}

struct Arrangement {
  std::string target;
  int threads = 1;
  std::uint64_t page_seed = 1;
  std::int64_t chunk = 1 << 20;  // rows of one call
  Cut cut = Cut::never_split;
};

// Stores rows [begin, end) of the story at their positions.
void write(const Story& story, const PagedCache& cache, std::int64_t begin, std::int64_t end) {
  internal::WriteSpan span{.pages = cache.pages(0), .position = begin, .tokens = end - begin};
  cache.backend().encode(cache.address(), {&span, 1}, story.k.view(begin), story.v.view(begin), {});
  EXPECT_EQ(span.bad_token, -1);
}

// The results of all rows of the story, stored and asked for in chunks as prefill does: whatever
// lies past a chunk is NaN while it is read.
AttendResult prefill(const Story& story, const CacheShape& shape, const AttendSpec& spec,
                     const Arrangement& how) {
  PagedCache cache(make_device(how.target, how.threads), shape, {story.length}, how.page_seed);
  AttendResult all;
  for (std::int64_t row = 0; row < story.length; row += how.chunk) {
    const std::int64_t rows = std::min(how.chunk, story.length - row);
    write(story, cache, row, row + rows);
    const AttendResult part =
        attend(cache, {.queries = {{.sequence = 0, .length = row + rows, .rows = rows}},
                       .spec = spec,
                       .q = &story.q,
                       .first_row = row,
                       .sinks = story.sinks.data(),
                       .cut = how.cut});
    all.out.insert(all.out.end(), part.out.begin(), part.out.end());
    all.lse.insert(all.lse.end(), part.lse.begin(), part.lse.end());
  }
  return all;
}

// Chunks, threads, splits and pages, by turns.
void expect_cutting_keeps_bits(const std::string& target, const Story& story,
                               const std::vector<std::int64_t>& windows) {
  const CacheShape& shape = story.shape;
  for (const std::int64_t window : windows) {
    const AttendSpec spec = story.spec(window);
    const AttendResult whole = prefill(story, shape, spec, {.target = target});
    SCOPED_TRACE(::testing::Message() << "window " << window);
    // 1 and 7 rows take the nest for few queries, 64 the other one, in two items.
    for (const std::int64_t chunk : {1, 7, 64}) {
      EXPECT_TRUE(prefill(story, shape, spec, {.target = target, .chunk = chunk}) == whole)
          << "chunk " << chunk;
    }
    for (const int threads : {1, 2, 3}) {
      for (const Cut cut : {Cut::as_planned, Cut::always_split}) {
        EXPECT_TRUE(prefill(story, shape, spec,
                            {.target = target, .threads = threads, .cut = cut}) == whole)
            << threads << " threads, cut " << static_cast<int>(cut);
      }
    }
    for (const std::int64_t page_tokens : {16, 256}) {
      CacheShape other = shape;
      other.page_tokens = page_tokens;
      EXPECT_TRUE(prefill(story, other, spec, {.target = target, .page_seed = 9}) == whole)
          << "page " << page_tokens;
      other.order = PageOrder::layer_major;
      EXPECT_TRUE(prefill(story, other, spec, {.target = target, .page_seed = 10}) == whole)
          << "layer-major, page " << page_tokens;
    }
  }
}

class OnTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(OnTarget, ChunksPagesThreadsAndSplitsKeepBits) {
  constexpr std::uint64_t kSeed = 5;
  const CacheShape shape{.kv_heads = 2, .key_dim = 40, .value_dim = 24};
  expect_cutting_keeps_bits(GetParam(), Story(shape, 6, 530, kSeed), {0, 150});
}

TEST_P(OnTarget, CuttingKeepsBitsInEveryFormat) {
  constexpr std::uint64_t kSeed = 13;
  for (const Case& each : cases()) {
    SCOPED_TRACE(::testing::Message() << each);
    const CacheShape shape{
        .kv_heads = 1, .key_dim = 64, .value_dim = 32, .format = format_of(each.format)};
    Story story(shape, 3, 200, kSeed, each.query_type());
    story.arithmetic = each.arithmetic;
    expect_cutting_keeps_bits(GetParam(), story, {50});
  }
}

// Heads whose rows fill vectors of codes, and heads that leave some of the last one over.
TEST_P(OnTarget, FastKeepsBitsAtEveryHeadDim) {
  constexpr std::uint64_t kSeed = 15;
  for (const int dim : {32, 80, 96, 128, 192, 256}) {
    for (const char* format :
         {"kv8", "kv4", "kv2", "kv3", "affine:4:16", "kv8:f32", "k8v4", "k4v1", "k8v8"}) {
      if (kSanitized && dim % 64 == 0) continue;
      SCOPED_TRACE(::testing::Message() << dim << ' ' << format);
      const CacheShape shape{
          .kv_heads = 2, .key_dim = dim, .value_dim = dim, .format = format_of(format)};
      Story story(shape, 10, 150, kSeed);
      story.arithmetic = Arithmetic::fast;
      const AttendResult whole = prefill(story, shape, story.spec(0), {.target = GetParam()});
      EXPECT_TRUE(prefill(story, shape, story.spec(0), {.target = GetParam(), .chunk = 1}) ==
                  whole);
    }
  }
}

TEST_P(OnTarget, ArrangementsKeepBits) {
  constexpr std::uint64_t kSeed = 6;
  for (const char* format : {"f32", "f16", "bf16", "kv3", "k6v5", "k=codebook:5:rot,v=affine:2"}) {
    CacheShape shape{.kv_heads = 1, .key_dim = 64, .value_dim = 72, .format = format_of(format)};
    const Story story(shape, 3, 300, kSeed);
    for (const std::int64_t chunk : {1, 300}) {
      SCOPED_TRACE(::testing::Message() << "seed " << kSeed << ' ' << format << ' ' << chunk);
      const Arrangement how{.target = GetParam(), .chunk = chunk};
      shape.arrangement = TileArrangement::key_tile16;
      const AttendResult tiled = prefill(story, shape, story.spec(0), how);
      shape.arrangement = TileArrangement::row_major;
      EXPECT_TRUE(prefill(story, shape, story.spec(0), how) == tiled);
    }
  }
}

// Readers round stored elements no further: without a rotation in the way, attention over a
// quantized page is, bit for bit, that over an f32 page of the elements that it holds.
TEST_P(OnTarget, StoredElementsAreReadAsTheyAre) {
  constexpr std::uint64_t kSeed = 14;
  Random random(kSeed);
  for (int width = 0; width < kCodecWidths; width += kSanitized ? 4 : 1) {
    const auto unrotated = [&](std::int64_t dim) {
      while (true) {
        const VectorCodec codec = pick_codec(random, width, dim);
        if (!codec.is_rotated()) return codec;
      }
    };
    CacheShape shape{
        .kv_heads = 2,
        .key_dim = 96,
        .value_dim = 80,
        .format = {unrotated(96), unrotated(80)},
        .arrangement = width % 2 == 0 ? TileArrangement::key_tile16 : TileArrangement::row_major};
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << ' ' << shape.format.name());
    Story story(shape, 4, 200, kSeed);
    const AttendResult rows[2] = {
        prefill(story, shape, story.spec(0), {.target = GetParam(), .chunk = 1}),
        prefill(story, shape, story.spec(0), {.target = GetParam()})};
    PagedCache cache(make_device(GetParam()), shape, {story.length}, kSeed);
    write(story, cache, 0, story.length);
    cache.gather(0, 0, story.length, story.k, story.v);
    shape.format = format_of("f32");
    EXPECT_TRUE(prefill(story, shape, story.spec(0), {.target = GetParam(), .chunk = 1}) ==
                rows[0]);
    EXPECT_TRUE(prefill(story, shape, story.spec(0), {.target = GetParam()}) == rows[1]);
  }
}

// Rows behind the window may be gone or hold anything, in the middle of a page or tile too.
TEST_P(OnTarget, NothingBehindTheWindowIsRead) {
  constexpr std::uint64_t kSeed = 11;
  for (const Case& each : cases()) {
    const CacheShape shape{
        .kv_heads = 1, .key_dim = 32, .value_dim = 32, .format = format_of(each.format)};
    Story story(shape, 2, 530, kSeed, each.query_type());
    story.arithmetic = each.arithmetic;
    for (const std::int64_t window : {1, 15, 150}) {
      for (const std::int64_t rows : {1, 40}) {
        SCOPED_TRACE(::testing::Message() << each << " window " << window << " rows " << rows);
        AttendResult results[2];
        const std::int64_t first_visible = story.length - rows + 1 - window;
        for (const std::int64_t begin : {std::int64_t{0}, first_visible}) {
          PagedCache cache(make_device(GetParam()), shape, {story.length}, kSeed);
          write(story, cache, begin, story.length);
          results[begin == 0 ? 0 : 1] =
              attend(cache, {.queries = {{.sequence = 0, .length = story.length, .rows = rows}},
                             .spec = story.spec(window),
                             .q = &story.q});
        }
        EXPECT_TRUE(results[0] == results[1]);
      }
    }
  }
}

// A row alone, and the same row among seven other sequences of any kind.
void expect_company_keeps_bits(const std::string& target, const Case& each) {
  constexpr std::uint64_t kSeed = 7;
  Random random(kSeed);
  const CacheShape shape{.kv_heads = 1,
                         .key_dim = 32,
                         .value_dim = 32,
                         .format = format_of(each.format),
                         .page_tokens = 32};
  std::vector<std::int64_t> lengths;
  for (int index = 0; index < 8; ++index) lengths.push_back(pick(random, 1, 700));
  PagedCache cache(make_device(target, 2), shape, lengths, kSeed);
  std::vector<Query> queries;
  std::int64_t total_rows = 0;
  for (std::size_t index = 0; index < lengths.size(); ++index) {
    Tensor k(DType::f32, lengths[index], 1, 32);
    Tensor v(DType::f32, lengths[index], 1, 32);
    k.fill_normal(random);
    v.fill_normal(random);
    ASSERT_EQ(cache.write(index, 0, k, v), -1);
    const std::int64_t rows = std::min<std::int64_t>(lengths[index], index % 2 == 0 ? 1 : 33);
    queries.push_back({.sequence = index, .length = lengths[index], .rows = rows});
    total_rows += rows;
  }
  constexpr int kHeads = 5;
  Tensor q(DType::bf16, total_rows, kHeads, 32);
  q.fill_normal(random);
  AttendSpec spec;
  spec.query_heads = kHeads;
  spec.window_tokens = 0;
  spec.arithmetic = each.arithmetic;
  const AttendResult together = attend(cache, {.queries = queries, .spec = spec, .q = &q});

  std::int64_t first_row = 0;
  for (const Query& query : queries) {
    const AttendResult alone =
        attend(cache, {.queries = {query}, .spec = spec, .q = &q, .first_row = first_row});
    const auto at = static_cast<std::size_t>(first_row * kHeads);
    EXPECT_EQ(std::memcmp(alone.out.data(), together.out.data() + at * 32,
                          alone.out.size() * sizeof(float)),
              0);
    EXPECT_EQ(
        std::memcmp(alone.lse.data(), together.lse.data() + at, alone.lse.size() * sizeof(float)),
        0);
    first_row += query.rows;
  }
}

TEST_P(OnTarget, CompanyKeepsBits) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(::testing::Message() << each);
    expect_company_keeps_bits(GetParam(), each);
  }
}

// While one thread writes rows past a view's length, into the view's last tile too, others read the
// view and copy its rows. A thread sanitizer looks on.
TEST_P(OnTarget, WritersPastTheLengthDisturbNoReader) {
  constexpr std::uint64_t kSeed = 12;
  for (int index = 0; index < 6; ++index) {
    const CacheShape shape{
        .kv_heads = 1,
        .key_dim = 32,
        .value_dim = 32,
        .format = format_of(index < 2   ? "bf16"
                            : index < 4 ? "k3v3"
                                        : "k=codebook:5,v=affine:6"),
        .arrangement = index % 2 == 0 ? TileArrangement::row_major : TileArrangement::key_tile16};
    Story story(shape, 4, 64, kSeed);
    story.arithmetic = index % 2 == 0 ? Arithmetic::exact : Arithmetic::fast;
    constexpr std::int64_t kLength = 21;
    PagedCache cache(make_device(GetParam()), shape, {story.length, story.length}, kSeed);
    write(story, cache, 0, kLength);
    const auto read = [&](std::int64_t rows) {
      return attend(cache, {.queries = {{.sequence = 0, .length = kLength, .rows = rows}},
                            .spec = story.spec(0),
                            .q = &story.q});
    };
    const AttendResult quiet[2] = {read(1), read(kLength)};
    std::thread writer([&] {
      for (std::int64_t row = kLength; row < story.length; ++row) {
        write(story, cache, row, row + 1);
      }
    });
    for (int round = 0; round < 10; ++round) {
      EXPECT_TRUE(read(1) == quiet[0]);
      EXPECT_TRUE(read(kLength) == quiet[1]);
      cache.backend().copy_rows(cache.address(), cache.pages(0)[0], cache.pages(1)[0], kLength, {});
    }
    writer.join();
  }
}

// Both arithmetics, since `fast` has ways of its own.
AttendResult differential(const std::string& target, const CacheShape& shape, int query_heads,
                          std::int64_t rows, Arithmetic arithmetic) {
  const Story story(shape, query_heads, 400, 8);
  AttendSpec spec = story.spec(0);
  spec.arithmetic = arithmetic;
  PagedCache cache(make_device(target), shape, {story.length}, 3);
  EXPECT_EQ(cache.write(0, 0, story.k, story.v), -1);
  return attend(cache, {.queries = {{.sequence = 0, .length = story.length, .rows = rows}},
                        .spec = spec,
                        .q = &story.q,
                        .sinks = story.sinks.data()});
}

// Vector width changes no order of sums, so targets that both fuse multiply and add give the same
// bits, as do two that both do not: every target is checked by another one. Codes are multiplied
// as integers where there are vectors, so not on the scalar target, and values of codebooks where
// bytes are multiplied. The matrix unit is for bf16 queries (matrix_test.cc).
TEST(Targets, OfOneRoundingAgreeBitForBit) {
  const std::vector<std::string> targets = cpu_targets();
  const auto fuses = [](const std::string& target) {
    return target.starts_with("AVX") || target.starts_with("NEON");
  };
  for (std::size_t index = 1; index < targets.size(); ++index) {
    const std::string& better = targets[index - 1];
    const std::string& worse = targets[index];
    if (fuses(better) != fuses(worse)) continue;
    for (const char* format : {"f32", "f16", "bf16", "kv5", "k8v3", "k=codebook:8:rot,v=f16:rot",
                               "kv4", "kv2", "k=affine:3:32,v=affine:6:16"}) {
      for (const std::int64_t rows : {1, 20}) {
        for (const Arithmetic arithmetic : {Arithmetic::exact, Arithmetic::fast}) {
          const bool integers =
              arithmetic == Arithmetic::fast && format_of(format).k.kind() == CodecKind::affine;
          if (integers && worse == "SCALAR") continue;
          const bool looked_up =
              arithmetic == Arithmetic::fast && format_of(format).v.kind() == CodecKind::codebook;
          if (looked_up && better == "AVX3_VNNI") continue;
          for (const int dim : {64, 96}) {
            const CacheShape shape{
                .kv_heads = 1, .key_dim = dim, .value_dim = dim + 32, .format = format_of(format)};
            EXPECT_TRUE(differential(better, shape, 5, rows, arithmetic) ==
                        differential(worse, shape, 5, rows, arithmetic))
                << better << " and " << worse << ", " << format << ", " << rows << " rows, dim "
                << dim;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, OnTarget, ::testing::ValuesIn(cpu_targets()),
                         [](const auto& target) { return target.param; });

}  // namespace
}  // namespace pagekv::testing
