#include "apus/base/dtype.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "apus/base/error.h"
#include "tests/unit/base/support/scratch_folder.h"

namespace apus {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DType, NamesRoundTripAndSizesFit) {
  for (int i = 0; i <= static_cast<int>(DType::kU64); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
    EXPECT_GE(dtype_size(dtype), i > 0 ? dtype_size(static_cast<DType>(i - 1)) : 1) << "alignment must grow";
  }
  EXPECT_EQ(dtype_name(DType::kBF16), "BF16");
  EXPECT_EQ(dtype_size(DType::kF32), 4);
  EXPECT_EQ(dtype_from_name("f32"), std::nullopt);
  EXPECT_EQ(dtype_from_name("Q4"), std::nullopt);
}

TEST(DType, KnowsFloatingPoint) {
  EXPECT_TRUE(is_floating_point(DType::kF8E4M3));
  EXPECT_TRUE(is_floating_point(DType::kBF16));
  EXPECT_FALSE(is_floating_point(DType::kBool));
  EXPECT_FALSE(is_floating_point(DType::kI64));
}

TEST(DType, ParsesTheSpellingsOfFlagsAndConfigs) {
  EXPECT_EQ(parse_dtype("torch_dtype", "bfloat16"), DType::kBF16);
  EXPECT_EQ(parse_dtype("torch_dtype", "torch.float16"), DType::kF16);
  EXPECT_EQ(parse_dtype("torch_dtype", "FP32"), DType::kF32);
  const std::string message = message_of<ConfigError>([] { parse_dtype("torch_dtype", "int4"); });
  EXPECT_NE(message.find("torch_dtype: 'int4'"), std::string::npos) << message;
  EXPECT_NE(message.find("bf16"), std::string::npos) << message;
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(bf16_from_float(1.0f), 0x3F80);
  EXPECT_EQ(bf16_from_float(std::bit_cast<float>(0x3F808000u)), 0x3F80);  // tie, down to even
  EXPECT_EQ(bf16_from_float(std::bit_cast<float>(0x3F818000u)), 0x3F82);  // tie, up to even
  EXPECT_EQ(bf16_from_float(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_EQ(bf16_from_float(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(bf16_from_float(-kInfinity), 0xFF80);
  EXPECT_TRUE(std::isnan(float_from_bf16(bf16_from_float(std::bit_cast<float>(0x7F800001u)))));
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = float_from_bf16(static_cast<uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(bf16_from_float(value), bits);
    }
  }
}

TEST(DType, F16MatchesTheCompilersHalfForAllHalvesAndTheirNeighbours) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = std::bit_cast<_Float16>(static_cast<uint16_t>(bits));
    const float value = float_from_f16(static_cast<uint16_t>(bits));
    if (value != value) continue;
    ASSERT_EQ(value, static_cast<float>(half)) << bits;
    ASSERT_EQ(f16_from_float(value), bits);
    const float next = float_from_f16(static_cast<uint16_t>(bits + 1));
    if (next != next || std::isinf(value)) continue;
    for (const float part : {0.25f, 0.5f, 0.75f}) {  // 0.5 is the tie
      const float between = std::isinf(next) ? value * 1.0002f : value + (next - value) * part;
      const auto expected = std::bit_cast<uint16_t>(static_cast<_Float16>(between));
      ASSERT_EQ(f16_from_float(between), expected) << between;
    }
  }
}

TEST(DType, F16OverflowsToInfinityAndKeepsNan) {
  EXPECT_EQ(f16_from_float(65519.0f), 0x7BFF);
  EXPECT_EQ(f16_from_float(65520.0f), 0x7C00);
  EXPECT_EQ(f16_from_float(-1e30f), 0xFC00);
  EXPECT_TRUE(std::isnan(float_from_f16(f16_from_float(std::nanf("")))));
  EXPECT_TRUE(std::isnan(float_from_f16(0x7C01)));
}

template <typename T, std::size_t N>
double element(DType dtype, const std::array<T, N>& values, int64_t index) {
  return read_element(dtype, std::as_bytes(std::span(values)), index);
}

TEST(DType, ReadsElementsOfEveryKind) {
  EXPECT_EQ(element(DType::kI8, std::array<int8_t, 2>{1, -7}, 1), -7);
  EXPECT_EQ(element(DType::kU8, std::array<uint8_t, 1>{250}, 0), 250);
  EXPECT_EQ(element(DType::kBool, std::array<uint8_t, 1>{1}, 0), 1);
  EXPECT_EQ(element(DType::kI16, std::array<int16_t, 1>{-300}, 0), -300);
  EXPECT_EQ(element(DType::kU16, std::array<uint16_t, 1>{60000}, 0), 60000);
  EXPECT_EQ(element(DType::kI32, std::array<int32_t, 1>{-70000}, 0), -70000);
  EXPECT_EQ(element(DType::kU32, std::array<uint32_t, 1>{4000000000u}, 0), 4e9);
  EXPECT_EQ(element(DType::kI64, std::array<int64_t, 1>{-5}, 0), -5);
  EXPECT_EQ(element(DType::kU64, std::array<uint64_t, 1>{5}, 0), 5);
  EXPECT_EQ(element(DType::kF32, std::array<float, 1>{0.1f}, 0), 0.1f);
  EXPECT_EQ(element(DType::kF64, std::array<double, 1>{0.1}, 0), 0.1);
  EXPECT_EQ(element(DType::kBF16, std::array<uint16_t, 1>{0x3FC0}, 0), 1.5);
  EXPECT_EQ(element(DType::kF16, std::array<uint16_t, 1>{0xC000}, 0), -2);
}

TEST(DType, ReadsEightBitFloats) {
  const std::array<uint8_t, 5> bits = {0x38, 0x7E, 0x01, 0xB8, 0x7F};
  EXPECT_EQ(element(DType::kF8E4M3, bits, 0), 1.0);
  EXPECT_EQ(element(DType::kF8E4M3, bits, 1), 448.0);
  EXPECT_EQ(element(DType::kF8E4M3, bits, 2), 0x1p-9);
  EXPECT_EQ(element(DType::kF8E4M3, bits, 3), -1.0);
  EXPECT_TRUE(std::isnan(element(DType::kF8E4M3, bits, 4)));
  const std::array<uint8_t, 5> wide = {0x3C, 0x7B, 0x01, 0x7C, 0x7D};
  EXPECT_EQ(element(DType::kF8E5M2, wide, 0), 1.0);
  EXPECT_EQ(element(DType::kF8E5M2, wide, 1), 57344.0);
  EXPECT_EQ(element(DType::kF8E5M2, wide, 2), 0x1p-16);
  EXPECT_TRUE(std::isinf(element(DType::kF8E5M2, wide, 3)));
  EXPECT_TRUE(std::isnan(element(DType::kF8E5M2, wide, 4)));
  EXPECT_EQ(element(DType::kF8E8M0, std::array<uint8_t, 1>{130}, 0), 8.0);
}

TEST(DType, RefusesAnElementOutside) {
  const std::array<float, 2> values = {1, 2};
  EXPECT_THROW(element(DType::kF32, values, 2), ShapeError);
  EXPECT_THROW(element(DType::kF32, values, -1), ShapeError);
}

}  // namespace
}  // namespace apus
