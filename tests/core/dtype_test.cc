// Conversions of dtype.h against an independent rounding in double, over all 2^16 narrow values and
// the points halfway between them.
#include "pagekv/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pagekv {
namespace {

struct Narrow {
  float (*widen)(std::uint16_t);
  std::uint16_t (*narrow)(float);
  std::uint16_t infinity;
};

class DTypeTest : public ::testing::TestWithParam<Narrow> {};

TEST_P(DTypeTest, EveryFiniteValueSurvivesTheRoundTrip) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto narrow = static_cast<std::uint16_t>(bits);
    const float wide = GetParam().widen(narrow);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(GetParam().widen(GetParam().narrow(wide))));
    } else {
      ASSERT_EQ(GetParam().narrow(wide), narrow) << bits;
    }
  }
}

TEST_P(DTypeTest, RoundsToNearestTiesToEven) {
  for (int bits = 0; bits < GetParam().infinity; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    const auto high = static_cast<std::uint16_t>(bits + 1);
    if (high == GetParam().infinity) break;
    const double middle = (static_cast<double>(GetParam().widen(low)) + GetParam().widen(high)) / 2;
    const auto halfway = static_cast<float>(middle);  // exact: one more bit than the narrow type
    ASSERT_EQ(GetParam().narrow(halfway), bits % 2 == 0 ? low : high) << bits;
    const float up = std::nextafter(halfway, std::numeric_limits<float>::infinity());
    const float down = std::nextafter(halfway, 0.0f);
    ASSERT_EQ(GetParam().narrow(up), high) << bits;
    ASSERT_EQ(GetParam().narrow(down), low) << bits;
    ASSERT_EQ(GetParam().narrow(-up), high | 0x8000) << bits;
  }
}

TEST_P(DTypeTest, OverflowBecomesInfinity) {
  EXPECT_EQ(GetParam().narrow(std::numeric_limits<float>::max()), GetParam().infinity);
  EXPECT_EQ(GetParam().narrow(-std::numeric_limits<float>::infinity()),
            GetParam().infinity | 0x8000);
}

INSTANTIATE_TEST_SUITE_P(Types, DTypeTest,
                         ::testing::Values(Narrow{f32_from_bf16, bf16_from_f32, 0x7f80},
                                           Narrow{f32_from_f16, f16_from_f32, 0x7c00}));

}  // namespace
}  // namespace pagekv
