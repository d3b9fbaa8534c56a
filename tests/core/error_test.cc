#include "pagekv/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace pagekv {
namespace {

TEST(Error, FillsNumbersAndDetailIn) {
  const Error error(ErrorCode::pool_exhausted, "group {0} of {s}: {5} then {1}", {7, 8, 0, 0, 0, 9},
                    "model.gguf");
  EXPECT_EQ(error.message(), "group 7 of model.gguf: 9 then 8");
  EXPECT_EQ(error.number(5), 9);
  EXPECT_EQ(error.code(), ErrorCode::pool_exhausted);
}

TEST(Error, LeavesOtherBracesAlone) {
  EXPECT_EQ(Error(ErrorCode::busy, "{} {x} {6} {0", {1}).message(), "{} {x} {6} {0");
}

TEST(Error, EveryCodeHasItsOwnName) {
  std::set<std::string> names;
  for (int code = 1; code <= 13; ++code) names.insert(name(static_cast<ErrorCode>(code)));
  EXPECT_EQ(names.size(), 13u);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Error, ResultCarriesValueOrError) {
  const auto half = [](int value) -> Result<int> {
    if (value % 2 != 0) return fail(ErrorCode::invalid_argument, "{0} is odd", {value});
    return value / 2;
  };
  EXPECT_EQ(*half(8), 4);
  EXPECT_EQ(half(7).error().message(), "7 is odd");
}

}  // namespace
}  // namespace pagekv
