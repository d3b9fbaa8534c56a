// A TokenCache with a prefix index over it: what the tests of the index start from.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pagekv/prefix_index.h"
#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {

// What random histories of an index vary.
struct HistorySetting {
  const char* name;
  const char* format;
  std::vector<std::int64_t> windows;
  std::int64_t page_tokens;
  std::int64_t slack;
  std::int64_t cap_pages;
  int operations;  // before PAGEKV_TEST_SCALE
};

class PrefixCache {
 public:
  // `cap_pages` of every group.
  explicit PrefixCache(LayoutSpec spec, std::int64_t cap_pages = 1000,
                       PrefixIndexOptions options = {})
      : tokens_(test_.device, spec, {cap_bytes(spec, cap_pages), 2000}),
        index_(*PrefixIndex::make(tokens_.store(), std::move(options))),
        space_(*index_.open({.model = "model"})) {}

  TestBackend& backend() { return *test_.backend; }
  TokenCache& tokens() { return tokens_; }
  Store& store() { return tokens_.store(); }
  PrefixIndex& index() { return index_; }
  const PrefixNamespace& space() const { return space_; }

  Sequence compute(const Tokens& tokens) {
    Sequence sequence = *store().create_sequence();
    EXPECT_TRUE(tokens.empty() || tokens_.append(sequence, tokens));
    return sequence;
  }
  // Matches, computes what is missing, inserts: what a scheduler does with a request. Returns the
  // tokens that were found.
  std::int64_t serve(const Tokens& tokens, InsertOptions options = {}) {
    Sequence sequence = match(tokens, 0);
    const std::int64_t found = sequence.length();
    if (found < static_cast<std::int64_t>(tokens.size())) {
      const Status done = tokens_.append(sequence, {tokens.begin() + found, tokens.end()});
      EXPECT_TRUE(done) << done.error().message();
      if (!done) return found;
    }
    insert(tokens, sequence, options);
    return found;
  }
  void insert(const Tokens& tokens, const Sequence& sequence, InsertOptions options = {}) {
    const auto done = index_.insert(space_, ids(tokens), sequence, options);
    ASSERT_TRUE(done) << done.error().message();
  }
  Sequence match(const Tokens& tokens, std::int64_t leave_tokens = 1) {
    auto sequence = index_.match(space_, ids(tokens), {.leave_tokens = leave_tokens});
    EXPECT_TRUE(sequence) << sequence.error().message();
    const std::int64_t found = sequence->length();
    EXPECT_TRUE(tokens_.holds(*sequence, Tokens(tokens.begin(), tokens.begin() + found)));
    return std::move(*sequence);
  }
  std::int64_t found(const Tokens& tokens) {
    return *index_.peek(space_, ids(tokens), {.leave_tokens = 0});
  }
  std::int64_t pages_held(int group = 0) {
    return store().stats().groups[static_cast<std::size_t>(group)].referenced_pages;
  }
  void expect_good_books() {
    const Status books = store().check();
    EXPECT_TRUE(books) << books.error().message();
    const Status trees = index_.check();
    EXPECT_TRUE(trees) << trees.error().message();
  }

 private:
  static std::int64_t cap_bytes(const LayoutSpec& spec, std::int64_t cap_pages) {
    const CacheLayout layout = *CacheLayout::make(spec);
    std::int64_t bytes = 0;
    for (int group = 0; group < layout.group_count(); ++group) {
      bytes += layout.group(group).page_bytes;
    }
    return cap_pages * bytes;
  }

  TestDevice test_;
  TokenCache tokens_;
  PrefixIndex index_;
  PrefixNamespace space_;
};

}  // namespace pagekv::testing
