// TokenCache: a store in which a token is a number.
//
// Every key and value element is derived from (token, layer, head, element), so that what pages
// hold can be compared with a plain list of tokens: the naive model of the store tests. Dense pages
// hold the elements themselves, others what the reference codec makes of each vector alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "pagekv/pagekv.h"

namespace pagekv::testing {

using Tokens = std::vector<std::uint32_t>;

class TokenCache {
 public:
  TokenCache(Device device, LayoutSpec spec, StoreOptions options);
  ~TokenCache();

  Store& store() { return *store_; }
  const CacheLayout& layout() const { return store_->layout(); }

  // Writes `tokens` into every storing layer of the step, packed in the order of its sequences. A
  // value of row `bad_row`, if there is one, is NaN.
  void write(Step& step, const Tokens& tokens, std::int64_t bad_row = -1);
  // One sequence, reserve to commit. The error is reserve()'s.
  Status append(Sequence& sequence, const Tokens& tokens);

  // Whether every layer's rows [first(group), length) are those of `tokens`.
  ::testing::AssertionResult holds(ViewRef view, const Tokens& tokens) const;
  ::testing::AssertionResult holds(const View& view, const Tokens& tokens) const {
    return holds(view.ref(), tokens);
  }
  ::testing::AssertionResult holds(const Sequence& sequence, const Tokens& tokens) const {
    return holds(sequence.ref(), tokens);
  }

 private:
  class StoredRows;

  // What is written, and what is held then.
  std::vector<float> written(const Tokens& tokens, int layer, bool keys) const;
  std::vector<float> held(const Tokens& tokens, int layer, bool keys) const;

  Result<Store> store_;
  std::unique_ptr<StoredRows> stored_rows_;
};

// Two KV heads of dims 16 and 8 in every layer. `windows` gives each layer's window.
LayoutSpec small_layout(const std::vector<std::int64_t>& windows, const Format& format,
                        std::int64_t page_tokens = 16, std::int64_t slack = 0);

// 0, 1, 2, ... from `first`.
Tokens count_up(std::uint32_t first, std::int64_t count);
Tokens join(Tokens first, const Tokens& second);
std::vector<TokenId> ids(const Tokens& tokens);  // as the prefix index and files take them

}  // namespace pagekv::testing
