// The GGUF reader: what it reads, and what it says of files that are wrong.
#include "engine/gguf.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <limits>
#include <memory>
#include <random>

#include "engine/mapped_file.h"
#include "tests/engine/gguf_walk.h"
#include "tests/engine/gguf_writer.h"

namespace pagekv::testing {
namespace {

using engine::GgufFile;
using engine::GgufType;
using engine::MappedFile;

constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ8_0 = 8;
constexpr std::uint32_t kQ4K = 12;

GgufWriter all_types() {
  GgufWriter writer;
  writer.number("u8", GgufType::u8, std::uint8_t{200});
  writer.number("i8", GgufType::i8, std::int8_t{-100});
  writer.number("u16", GgufType::u16, std::uint16_t{60000});
  writer.number("i16", GgufType::i16, std::int16_t{-30000});
  writer.number("u32", GgufType::u32, std::uint32_t{4000000000});
  writer.number("i32", GgufType::i32, std::int32_t{-2000000000});
  writer.number("u64", GgufType::u64, std::uint64_t{1} << 62);
  writer.number("i64", GgufType::i64, std::int64_t{-1} << 62);
  writer.number("f32", GgufType::f32, 1.5f);
  writer.number("f64", GgufType::f64, -0.1);
  writer.boolean("yes", true);
  writer.boolean("no", false);
  writer.string("text", "grüße");
  writer.strings("texts", {"", "a", "bc"});
  writer.numbers<std::int32_t>("i32s", GgufType::i32, {1, -2, 3});
  writer.numbers<std::uint64_t>("u64s", GgufType::u64, {7});
  writer.numbers<float>("f32s", GgufType::f32, {0.5f, -2.0f});
  writer.numbers<std::uint8_t>("bools", GgufType::boolean, {0, 1});
  writer.numbers<std::uint16_t>("none", GgufType::u16, {});
  writer.tensor("w", {4, 2}, kF32, std::string(32, '\0'));
  writer.tensor("q", {32}, kQ8_0, std::string(34, '\1'));
  writer.tensor("k", {256}, kQ4K, std::string(144, '\2'));
  return writer;
}

// Parses a copy that ends exactly where the heap block ends, so that ASan sees any read past it.
Result<GgufFile> parse_copy(std::string_view bytes, std::unique_ptr<std::byte[]>& storage) {
  storage = std::make_unique<std::byte[]>(bytes.size());
  std::memcpy(storage.get(), bytes.data(), bytes.size());
  return GgufFile::parse({storage.get(), bytes.size()});
}

std::string error_of(const std::string& bytes) {
  std::unique_ptr<std::byte[]> storage;
  const auto file = parse_copy(bytes, storage);
  return file ? "no error" : file.error().message();
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Gguf, ReadsEveryValueType) {
  for (const std::uint32_t version : {2u, 3u}) {
    GgufWriter writer = all_types();
    writer.version = version;
    const std::string bytes = writer.finish();
    const auto file = GgufFile::parse(as_bytes(bytes));
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(*file->integer("u8"), 200);
    EXPECT_EQ(*file->integer("i8"), -100);
    EXPECT_EQ(*file->integer("u16"), 60000);
    EXPECT_EQ(*file->integer("i16"), -30000);
    EXPECT_EQ(*file->integer("u32"), 4000000000);
    EXPECT_EQ(*file->integer("i32"), -2000000000);
    EXPECT_EQ(*file->integer("u64"), std::int64_t{1} << 62);
    EXPECT_EQ(*file->integer("i64"), std::int64_t{-1} << 62);
    EXPECT_EQ(*file->number("f32"), 1.5);
    EXPECT_EQ(*file->number("f64"), -0.1);
    EXPECT_EQ(*file->number("u8"), 200.0);
    EXPECT_EQ(*file->number("i8"), -100.0);
    EXPECT_TRUE(*file->boolean("yes"));
    EXPECT_FALSE(*file->boolean("no"));
    EXPECT_EQ(*file->string("text"), "grüße");
    const auto texts = file->strings("texts");
    ASSERT_TRUE(texts);
    EXPECT_EQ(std::vector<std::string_view>(texts->begin(), texts->end()),
              (std::vector<std::string_view>{"", "a", "bc"}));
    EXPECT_EQ(*file->integers("i32s"), (std::vector<std::int64_t>{1, -2, 3}));
    EXPECT_EQ(*file->integers("u64s"), (std::vector<std::int64_t>{7}));
    EXPECT_EQ(*file->numbers("f32s"), (std::vector<double>{0.5, -2.0}));
    EXPECT_EQ(*file->numbers("i32s"), (std::vector<double>{1, -2, 3}));
    EXPECT_TRUE(file->integers("none")->empty());
    EXPECT_EQ(file->metadata().size(), 19u);
    EXPECT_EQ(file->metadata().front().key, "u8");
  }
}

TEST(Gguf, PlacesTensors) {
  GgufWriter writer;
  writer.number("general.alignment", GgufType::u32, std::uint32_t{64});
  writer.alignment = 64;
  writer.tensor("one", {3}, kF32, raw(1.0f) + raw(2.0f) + raw(3.0f));
  writer.tensor("two", {2, 1, 3}, kF32, std::string(24, '\0'));
  const std::string bytes = writer.finish();
  const auto file = GgufFile::parse(as_bytes(bytes));
  ASSERT_TRUE(file) << file.error().message();
  EXPECT_EQ(file->alignment(), 64);
  ASSERT_EQ(file->tensors().size(), 2u);
  const engine::TensorView* one = file->find_tensor("one");
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->columns(), 3);
  EXPECT_EQ(one->rows(), 1);
  EXPECT_EQ(one->data.size(), 12u);
  EXPECT_EQ((reinterpret_cast<const char*>(one->data.data()) - bytes.data()) % 64, 0);
  const auto two = file->readable_tensor("two");
  ASSERT_TRUE(two);
  EXPECT_EQ(two->columns(), 2);
  EXPECT_EQ(two->rows(), 3);
  EXPECT_EQ(two->data.data(), one->data.data() + 64);
  EXPECT_EQ(file->find_tensor("three"), nullptr);
}

TEST(Gguf, TypedGettersNameTheKeyAndItsType) {
  const std::string bytes = all_types().finish();
  const auto file = GgufFile::parse(as_bytes(bytes));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->integer("absent").error().message(), "metadata key 'absent' is missing");
  EXPECT_EQ(file->integer("text").error().message(),
            "metadata key 'text' is of type string, expected an integer");
  EXPECT_EQ(file->integer("f32").error().message(),
            "metadata key 'f32' is of type f32, expected an integer");
  EXPECT_EQ(file->number("texts").error().message(),
            "metadata key 'texts' is of type array of string, expected a number");
  EXPECT_EQ(file->boolean("u8").error().message(),
            "metadata key 'u8' is of type u8, expected bool");
  EXPECT_EQ(file->string("yes").error().message(),
            "metadata key 'yes' is of type bool, expected string");
  EXPECT_EQ(file->strings("i32s").error().message(),
            "metadata key 'i32s' is of type array of i32, expected array of string");
  EXPECT_EQ(file->integers("f32s").error().message(),
            "metadata key 'f32s' is of type array of f32, expected array of integers");
  EXPECT_EQ(file->integers("u8").error().message(),
            "metadata key 'u8' is of type u8, expected array of integers");
  EXPECT_EQ(file->numbers("bools").error().message(),
            "metadata key 'bools' is of type array of bool, expected array of numbers");
  EXPECT_EQ(*file->integer_or("absent", 7), 7);
  EXPECT_EQ(*file->number_or("absent", 0.5), 0.5);
  EXPECT_TRUE(*file->boolean_or("absent", true));
  EXPECT_EQ(*file->string_or("absent", "x"), "x");
  EXPECT_FALSE(file->integer_or("text", 7));
}

TEST(Gguf, NumbersThatDoNotFitAreErrors) {
  GgufWriter writer;
  writer.number("big", GgufType::u64, ~std::uint64_t{0});
  writer.numbers<std::uint64_t>("bigs", GgufType::u64, {1, std::uint64_t{1} << 63});
  const std::string bytes = writer.finish();
  const auto file = GgufFile::parse(as_bytes(bytes));
  ASSERT_TRUE(file);
  EXPECT_EQ(file->integer("big").error().message(),
            "metadata key 'big' is 18446744073709551615, which is out of range");
  EXPECT_EQ(file->integers("bigs").error().message(),
            "metadata key 'bigs' holds 9223372036854775808, which is out of range");
}

TEST(Gguf, NamesUnreadableTensorTypes) {
  const std::string bytes = all_types().finish();
  const auto file = GgufFile::parse(as_bytes(bytes));
  ASSERT_TRUE(file);
  const auto tensor = file->readable_tensor("k");
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code(), ErrorCode::unsupported);
  EXPECT_EQ(tensor.error().message(),
            "tensor 'k' has type Q4_K; readable are F32, F16, BF16, Q8_0, Q4_0, Q4_1");
  EXPECT_EQ(file->readable_tensor("gone").error().message(), "tensor 'gone' is missing");
}

TEST(Gguf, RefusesOtherFiles) {
  EXPECT_EQ(error_of("PK\3\4 and so on"),
            "no GGUF file: it begins with 'PK\\x03\\x04', not with 'GGUF'");
  for (const std::uint32_t version : {0u, 1u, 4u}) {
    GgufWriter writer;
    writer.version = version;
    EXPECT_EQ(error_of(writer.finish()),
              "GGUF version " + std::to_string(version) + "; versions 2 and 3 are read");
  }
  GgufWriter writer;
  writer.version = 0x03000000;
  EXPECT_HAS(error_of(writer.finish()), "big-endian");
  EXPECT_EQ(error_of(""),
            "truncated at byte 0: the magic of the file header needs 4 bytes, 0 left");
}

TEST(Gguf, RefusesCountsTheFileHasNoRoomFor) {
  GgufWriter writer = all_types();
  writer.extra_metadata_count = std::uint64_t{1} << 60;
  EXPECT_HAS(error_of(writer.finish()),
             "the number of metadata keys is 1152921504606846995 at byte 16");
  writer.extra_metadata_count = 0;
  writer.extra_tensor_count = 1000000;
  EXPECT_HAS(error_of(writer.finish()), "the number of tensors is 1000003 at byte 8");

  GgufWriter lengths;
  lengths.entry("long", 8, raw(std::numeric_limits<std::uint64_t>::max()) + "abc");
  EXPECT_HAS(error_of(lengths.finish()),
             "the value of metadata key 'long' needs 18446744073709551615 bytes, 3 left");
  GgufWriter array;
  array.entry("many", 9, raw(std::uint32_t{4}) + raw(std::uint64_t{1} << 62) + "abcd");
  EXPECT_HAS(error_of(array.finish()),
             "the array length of metadata key 'many' is 4611686018427387904");
}

TEST(Gguf, RefusesBadMetadata) {
  GgufWriter twice;
  twice.boolean("k", true);
  twice.boolean("k", false);
  EXPECT_HAS(error_of(twice.finish()), "metadata key 'k' appears a second time at byte 38");
  GgufWriter type;
  type.entry("k", 13, "x");
  EXPECT_EQ(error_of(type.finish()),
            "metadata key 'k' has value type 13 at byte 33; types are 0 to 12");
  GgufWriter truth;
  truth.number("k", GgufType::boolean, std::uint8_t{2});
  EXPECT_EQ(error_of(truth.finish()), "metadata key 'k': a bool is 0 or 1, byte 37 is 2");
  GgufWriter nested;
  nested.entry("k", 9, raw(std::uint32_t{9}) + raw(std::uint64_t{1}) + raw(std::uint64_t{0}));
  EXPECT_EQ(error_of(nested.finish()), "metadata key 'k' is an array of arrays at byte 37");
  GgufWriter empty;
  empty.boolean("", true);
  EXPECT_EQ(error_of(empty.finish()), "metadata key 0 at byte 24 is empty");
  for (const std::uint32_t alignment : {0u, 1u, 24u}) {
    GgufWriter writer;
    writer.number("general.alignment", GgufType::u32, alignment);
    EXPECT_EQ(error_of(writer.finish()), "general.alignment is " + std::to_string(alignment) +
                                             "; powers of two from 8 to 2^31 are legal");
  }
  GgufWriter text;
  text.string("general.alignment", "32");
  EXPECT_HAS(error_of(text.finish()), "'general.alignment' is of type string, expected an integer");
}

TEST(Gguf, RefusesBadTensors) {
  const auto error_with = [](auto add) {
    GgufWriter writer;
    add(writer);
    writer.tensor("last", {8}, kF32, std::string(32, '\0'));
    return error_of(writer.finish());
  };
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("last", {8}, kF32, 0); }),
             "tensor 'last' appears a second time");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("", {8}, kF32, 0); }), "has no name");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {}, kF32, 0); }),
             "tensor 't' has 0 dimensions at byte 33; 1 to 4 are legal");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {1, 1, 1, 1, 1}, kF32, 0); }),
             "has 5 dimensions");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {8, 0}, kF32, 0); }),
             "dimension 1 of tensor 't' is 0 at byte 45");
  EXPECT_HAS(error_with([](GgufWriter& w) {
               w.tensor_at("t", {std::uint64_t{1} << 40, std::uint64_t{1} << 40}, kF32, 0);
             }),
             "impossibly large shape");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {8}, 77, 0); }),
             "tensor 't' has the unknown tensor type 77 at byte 45");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {33}, kQ8_0, 0); }),
             "tensor 't' of type Q8_0 has rows of 33 elements, no multiple of 32");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {1u << 30}, kF32, 0); }),
             "more than the whole file");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {8}, kF32, 4); }),
             "the data offset of tensor 't' is 4, which is no multiple of the alignment 32");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {8}, kF32, 32); }),
             "tensor 't' needs 32 bytes at data offset 32, but the file's data has 32 bytes");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {8}, kF32, ~std::uint64_t{31}); }),
             "needs 32 bytes at data offset 18446744073709551584");
  EXPECT_HAS(error_with([](GgufWriter& w) { w.tensor_at("t", {4}, kF32, 0); }),
             "tensors 't' and 'last' overlap at data offset 0");
}

TEST(Gguf, NamesFromOutsideCannotSpoilTheTerminal) {
  GgufWriter writer;
  writer.entry(std::string("\x1b[2J\n") + std::string(200, 'x'), 99, "");
  const std::string error = error_of(writer.finish());
  EXPECT_HAS(error, "'\\x1b[2J\\x0axxx");
  EXPECT_LT(error.size(), 200u);
}

TEST(Gguf, EveryPrefixIsRefused) {
  const std::string bytes = all_types().finish();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    std::unique_ptr<std::byte[]> storage;
    const auto file = parse_copy(std::string_view(bytes).substr(0, length), storage);
    ASSERT_FALSE(file) << length;
    EXPECT_EQ(file.error().code(), ErrorCode::corrupt_file) << file.error().message();
  }
  EXPECT_EQ(error_of(bytes), "no error");
}

TEST(Gguf, BitFlipsAreRefusedOrHarmless) {
  const std::string good = all_types().finish();
  const std::uint64_t seed = 20240501;
  std::mt19937_64 random(seed);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  int refused = 0;
  std::uint64_t sum = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    const int flips = 1 + static_cast<int>(random() % 4);
    for (int i = 0; i < flips; ++i) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 << (random() % 8));
    }
    std::unique_ptr<std::byte[]> storage;
    const auto file = parse_copy(bytes, storage);
    if (file) {
      sum += walk(*file);
    } else {
      ++refused;
      EXPECT_FALSE(file.error().message().empty());
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GT(sum, 0u);
}

TEST(MappedFile, SaysWhichFileAndWhy) {
  const auto absent = MappedFile::open("/nonexistent/model.gguf");
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().code(), ErrorCode::io_error);
  EXPECT_EQ(absent.error().number(0), ENOENT);
  EXPECT_HAS(absent.error().message(), "/nonexistent/model.gguf");
  EXPECT_HAS(absent.error().message(), "No such file");
  const auto directory = MappedFile::open(::testing::TempDir());
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().number(0), EISDIR);
}

TEST(MappedFile, ReadsMovesAndReplaces) {
  const auto write = [](const std::string& file_name, std::string_view content) {
    const std::string path = ::testing::TempDir() + file_name;
    std::FILE* file = std::fopen(path.c_str(), "wb");
    EXPECT_NE(file, nullptr);
    EXPECT_EQ(std::fwrite(content.data(), 1, content.size(), file), content.size());
    std::fclose(file);
    return path;
  };
  auto empty = MappedFile::open(write("pagekv_empty", ""));
  ASSERT_TRUE(empty);
  EXPECT_TRUE(empty->bytes().empty());
  auto full = MappedFile::open(write("pagekv_full", "pages"));
  ASSERT_TRUE(full);
  const std::byte* address = full->bytes().data();
  MappedFile moved = std::move(*full);
  *empty = std::move(moved);
  ASSERT_EQ(empty->bytes().size(), 5u);
  EXPECT_EQ(empty->bytes().data(), address);
  EXPECT_EQ(std::memcmp(address, "pages", 5), 0);
}

}  // namespace
}  // namespace pagekv::testing
