#include "apus/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace apus {
namespace {

void expect_block(const PhiloxBlock& got, const PhiloxBlock& expected) {
  for (int i = 0; i < 4; ++i) EXPECT_EQ(got.w[i], expected.w[i]) << "word " << i;
}

// kat_vectors of Random123 1.14, philox4x32 10 and 7.
TEST(Philox, MatchesTheKnownAnswersOfRandom123) {
  expect_block(philox4x32({{0, 0, 0, 0}}, 0), {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  expect_block(philox4x32({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffffffffffff),
               {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
  expect_block(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
               {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}});
  expect_block(philox4x32<7>({{0, 0, 0, 0}}, 0), {{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48}});
  expect_block(philox4x32<7>({{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}}, 0xffffffffffffffff),
               {{0x5207ddc2, 0x45165e59, 0x4d8ee751, 0x8c52f662}});
  expect_block(philox4x32<7>({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0x299f31d0a4093822),
               {{0x4dfccaba, 0x190a87f0, 0xc47362ba, 0xb6b5242a}});
}

TEST(Philox, KeysDependOnSeedAndPathAndStayTheSameForever) {
  EXPECT_EQ(philox_key(0, ""), 0xef46db3751d8e999u);
  EXPECT_EQ(philox_key(42, "model.layers.0.mlp"), philox_key(42, "model.layers.0.mlp"));
  EXPECT_NE(philox_key(42, "model.layers.0.mlp"), philox_key(43, "model.layers.0.mlp"));
  EXPECT_NE(philox_key(42, "model.layers.0.mlp"), philox_key(42, "model.layers.1.mlp"));
}

TEST(Philox, UnitNumbersStayBelowOne) {
  EXPECT_EQ(unit_float(0), 0.0f);
  EXPECT_LT(unit_float(0xffffffff), 1.0f);
  EXPECT_LT(unit_double(0xffffffff, 0xffffffff), 1.0);
  EXPECT_EQ(unit_double(0x80000000, 0), 0.5);
}

TEST(Philox, EverySampleCoordinateHasItsOwnCounter) {
  std::set<std::vector<uint32_t>> seen;
  for (uint32_t i = 0; i < 2; ++i) {
    for (uint32_t bits = 0; bits < 16; ++bits) {
      const SampleCoordinate at = {
          .epoch = bits & 1, .ordinal = bits >> 1 & 1, .side = bits >> 2 & 1, .position = bits >> 3 & 1};
      const PhiloxBlock counter = sample_counter(at, 4 * i);
      seen.insert({counter.w, counter.w + 4});
    }
  }
  EXPECT_EQ(seen.size(), 32u);
}

TEST(Philox, FeaturesOfABlockAreItsWords) {
  const SampleCoordinate at = {.epoch = 3, .ordinal = 17, .side = 1, .position = 99};
  const PhiloxBlock block = philox4x32(sample_counter(at, 8), 7);
  for (uint32_t lane = 0; lane < 4; ++lane) {
    EXPECT_EQ(sample_uniform(7, at, 8 + lane), unit_float(block.w[lane]));
  }
}

TEST(Philox, DropoutKeepsTheExpectedShare) {
  int kept = 0;
  for (uint32_t position = 0; position < 100; ++position) {
    for (uint32_t feature = 0; feature < 1000; ++feature) {
      kept += sample_uniform(philox_key(42, "q_proj"), {.position = position}, feature) >= 0.05f;
    }
  }
  EXPECT_NEAR(kept / 1e5, 0.95, 5 * std::sqrt(0.05 * 0.95 / 1e5));
}

TEST(Philox, UniformHasTheMomentsOfTheUniformDistribution) {
  const PhiloxSequence sequence(42, "uniform");
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double value = sequence.uniform(i);
    ASSERT_TRUE(value >= 0 && value < 1);
    sum += value;
    squares += value * value;
  }
  EXPECT_NEAR(sum / kCount, 0.5, 0.005);
  EXPECT_NEAR(squares / kCount, 1.0 / 3, 0.005);
}

TEST(Philox, NormalHasTheMomentsOfTheNormalDistribution) {
  const PhiloxSequence sequence(42, "normal");
  double sum = 0, squares = 0, fourth = 0, neighbours = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double value = sequence.normal(i);
    sum += value;
    squares += value * value;
    fourth += std::pow(value, 4);
    neighbours += value * sequence.normal(i ^ 1);
  }
  EXPECT_NEAR(sum / kCount, 0, 0.02);
  EXPECT_NEAR(squares / kCount, 1, 0.02);
  EXPECT_NEAR(fourth / kCount, 3, 0.15);
  EXPECT_NEAR(neighbours / kCount, 0, 0.02);
}

TEST(Philox, ASequenceIsAddressedByIndexBeyond32Bits) {
  const PhiloxSequence sequence(uint64_t{1});
  EXPECT_EQ(sequence.word(6), philox4x32({{1, 0, 0, 0}}, 1).w[2]);
  EXPECT_EQ(sequence.word((uint64_t{1} << 36) + 1), philox4x32({{0, 4, 0, 0}}, 1).w[1]);
}

TEST(Philox, BelowIsEvenlySpread) {
  const PhiloxSequence sequence(42, "shuffle");
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts.at(sequence.below(i, 7));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
}

}  // namespace
}  // namespace apus
