// Every conversion of every target gives the bytes of the scalar conversions in dtype.h.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/targets.h"
#include "support/random_data.h"

namespace pagekv::testing {
namespace {

using internal::dtype_index;
using internal::kernel_tables;
using internal::KernelTable;

constexpr DType kTypes[] = {DType::f32, DType::f16, DType::bf16};

// All patterns of a 16-bit type; of f32 those around every rounding case, and random ones.
std::vector<std::byte> patterns(DType type, std::uint64_t seed) {
  std::vector<std::byte> bytes;
  const auto push = [&bytes](auto pattern) {
    bytes.resize(bytes.size() + sizeof(pattern));
    std::memcpy(bytes.data() + bytes.size() - sizeof(pattern), &pattern, sizeof(pattern));
  };
  if (type != DType::f32) {
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) push(static_cast<std::uint16_t>(bits));
    return bytes;
  }
  const std::vector<std::uint32_t> tails = {0,      1,      0xfff,  0x1000, 0x1001, 0x1fff,
                                            0x2000, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff};
  for (std::uint32_t high = 0; high < 0x10000; high += 7) {
    for (const std::uint32_t tail : tails) push(high << 16 | tail);
  }
  Random random(seed);
  for (int index = 0; index < 100000; ++index) push(static_cast<std::uint32_t>(random()));
  // The edges of f16's range, with their neighbours.
  for (const float edge : {65504.0f, 65519.996f, 65520.0f, 0x1p-14f, 0x1p-24f, 0x1p-25f}) {
    for (int step = -2; step <= 2; ++step) {
      const std::uint32_t bits =
          std::bit_cast<std::uint32_t>(edge) + static_cast<std::uint32_t>(step);
      push(bits);
      push(bits | 0x80000000u);
    }
  }
  while (bytes.size() % 32 != 0) push(std::uint32_t{0});
  return bytes;
}

// What is stored for one element; the same type is copied, NaN payload and all.
std::vector<std::byte> convert_scalar(DType from, DType to, const std::byte* element) {
  std::vector<std::byte> stored(static_cast<std::size_t>(size_bytes(to)));
  if (from == to) {
    std::memcpy(stored.data(), element, stored.size());
  } else {
    store_element(to, load_element(from, element), stored.data());
  }
  return stored;
}

void check_conversion(const KernelTable& table, DType from, DType to) {
  constexpr std::uint64_t kSeed = 3;
  SCOPED_TRACE(::testing::Message()
               << table.name << ": " << name(from) << " to " << name(to) << ", seed " << kSeed);
  const std::vector<std::byte> input = patterns(from, kSeed);
  const auto count = static_cast<std::int64_t>(input.size()) / size_bytes(from);
  std::vector<std::byte> got(static_cast<std::size_t>(count * size_bytes(to)));
  auto* convert = table.convert[dtype_index(from)][dtype_index(to)];
  std::int64_t wrong = 0;
  for (std::int64_t at = 0; at < count; at += 8) {
    const bool finite =
        convert(input.data() + at * size_bytes(from), got.data() + at * size_bytes(to), 8);
    bool want_finite = true;
    for (std::int64_t i = at; i < at + 8; ++i) {
      const auto want = convert_scalar(from, to, input.data() + i * size_bytes(from));
      wrong += std::memcmp(got.data() + i * size_bytes(to), want.data(), want.size()) != 0;
      want_finite &= std::isfinite(load_element(to, want.data()));
    }
    wrong += finite != want_finite;
  }
  EXPECT_EQ(wrong, 0);
}

TEST(Convert, EveryTargetStoresTheScalarBytes) {
  for (const KernelTable& table : kernel_tables()) {
    for (const DType from : kTypes) {
      for (const DType to : kTypes) check_conversion(table, from, to);
    }
  }
}

// NaN is the same NaN or another.
TEST(Convert, EveryTargetWidensEveryPattern) {
  constexpr std::uint64_t kSeed = 4;
  for (const KernelTable& table : kernel_tables()) {
    for (const DType from : kTypes) {
      SCOPED_TRACE(::testing::Message() << table.name << ": " << name(from) << ", seed " << kSeed);
      const std::vector<std::byte> input = patterns(from, kSeed);
      const std::size_t count = input.size() / static_cast<std::size_t>(size_bytes(from)) / 24 * 24;
      std::vector<float> got(count + 8, 1.5f);
      for (std::size_t at = 0; at < count; at += 24) {  // whole vectors and what is left
        table.to_float[dtype_index(from)](
            input.data() + at * static_cast<std::size_t>(size_bytes(from)), got.data() + at, 24);
      }
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < count; ++i) {
        const float want =
            load_element(from, input.data() + i * static_cast<std::size_t>(size_bytes(from)));
        wrong += std::isnan(want) ? !std::isnan(got[i])
                                  : std::memcmp(&got[i], &want, sizeof(float)) != 0;
      }
      EXPECT_EQ(wrong, 0);
      EXPECT_EQ(got[count], 1.5f);
    }
  }
}

TEST(Convert, WritesExactlyCountElements) {
  for (const KernelTable& table : kernel_tables()) {
    for (const DType to : kTypes) {
      const std::vector<float> input(24, 1.5f);
      std::vector<std::byte> output(32 * sizeof(float), std::byte{0xab});
      table.convert[dtype_index(DType::f32)][dtype_index(to)](input.data(), output.data(), 24);
      for (std::size_t at = static_cast<std::size_t>(24 * size_bytes(to)); at < output.size();
           ++at) {
        ASSERT_EQ(output[at], std::byte{0xab}) << table.name;
      }
    }
  }
}

}  // namespace
}  // namespace pagekv::testing
