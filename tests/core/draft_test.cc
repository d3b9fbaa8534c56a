// Drafts: k rows of every sequence written in one step, each sequence keeps its own count of them.
//
// Random histories against a second store in which every kept token was appended alone, and against
// the plain list of tokens. Forks that share the tail page, windows, layers that read a donor and
// page edges take part; drafts go up to two pages. Guards rules 9, 11, 12 and 15.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support/random_history.h"
#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

struct Setting {
  const char* name;
  const char* format;
  std::int64_t page_tokens;
  std::int64_t slack;
};

// Layers 0 and 1 store, without and with a window; 2 and 3 read their pages.
LayoutSpec draft_layout(const Setting& setting) {
  LayoutSpec spec = small_layout({0, 20, 0, 20}, *Format::parse(setting.format),
                                 setting.page_tokens, setting.slack);
  spec.layers[2].donor = 0;
  spec.layers[3].donor = 1;
  return spec;
}

constexpr std::int64_t kLongest = 400;
constexpr int kQueryHeads = 4;
constexpr std::int64_t kKeyDim = 16;
constexpr std::int64_t kValueDim = 8;

struct Pair {
  Sequence drafted;
  Sequence plain;  // the same tokens, appended one by one
  Tokens tokens;
};

class Drafts : public ::testing::TestWithParam<Setting> {
 protected:
  Drafts()
      : drafted_(test_.device, draft_layout(GetParam()), options()),
        plain_(plain_test_.device, draft_layout(GetParam()), options()) {}

  static StoreOptions options() { return {.cap_bytes = 8 << 20, .max_sequence_tokens = kLongest}; }
  std::size_t below(std::size_t bound) { return random_() % bound; }

  void create() {
    Pair pair{*drafted_.store().create_sequence(), *plain_.store().create_sequence(), {}};
    pairs_.push_back(std::move(pair));
  }
  void fork(std::size_t parent) {
    const Pair& from = pairs_[parent];
    Pair child{*from.drafted.fork(), *from.plain.fork(), from.tokens};
    pairs_.push_back(std::move(child));
  }

  // Drafts for a random subset, and what a verifier would keep of them.
  void verify_drafts() {
    std::vector<std::size_t> members;
    std::vector<Append> appends;
    Tokens rows;
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      const auto room = kLongest - static_cast<std::int64_t>(pairs_[i].tokens.size());
      const std::size_t most =
          below(4) == 0 ? 2 * static_cast<std::size_t>(GetParam().page_tokens) : 5;
      const auto count = std::min(room, 1 + static_cast<std::int64_t>(below(most)));
      if (below(4) == 0 || count < 1) continue;
      members.push_back(i);
      appends.push_back({&pairs_[i].drafted, count});
      const Tokens more = count_up(next_, count);
      next_ += static_cast<std::uint32_t>(count);
      rows.insert(rows.end(), more.begin(), more.end());
    }
    if (members.empty()) return;
    auto step = drafted_.store().reserve(appends);
    ASSERT_TRUE(step) << step.error().message();
    drafted_.write(*step, rows);
    const std::vector<float> out = attend(drafted_.store(), *step, appends, rows);
    const std::vector<std::int64_t> counts = choose_counts(appends);
    ASSERT_TRUE(step->commit(counts));
    keep(members, appends, rows, counts, out);
  }

  std::vector<std::int64_t> choose_counts(const std::vector<Append>& appends) {
    std::vector<std::int64_t> counts;
    const std::size_t kind = below(5);
    for (const Append& append : appends) {
      const auto some =
          static_cast<std::int64_t>(below(static_cast<std::size_t>(append.tokens) + 1));
      // Often just up to a page's edge.
      const std::int64_t edge =
          GetParam().page_tokens - append.sequence->length() % GetParam().page_tokens;
      counts.push_back(kind == 0   ? append.tokens
                       : kind == 1 ? std::min(edge, append.tokens)
                                   : some);
    }
    return counts;
  }

  // The kept rows one by one in the other store: the same attention for each, to the bit.
  void keep(const std::vector<std::size_t>& members, const std::vector<Append>& appends,
            const Tokens& rows, const std::vector<std::int64_t>& counts,
            const std::vector<float>& out) {
    std::size_t row = 0;
    const std::size_t layers = 4;
    const std::size_t width = kQueryHeads * kValueDim;
    for (std::size_t m = 0; m < members.size(); ++m) {
      Pair& pair = pairs_[members[m]];
      for (std::int64_t i = 0; i < counts[m]; ++i) {
        const Tokens token = {rows[row + static_cast<std::size_t>(i)]};
        const std::vector<Append> one = {{&pair.plain, 1}};
        auto step = plain_.store().reserve(one);
        ASSERT_TRUE(step) << step.error().message();
        plain_.write(*step, token);
        const std::vector<float> expected = attend(plain_.store(), *step, one, token);
        for (std::size_t layer = 0; layer < layers; ++layer) {
          const auto actual =
              out.begin() + static_cast<std::ptrdiff_t>(
                                (layer * rows.size() + row + static_cast<std::size_t>(i)) * width);
          ASSERT_TRUE(std::equal(actual, actual + static_cast<std::ptrdiff_t>(width),
                                 expected.begin() + static_cast<std::ptrdiff_t>(layer * width)))
              << "layer " << layer << ", draft " << i << " behind " << pair.tokens.size();
        }
        ASSERT_TRUE(step->commit());
        pair.tokens.push_back(token[0]);
      }
      row += static_cast<std::size_t>(appends[m].tokens);
    }
  }

  // [layer, row, query head, value dim]; a row's query depends on its token only.
  std::vector<float> attend(Store& store, const Step& step, const std::vector<Append>& appends,
                            const Tokens& rows) {
    std::vector<float> q;
    for (const std::uint32_t token : rows) {
      for (int i = 0; i < kQueryHeads * static_cast<int>(kKeyDim); ++i) {
        q.push_back(static_cast<float>((token * 31 + static_cast<std::uint32_t>(i) * 7) % 64) /
                    640);
      }
    }
    std::vector<QueryRows> views;
    for (std::size_t i = 0; i < appends.size(); ++i) {
      views.push_back({.view = step.view(static_cast<int>(i)), .rows = appends[i].tokens});
    }
    const std::size_t width = rows.size() * kQueryHeads * kValueDim;
    std::vector<float> out(4 * width);
    for (int layer = 0; layer < 4; ++layer) {
      auto plan = store.plan(
          views, {.group = store.layout().layer(layer).group, .query_heads = kQueryHeads});
      EXPECT_TRUE(plan) << plan.error().message();
      float* to = out.data() + static_cast<std::size_t>(layer) * width;
      const Status done =
          plan->run(layer, {.q = Rows::packed(q.data(), DType::f32, kQueryHeads, kKeyDim),
                            .out = MutableRows::packed(to, DType::f32, kQueryHeads, kValueDim)});
      EXPECT_TRUE(done) << done.error().message();
    }
    return out;
  }

  void check_all() {
    for (const Pair& pair : pairs_) {
      ASSERT_TRUE(drafted_.holds(pair.drafted, pair.tokens));
      // Where a rejected draft had cost a window a page, first() would be further on.
      for (int group = 0; group < drafted_.layout().group_count(); ++group) {
        ASSERT_EQ(pair.drafted.first(group), pair.plain.first(group)) << "group " << group;
      }
    }
    const Status books = drafted_.store().check();
    ASSERT_TRUE(books) << books.error().message();
    for (std::size_t group = 0; group < drafted_.store().stats().groups.size(); ++group) {
      // Rejected rows hold nothing; a draft may have made its sequence copy a shared tail page that
      // the other store still shares.
      ASSERT_LE(drafted_.store().stats().groups[group].referenced_pages,
                plain_.store().stats().groups[group].referenced_pages +
                    static_cast<std::int64_t>(pairs_.size()))
          << "group " << group;
    }
  }

  std::mt19937 random_;
  TestDevice test_;
  TestDevice plain_test_;
  TokenCache drafted_;
  TokenCache plain_;
  std::vector<Pair> pairs_;
  std::uint32_t next_ = 0;
};

TEST_P(Drafts, EachSequenceKeepsItsOwnCount) {
  const unsigned seed = test_seed();
  random_.seed(seed);
  for (int operation = 0; operation < 250 && !HasFatalFailure(); ++operation) {
    const std::size_t what = below(10);
    if (pairs_.size() < 6 && (pairs_.empty() || what == 0)) {
      create();
    } else if (pairs_.size() < 6 && what <= 2) {
      fork(below(pairs_.size()));
    } else if (what == 3) {
      pairs_.erase(pairs_.begin() + static_cast<std::ptrdiff_t>(below(pairs_.size())));
    } else {
      verify_drafts();
    }
    check_all();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Drafts,
    ::testing::Values(Setting{"bf16", "bf16", 16, 0}, Setting{"bf16_slack", "bf16", 16, 9},
                      Setting{"bf16_large_pages", "bf16", 64, 0}, Setting{"kv8", "kv8", 16, 0},
                      Setting{"kv4_slack", "kv4", 32, 5},
                      Setting{"codebook", "k=codebook:4:rot,v=codebook:3:rot", 16, 0}),
    [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace pagekv::testing
