// Making CPU devices, and the memory they reserve.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "core/backend.h"
#include "cpu/paged_cache.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace pagekv::testing {
namespace {

TEST(CpuDevice, EveryTargetCanBeForcedAndSaysItsName) {
  const std::vector<std::string> targets = cpu_targets();
  ASSERT_FALSE(targets.empty());
  std::vector<Device> devices;  // all alive at once
  for (const std::string& target : targets) devices.push_back(make_device(target));
  for (std::size_t index = 0; index < targets.size(); ++index) {
    EXPECT_EQ(devices[index].name(), "cpu/" + targets[index]);
  }
  EXPECT_EQ(make_device().name(), "cpu/" + targets.front()) << "the best one by default";
}

TEST(CpuDevice, RefusesWhatIsNotThere) {
  const auto unknown = make_cpu_device({.target = "AVX1024"});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code(), ErrorCode::invalid_argument);
  EXPECT_NE(unknown.error().message().find("AVX1024"), std::string::npos);
  for (const std::string& target : cpu_targets()) {
    EXPECT_NE(unknown.error().message().find(target), std::string::npos) << "names the legal ones";
  }
  for (const int threads : {0, -1, 100000}) {
    const auto device = make_cpu_device({.threads = threads});
    ASSERT_FALSE(device.has_value());
    EXPECT_EQ(device.error().code(), ErrorCode::invalid_argument);
  }
}

TEST(CpuDevice, TakesTheCallersExecutor) {
  const std::shared_ptr<Executor> executor = make_serial_executor();
  const auto device = make_cpu_device({.executor = executor, .threads = 0});
  ASSERT_TRUE(device.has_value());
  EXPECT_EQ(&device->executor(), executor.get());
}

TEST(CpuArena, ReservesWithoutMemoryAndCommitsPieces) {
  constexpr std::int64_t kReserved = std::int64_t{1} << 40;  // more than any test machine has
  const Device device = make_device();
  auto arena = device.backend().reserve_arena(kReserved);
  ASSERT_TRUE(arena.has_value());
  std::byte* base = (*arena)->base();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(base) % (std::uintptr_t{2} << 20), 0u);

  // Two odd pieces side by side, one at the very end; addresses stay.
  ASSERT_TRUE((*arena)->commit(0, 5000).has_value());
  std::memset(base, 1, 5000);
  ASSERT_TRUE((*arena)->commit(5000, 100000).has_value());
  std::memset(base + 5000, 2, 100000);
  ASSERT_TRUE((*arena)->commit(kReserved - 10, 10).has_value());
  std::memset(base + kReserved - 10, 3, 10);
  EXPECT_EQ(base[4999], std::byte{1});
  EXPECT_EQ((*arena)->base(), base);

  // Giving a piece back touches nothing outside it.
  (*arena)->decommit(5000, 90000);
  EXPECT_EQ(base[4999], std::byte{1});
  EXPECT_EQ(base[5000 + 90000], std::byte{2});
  EXPECT_EQ(base[49152], std::byte{0}) << "a system page inside the piece was dropped";
  ASSERT_TRUE((*arena)->commit(5000, 90000).has_value());
  std::memset(base + 5000, 4, 90000);
}

TEST(CpuArena, RefusesWhatTheSystemRefuses) {
  const Device device = make_device();
  constexpr std::int64_t kTooMuch = std::int64_t{1} << 60;
  const auto arena = device.backend().reserve_arena(kTooMuch);
  ASSERT_FALSE(arena.has_value());
  EXPECT_EQ(arena.error().code(), ErrorCode::out_of_memory);
  EXPECT_EQ(arena.error().number(0), kTooMuch);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(CpuArena, PoisonsFreePages) {
  const Device device = make_device();
  auto arena = device.backend().reserve_arena(1 << 20);
  ASSERT_TRUE(arena.has_value());
  ASSERT_TRUE((*arena)->commit(0, 1 << 20).has_value());
  std::byte* base = (*arena)->base();
  (*arena)->mark_free(4096, 8192);
  EXPECT_FALSE(__asan_address_is_poisoned(base + 4095));
  EXPECT_TRUE(__asan_address_is_poisoned(base + 4096));
  EXPECT_TRUE(__asan_address_is_poisoned(base + 4096 + 8191));
  EXPECT_FALSE(__asan_address_is_poisoned(base + 4096 + 8192));
  (*arena)->mark_used(4096, 4096);
  EXPECT_FALSE(__asan_address_is_poisoned(base + 8191));
  EXPECT_TRUE(__asan_address_is_poisoned(base + 8192));
  arena->reset();
  EXPECT_FALSE(__asan_address_is_poisoned(base + 8192)) << "the addresses may be reused";
}
#endif

}  // namespace
}  // namespace pagekv::testing
