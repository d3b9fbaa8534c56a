// Random histories of a store against a naive model in which a sequence is a list of numbers.
//
// PAGEKV_TEST_SCALE multiplies the number of operations, PAGEKV_TEST_SEED repeats a history.
// Guards rules 1 (dense pages are exact), 2 and 3 (others hold what each vector alone is encoded
// to), 4, 5 (free rows are NaN here), 8 (check() after every operation), 9, 10, 11, 12 and 14.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "support/random_history.h"
#include "support/sanitized.h"
#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

constexpr int kOperationShare = kSanitized ? 10 : 1;

struct Setting {
  const char* name;
  const char* format;
  const char* overrides;  // of single layers
  std::vector<std::int64_t> windows;
  std::int64_t page_tokens;
  std::int64_t slack;
  PageOrder order;
  TileArrangement arrangement;
  std::int64_t cap_pages;
  bool reclaim;
  int operations;
};

struct LiveSequence {
  std::unique_ptr<Sequence> handle;  // null once the history let go of it
  Tokens tokens;
  bool in_step = false;
};
using Live = std::shared_ptr<LiveSequence>;

struct LiveView {
  View view;
  Tokens tokens;
};

// Gives the history's views up, oldest first, as a prefix cache would.
class ViewReclaimer final : public Reclaimer {
 public:
  explicit ViewReclaimer(std::vector<LiveView>& views) : views_(views) {}
  Pages pages(int) const noexcept override { return {static_cast<std::int64_t>(views_.size()), 0}; }
  void reclaim(int, std::int64_t) noexcept override { views_.erase(views_.begin()); }

 private:
  std::vector<LiveView>& views_;
};

class History {
 public:
  History(const Setting& setting, unsigned seed)
      : setting_(setting),
        random_(seed),
        cache_(test_.device, layout(setting), options(setting)),
        reclaimer_(std::make_shared<ViewReclaimer>(views_)) {
    if (setting.reclaim) cache_.store().set_reclaimer(reclaimer_);
  }

  void run() {
    const int operations = setting_.operations * test_scale() / kOperationShare;
    for (int at = 0; at < operations && !::testing::Test::HasFatalFailure(); ++at) {
      one_operation();
      expect_good_books();
      verify_one();
      if (at % 500 == 0) verify_all();
    }
    verify_all();
    sequences_.clear();
    views_.clear();
    test_.backend->hold_fences = false;
    for (const GroupStats& group : cache_.store().stats().groups) {
      EXPECT_EQ(group.referenced_pages, 0);
    }
  }

  std::int64_t commits() const { return commits_; }
  std::int64_t refusals() const { return refusals_; }
  std::int64_t lost_windows() const { return lost_windows_; }

 private:
  static LayoutSpec layout(const Setting& setting) {
    const Format base = *Format::parse(setting.format);
    LayoutSpec spec = small_layout(setting.windows, base, setting.page_tokens, setting.slack);
    const auto formats =
        parse_layer_formats(base, setting.overrides, static_cast<int>(spec.layers.size()));
    for (std::size_t at = 0; at < spec.layers.size(); ++at) {
      spec.layers[at].format = formats->at(at);
    }
    spec.order = setting.order;
    spec.arrangement = setting.arrangement;
    return spec;
  }
  static StoreOptions options(const Setting& setting) {
    const CacheLayout made = *CacheLayout::make(layout(setting));
    std::int64_t bytes = 0;
    for (int group = 0; group < made.group_count(); ++group) {
      bytes += made.group(group).page_bytes;
    }
    return {.cap_bytes = setting.cap_pages * bytes, .max_sequence_tokens = kLongest};
  }

  std::size_t below(std::size_t bound) { return random_() % bound; }
  Tokens fresh_tokens(std::int64_t count) {
    next_ += static_cast<std::uint32_t>(count);
    return count_up(next_, count);
  }
  LiveSequence& any_sequence() { return *sequences_[below(sequences_.size())]; }
  void expect_good_books() {
    const Status books = cache_.store().check();
    ASSERT_TRUE(books) << books.error().message();
  }
  void add(Result<Sequence> made, Tokens tokens) {
    ASSERT_TRUE(made) << made.error().message();
    sequences_.push_back(std::make_shared<LiveSequence>(
        LiveSequence{std::make_unique<Sequence>(std::move(*made)), std::move(tokens)}));
  }

  void one_operation() {
    switch (below(13)) {
      case 0: return create();
      case 1: return fork();
      case 2: return publish();
      case 3: return from_view();
      case 4: return truncate();
      case 5: return forget();
      case 6: return move_handles();
      case 7: return turn_fences();
      default: return step(0);
    }
  }

  void create() {
    if (sequences_.size() < most_) add(cache_.store().create_sequence(), {});
  }

  void fork() {
    if (sequences_.empty() || sequences_.size() >= most_) return;
    const LiveSequence& parent = any_sequence();
    add(parent.handle->fork(), parent.tokens);
  }

  void publish() {
    if (sequences_.empty() || views_.size() >= most_) return;
    const LiveSequence& from = any_sequence();
    const std::size_t length =
        below(16) == 0 ? 0 : from.tokens.size() - below(from.tokens.size() / 3 + 1);
    auto view = from.handle->publish(static_cast<std::int64_t>(length));
    if (!view) return expect_lost(view.error(), from, length);
    views_.push_back({*view, Tokens(from.tokens.begin(),
                                    from.tokens.begin() + static_cast<std::ptrdiff_t>(length))});
  }

  void from_view() {
    if (views_.empty() || sequences_.size() >= most_) return;
    const LiveView& from = views_[below(views_.size())];
    add(cache_.store().create_sequence(from.view), from.tokens);
  }

  void truncate() {
    if (sequences_.empty()) return;
    LiveSequence& target = any_sequence();
    const std::size_t most = below(8) == 0 ? target.tokens.size() : 20;
    const std::size_t length =
        target.tokens.size() - below(std::min(target.tokens.size(), most) + 1);
    const Status done = target.handle->truncate(static_cast<std::int64_t>(length));
    if (!done && target.in_step) {
      ASSERT_EQ(done.error().code(), ErrorCode::busy);
      return;
    }
    if (!done) return expect_lost(done.error(), target, length);
    ASSERT_FALSE(target.in_step);
    target.tokens.resize(length);
  }

  void expect_lost(const Error& error, const LiveSequence& from, std::size_t length) {
    ++lost_windows_;
    ASSERT_EQ(error.code(), ErrorCode::window_lost) << error.message();
    bool lost = false;
    for (int group = 0; group < cache_.layout().group_count(); ++group) {
      const std::int64_t window = cache_.layout().group(group).window_tokens;
      const std::int64_t needed = static_cast<std::int64_t>(length) + 1 - window;
      lost = lost || (window > 0 && from.handle->first(group) > std::max<std::int64_t>(0, needed));
    }
    ASSERT_TRUE(lost && length > 0) << "refused although every row is there";
  }

  void forget() {
    if (below(2) == 0 && !views_.empty()) {
      views_.erase(views_.begin() + static_cast<std::ptrdiff_t>(below(views_.size())));
    } else if (!sequences_.empty()) {
      const auto at = sequences_.begin() + static_cast<std::ptrdiff_t>(below(sequences_.size()));
      (*at)->handle.reset();  // a live step may go on with it
      sequences_.erase(at);
    }
  }

  void move_handles() {
    for (const Live& sequence : sequences_) {
      auto moved = std::make_unique<Sequence>(std::move(*sequence->handle));
      sequence->handle = std::move(moved);
    }
  }

  // Pages given up while fences are held back retire, and come back when they pass.
  void turn_fences() {
    test_.backend->hold_fences = !test_.backend->hold_fences;
    test_.backend->pass_fences();
  }

  // A step over a random subset: written, then committed whole, by counts, or dropped. While it is
  // live anything else may happen, a second step among the others included; a row may fail.
  void step(int depth) {
    std::vector<Live> members;
    std::vector<Append> appends;
    Tokens rows;
    for (const Live& sequence : sequences_) {
      if (sequence->in_step || below(3) == 0) continue;
      std::int64_t count = below(4) == 0 ? 1 + static_cast<std::int64_t>(below(40)) : 1;
      count = std::min(count, kLongest - static_cast<std::int64_t>(sequence->tokens.size()));
      if (count < 1) continue;
      members.push_back(sequence);
      appends.push_back({sequence->handle.get(), count});
      const Tokens more = fresh_tokens(count);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    if (members.empty()) return;
    auto live = cache_.store().reserve(appends);
    if (!live) {
      ++refusals_;
      ASSERT_EQ(live.error().code(), ErrorCode::pool_exhausted) << live.error().message();
      return;
    }
    for (const Live& member : members) member->in_step = true;
    const std::size_t failing = below(8) == 0 ? below(members.size()) : members.size();
    cache_.write(*live, rows, first_row(appends, failing));
    if (failing == members.size()) check_provisional(*live, members, rows);
    meanwhile(depth);
    expect_good_books();
    for (const Live& member : members) member->in_step = false;
    finish(*live, appends, members, rows, failing);
  }

  static std::int64_t first_row(const std::vector<Append>& appends, std::size_t member) {
    if (member == appends.size()) return -1;
    std::int64_t row = 0;
    for (std::size_t at = 0; at < member; ++at) row += appends[at].tokens;
    return row;
  }

  void meanwhile(int depth) {
    switch (below(10)) {
      case 0: return fork();
      case 1: return publish();
      case 2: return truncate();
      case 3: return forget();
      case 4: return move_handles();
      case 5: return depth == 0 ? step(1) : create();
      default: return;
    }
  }

  void check_provisional(const Step& step, const std::vector<Live>& members, const Tokens& rows) {
    const std::size_t member = below(members.size());
    std::ptrdiff_t start = 0;
    for (std::size_t at = 0; at < member; ++at) {
      start += static_cast<std::ptrdiff_t>(step.tokens(static_cast<int>(at)));
    }
    Tokens expected = members[member]->tokens;
    const auto first = rows.begin() + start;
    expected.insert(expected.end(), first,
                    first + static_cast<std::ptrdiff_t>(step.tokens(static_cast<int>(member))));
    ASSERT_TRUE(cache_.holds(step.view(static_cast<int>(member)), expected));
  }

  void finish(Step& step, const std::vector<Append>& appends, const std::vector<Live>& members,
              const Tokens& rows, std::size_t failing) {
    std::vector<std::int64_t> counts;
    const std::size_t kind = below(4);
    for (const Append& append : appends) {
      const auto partial =
          static_cast<std::int64_t>(below(static_cast<std::size_t>(append.tokens) + 1));
      counts.push_back(kind == 0 ? 0 : kind == 1 ? partial : append.tokens);
    }
    if (kind == 0) {
      step.drop();
    } else {
      const auto result = kind == 1 ? step.commit(counts) : step.commit();
      ASSERT_TRUE(result) << result.error().message();
      ASSERT_EQ(result->failed, failing < members.size() ? 1 : 0);
      ++commits_;
    }
    if (failing < members.size()) counts[failing] = 0;
    auto row = rows.begin();
    for (std::size_t at = 0; at < members.size(); ++at) {
      Tokens& tokens = members[at]->tokens;
      tokens.insert(tokens.end(), row, row + static_cast<std::ptrdiff_t>(counts[at]));
      row += static_cast<std::ptrdiff_t>(appends[at].tokens);
    }
  }

  void verify(const LiveSequence& sequence) {
    ASSERT_TRUE(cache_.holds(*sequence.handle, sequence.tokens));
    for (int group = 0; group < cache_.layout().group_count(); ++group) {
      const std::int64_t window = cache_.layout().group(group).window_tokens;
      const auto next = static_cast<std::int64_t>(sequence.tokens.size());
      ASSERT_LE(sequence.handle->first(group),
                window == 0 ? 0 : std::max<std::int64_t>(0, next + 1 - window));
    }
  }

  void verify_one() {
    if (!sequences_.empty()) verify(any_sequence());
    if (views_.empty()) return;
    const LiveView& view = views_[below(views_.size())];
    ASSERT_TRUE(cache_.holds(view.view, view.tokens));
  }

  void verify_all() {
    for (const Live& sequence : sequences_) verify(*sequence);
    for (const LiveView& view : views_) ASSERT_TRUE(cache_.holds(view.view, view.tokens));
  }

  static constexpr std::int64_t kLongest = 600;

  Setting setting_;
  // Of sequences, and of views: few where pages are, or steps over most of them would never fit.
  const std::size_t most_ = setting_.cap_pages < 20 ? 4 : 12;
  std::mt19937 random_;
  TestDevice test_;
  TokenCache cache_;
  std::vector<Live> sequences_;
  std::vector<LiveView> views_;
  std::shared_ptr<ViewReclaimer> reclaimer_;
  std::uint32_t next_ = 0;
  std::int64_t commits_ = 0;
  std::int64_t refusals_ = 0;
  std::int64_t lost_windows_ = 0;
};

class HistoryTest : public ::testing::TestWithParam<Setting> {};

TEST_P(HistoryTest, GathersWhatANaiveModelHolds) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(seed);
  History history(GetParam(), seed);
  history.run();
  EXPECT_GT(history.commits(), GetParam().operations / kOperationShare / 20);
  if (GetParam().cap_pages < 20) {
    EXPECT_GT(history.refusals(), 0);
  }
  if (GetParam().windows.back() > 0) {
    EXPECT_GT(history.lost_windows(), 0);
  }
}

constexpr auto kTiled = TileArrangement::key_tile16;
constexpr auto kRowMajor = TileArrangement::row_major;
constexpr auto kPageMajor = PageOrder::page_major;
constexpr auto kLayerMajor = PageOrder::layer_major;

INSTANTIATE_TEST_SUITE_P(
    Settings, HistoryTest,
    ::testing::Values(
        Setting{"roomy_bf16", "bf16", "", {0, 0}, 16, 0, kPageMajor, kTiled, 1000, false, 20000},
        Setting{"roomy_f32_layer_major",
                "f32",
                "",
                {0, 0},
                32,
                0,
                kLayerMajor,
                kTiled,
                1000,
                false,
                6000},
        Setting{"windows_f16", "f16", "", {0, 24}, 16, 8, kPageMajor, kTiled, 1000, false, 12000},
        Setting{"windows_row_major",
                "bf16",
                "",
                {40, 0, 7},
                48,
                0,
                kLayerMajor,
                kRowMajor,
                1000,
                false,
                6000},
        Setting{"few_pages", "bf16", "", {0}, 16, 0, kPageMajor, kTiled, 9, false, 12000},
        Setting{
            "few_pages_windows", "f32", "", {0, 20}, 16, 4, kPageMajor, kRowMajor, 12, true, 12000},
        Setting{"roomy_k8v3", "k8v3", "", {0, 0}, 16, 0, kPageMajor, kTiled, 1000, false, 6000},
        Setting{"windows_odd_widths",
                "k=affine:3:8:rot,v=affine:5:8:f16",
                "",
                {0, 24},
                32,
                8,
                kLayerMajor,
                kTiled,
                1000,
                false,
                6000},
        Setting{"few_pages_codebook",
                "k=codebook:4:rot,v=codebook:1:f32:norm",
                "",
                {0},
                16,
                0,
                kPageMajor,
                kRowMajor,
                9,
                false,
                8000},
        Setting{"few_pages_mixed_layers",
                "k4v4",
                "0=bf16;2=kv2",
                {0, 20, 0, 20},
                16,
                4,
                kPageMajor,
                kTiled,
                12,
                true,
                8000}),
    [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace pagekv::testing
