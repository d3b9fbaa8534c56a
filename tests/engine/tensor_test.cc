// Widening of weights: every block format against values written down by hand.
#include "engine/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "pagekv/dtype.h"
#include "tests/engine/gguf_writer.h"

namespace pagekv::testing {
namespace {

using engine::TensorType;
using engine::TensorView;

TensorView view(TensorType type, std::vector<std::int64_t> shape, const std::string& bytes) {
  return {"t", type, std::move(shape), as_bytes(bytes)};
}

std::vector<float> widen_all(const TensorView& tensor) {
  std::vector<float> out(static_cast<std::size_t>(tensor.rows() * tensor.columns()));
  const auto status = widen(tensor, 0, tensor.rows(), out);
  EXPECT_TRUE(status) << status.error().message();
  return out;
}

TEST(Tensor, DenseTypes) {
  const std::string f32 = raw(1.0f) + raw(-0.1f) + raw(INFINITY) + raw(1e-40f);
  EXPECT_EQ(widen_all(view(TensorType::f32, {2, 2}, f32)),
            (std::vector<float>{1.0f, -0.1f, INFINITY, 1e-40f}));
  const std::string f16 = raw(f16_from_f32(0.5f)) + raw(f16_from_f32(-65504.0f));
  EXPECT_EQ(widen_all(view(TensorType::f16, {2}, f16)), (std::vector<float>{0.5f, -65504.0f}));
  const std::string bf16 = raw(bf16_from_f32(3.0f)) + raw(bf16_from_f32(-1e30f));
  EXPECT_EQ(widen_all(view(TensorType::bf16, {2}, bf16))[0], 3.0f);
  EXPECT_NEAR(widen_all(view(TensorType::bf16, {2}, bf16))[1], -1e30f, 1e28f);
}

TEST(Tensor, Q8_0) {
  std::string block = raw(f16_from_f32(0.25f));
  for (int i = 0; i < 32; ++i) block += static_cast<char>(i * 8 - 128);
  const auto values = widen_all(view(TensorType::q8_0, {32}, block));
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(values[static_cast<std::size_t>(i)], 0.25f * (i * 8 - 128));
}

TEST(Tensor, Q4_0AndQ4_1PutTheHighNibblesSixteenFurther) {
  std::string nibbles;
  for (int i = 0; i < 16; ++i) nibbles += static_cast<char>(i | (15 - i) << 4);
  const std::string q4_0 = raw(f16_from_f32(-0.5f)) + nibbles;
  const std::string q4_1 = raw(f16_from_f32(0.5f)) + raw(f16_from_f32(-2.0f)) + nibbles;
  const auto a = widen_all(view(TensorType::q4_0, {32}, q4_0));
  const auto b = widen_all(view(TensorType::q4_1, {32}, q4_1));
  for (std::size_t i = 0; i < 16; ++i) {
    const auto low = static_cast<float>(i);
    const auto high = static_cast<float>(15 - i);
    EXPECT_EQ(a[i], -0.5f * (low - 8));
    EXPECT_EQ(a[i + 16], -0.5f * (high - 8));
    EXPECT_EQ(b[i], 0.5f * low - 2);
    EXPECT_EQ(b[i + 16], 0.5f * high - 2);
  }
}

TEST(Tensor, RowsAreFoundAmongManyBlocks) {
  std::string bytes;
  for (int block = 0; block < 6; ++block) {  // 3 rows of 2 blocks
    bytes += raw(f16_from_f32(1.0f)) + std::string(32, static_cast<char>(block));
  }
  const TensorView tensor = view(TensorType::q8_0, {64, 3}, bytes);
  EXPECT_EQ(tensor.row_bytes(), 68);
  std::vector<float> row(64);
  ASSERT_TRUE(widen(tensor, 1, 1, row));
  EXPECT_EQ(row[0], 2.0f);
  EXPECT_EQ(row[63], 3.0f);
  std::vector<float> rows(128);
  ASSERT_TRUE(widen(tensor, 1, 2, rows));
  EXPECT_EQ(rows[127], 5.0f);
}

TEST(Tensor, RefusesWhatDoesNotFit) {
  const std::string bytes(64, '\0');
  std::vector<float> out(4);
  EXPECT_EQ(widen(view(TensorType::f32, {4, 4}, bytes), 3, 2, out).error().message(),
            "tensor 't': 2 rows from row 3 on asked, it has 4");
  EXPECT_EQ(widen(view(TensorType::f32, {4, 4}, bytes), -1, 1, out).error().code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(widen(view(TensorType::f32, {4, 4}, bytes), 0, 2, out).error().message(),
            "tensor 't': room for 4 values, 2 rows of 4 asked");
  EXPECT_EQ(widen(view(TensorType::f32, {4, 5}, bytes), 0, 1, out).error().message(),
            "tensor 't' has 64 bytes, its shape needs 80");
  EXPECT_TRUE(widen(view(TensorType::f32, {4, 4}, bytes), 4, 0, std::span<float>()));
  const TensorView unreadable = view(static_cast<TensorType>(14), {256}, bytes);
  EXPECT_EQ(widen(unreadable, 0, 1, out).error().code(), ErrorCode::unsupported);
}

TEST(Tensor, KnowsTheBlocksOfEveryType) {
  int readable = 0;
  for (std::uint32_t id = 0; id < 64; ++id) {
    const engine::TensorTypeInfo* type = engine::find_tensor_type(id);
    if (type == nullptr) continue;
    EXPECT_EQ(static_cast<std::uint32_t>(type->type), id);
    EXPECT_GT(type->block_bytes, 0);
    readable += type->readable;
  }
  EXPECT_EQ(readable, 6);
  EXPECT_EQ(engine::find_tensor_type(4), nullptr);  // withdrawn
  EXPECT_EQ(engine::find_tensor_type(1000), nullptr);
}

}  // namespace
}  // namespace pagekv::testing
