// The pool's books: runs, capacity, both page orders, and that check() sees contradictions.
#include "core/pool.h"

#include <gtest/gtest.h>

#include <set>

#include "test_backend.h"
#include "token_cache.h"

namespace pagekv::testing {
namespace {

using internal::kNoPage;
using internal::PageId;
using internal::PagePool;

PagePool make_pool(TestDevice& test, PageOrder order, std::int64_t capacity, std::int64_t extent) {
  LayoutSpec spec = small_layout({0, 0, 0}, *Format::parse("bf16"));
  spec.order = order;
  auto layout = *CacheLayout::make(spec);
  auto arena = *test.backend->reserve_arena(capacity * layout.group(0).page_bytes);
  return PagePool(layout, 0, *test.backend, std::move(arena), capacity, extent);
}

class PoolTest : public ::testing::TestWithParam<PageOrder> {
 protected:
  TestDevice test_;
};

TEST_P(PoolTest, GrowsByRunsUpToItsCapacityAndTheLimit) {
  PagePool pool = make_pool(test_, GetParam(), 10, 4);
  EXPECT_EQ(pool.acquire(), kNoPage);
  EXPECT_EQ(*pool.commit_pages(100), 4);
  EXPECT_EQ(*pool.commit_pages(3), 3);
  EXPECT_EQ(*pool.commit_pages(0), 0);
  EXPECT_EQ(*pool.commit_pages(100), 3);
  EXPECT_EQ(*pool.commit_pages(100), 0);
  EXPECT_EQ(pool.committed_pages(), 10);
  std::set<PageId> pages;
  for (int page = 0; page < 10; ++page) pages.insert(pool.acquire());
  EXPECT_EQ(pages.size(), 10u);
  EXPECT_FALSE(pages.contains(kNoPage));
  EXPECT_EQ(pool.acquire(), kNoPage);
}

TEST_P(PoolTest, AddressesNeverMoveAndLayersDoNotOverlap) {
  PagePool pool = make_pool(test_, GetParam(), 10, 2);
  const auto before = pool.address(2);
  for (int run = 0; run < 5; ++run) ASSERT_TRUE(pool.commit_pages(100));
  EXPECT_EQ(pool.address(2).base, before.base);
  std::set<std::byte*> starts;
  for (int layer = 0; layer < 3; ++layer) {
    const auto address = pool.address(layer);
    for (int page = 0; page < 10; ++page) {
      starts.insert(address.base + page * address.page_stride);
    }
  }
  ASSERT_EQ(starts.size(), 30u);
  const std::int64_t layer_bytes = pool.page_bytes() / 3;
  for (auto at = starts.begin(); std::next(at) != starts.end(); ++at) {
    EXPECT_EQ(*std::next(at) - *at, layer_bytes);
  }
}

TEST_P(PoolTest, FreePagesAreDecommittedOneByOneAndComeBack) {
  PagePool pool = make_pool(test_, GetParam(), 12, 4);
  for (int run = 0; run < 3; ++run) ASSERT_TRUE(pool.commit_pages(100));
  std::vector<PageId> pages;
  for (int page = 0; page < 12; ++page) pages.push_back(pool.acquire());
  EXPECT_EQ(pool.decommit_pages(1), 0) << "nothing is free";
  for (const PageId page : pages) {
    if (index(page) != 5) pool.release(page);
  }
  std::vector<std::uint32_t> held(12);
  held[5] = 1;
  EXPECT_EQ(pool.decommit_pages(1), pool.page_bytes());
  EXPECT_TRUE(pool.check(held));
  EXPECT_EQ(pool.decommit_pages(std::int64_t{1} << 40), 10 * pool.page_bytes());
  EXPECT_EQ(pool.committed_pages(), 1);
  EXPECT_EQ(pool.free_pages(), 0);
  EXPECT_TRUE(pool.check(held));
  EXPECT_EQ(*pool.commit_pages(3), 3);
  EXPECT_EQ(*pool.commit_pages(100), 4);
  EXPECT_EQ(*pool.commit_pages(100), 4);
  EXPECT_EQ(*pool.commit_pages(100), 0);
  EXPECT_TRUE(pool.check(held));
}

TEST_P(PoolTest, CheckReportsHoldersThatDoNotAddUp) {
  PagePool pool = make_pool(test_, GetParam(), 8, 8);
  ASSERT_TRUE(pool.commit_pages(8));
  const PageId page = pool.acquire();
  pool.add_reference(page);
  std::vector<std::uint32_t> held(8);
  held[static_cast<std::size_t>(index(page))] = 1;
  EXPECT_EQ(pool.check(held).error().message(),
            "group 0, page 0: 2 references on the books, 1 holders found");
  held[static_cast<std::size_t>(index(page))] = 2;
  EXPECT_TRUE(pool.check(held));
  held[3] = 1;  // a page that is free
  EXPECT_EQ(pool.check(held).error().code(), ErrorCode::books_broken);
}

INSTANTIATE_TEST_SUITE_P(Orders, PoolTest,
                         ::testing::Values(PageOrder::page_major, PageOrder::layer_major));

}  // namespace
}  // namespace pagekv::testing
