// Snapshots that an earlier pagekv wrote, in tests/io/golden: they load, hold the rows they held
// then, and what is saved today has the same bytes. A change that breaks this needs another version
// of the format, or other names of its constants. With PAGEKV_MAKE_GOLDEN in the environment the
// files are made anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/prefix/digest.h"
#include "core/test_backend.h"
#include "core/token_cache.h"
#include "io/settings.h"
#include "io/snapshot_header.h"
#include "pagekv/snapshot.h"
#include "support/files.h"

namespace pagekv::testing {
namespace {

const Tokens kTokens = count_up(11, 40);
constexpr std::uint32_t kNotComputed = 77;  // named by the file, without rows
const NamespaceSpec kIdentity{.model = "golden", .adapter = "adapter", .salt = "salt"};

class Golden : public ::testing::TestWithParam<Setting> {
 protected:
  void SetUp() override {
    if (std::getenv("PAGEKV_MAKE_GOLDEN") != nullptr) save_today(golden_path());
  }

  static LayoutSpec layout() { return testing::layout(GetParam(), 16, 0); }

  static std::string golden_path() {
    return std::string(PAGEKV_GOLDEN_FOLDER) + "/" + GetParam().name + ".safetensors";
  }

  void save_today(const std::string& path) {
    Sequence sequence = *cache_.store().create_sequence();
    ASSERT_TRUE(cache_.append(sequence, kTokens));
    const auto saved = save(cache_.store(), sequence.ref(), ids(join(kTokens, {kNotComputed})),
                            path, {.identity = kIdentity, .sync = false});
    ASSERT_TRUE(saved) << saved.error().message();
  }

  TestDevice test_;
  TokenCache cache_{test_.device, layout(), {.cap_bytes = 1 << 20}};
  TemporaryFolder folder_;
};

TEST_P(Golden, LoadsAsItWas) {
  EXPECT_TRUE(inspect(golden_path(), true));
  const auto loaded =
      load(cache_.store(), golden_path(), {.identity = kIdentity, .any_numerics = true});
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->tokens, ids(join(kTokens, {kNotComputed})));
  EXPECT_TRUE(cache_.holds(loaded->sequence, kTokens));
}

// But for the name of the device and the version that computed it.
TEST_P(Golden, IsWrittenTheSameToday) {
  const auto file = internal::InputFile::open(golden_path());
  ASSERT_TRUE(file) << file.error().message();
  auto header = internal::read_header(*file);
  ASSERT_TRUE(header) << header.error().message();
  std::string expected = read_file(golden_path());
  EXPECT_EQ(internal::write_header(*header),
            expected.substr(0, static_cast<std::size_t>(header->header_bytes)));
  header->numerics = internal::numerics_id(cache_.store().device().name());
  const std::string today = internal::write_header(*header);
  ASSERT_EQ(today.size(), static_cast<std::size_t>(header->header_bytes));
  expected.replace(0, today.size(), today);
  save_today(folder_.path("today"));
  EXPECT_TRUE(read_file(folder_.path("today")) == expected);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, Golden,
    ::testing::Values(Setting{"dense", "bf16", "1=f16", {0, 0}},
                      Setting{"windows", "kv4", "1=kv3:f16", {0, 20}},
                      Setting{"turboquant", "k8v4", "", {0}},
                      Setting{"donor", "k=codebook:5:head:rot,v=codebook:2:norm", "", {0, 0}, 0}),
    [](const auto& setting) { return std::string(setting.param.name); });

}  // namespace
}  // namespace pagekv::testing
