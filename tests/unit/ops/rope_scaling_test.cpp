#include "apus/ops/rope_scaling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "apus/base/error.h"
#include "tests/support/tensor_checks.h"

namespace apus::ops {
namespace {

using namespace apus::testing;

const RopeShape kShape{.head_dim = 16, .theta = 10000.0, .max_position_embeddings = 64};

/// theta^(-2i/H) in double.
double plain(int64_t i, double theta = 10000.0) {
  return std::pow(theta, -2.0 * static_cast<double>(i) / 16.0);
}

double frequency(const RopeScaling& scaling, int64_t i, int64_t length = 0) {
  return rope_frequencies(scaling, kShape, length).inv_freq[i].item<double>();
}

void expect_near(double found, double wanted) {
  EXPECT_NEAR(found, wanted, 2e-6 * wanted);
}

TEST(RopeScaling, NamesEveryTypeOnce) {
  std::set<std::string> names;
  for (const RopeType type : rope_types()) names.emplace(rope_type_name(type));
  EXPECT_EQ(names, (std::set<std::string>{"default", "linear", "dynamic", "yarn", "llama3", "longrope"}));
}

TEST(RopeScaling, DefaultAndLinearAreTheFormulas) {
  for (int64_t i = 0; i < 8; ++i) {
    expect_near(frequency({}, i), plain(i));
    expect_near(frequency({.type = RopeType::kLinear, .factor = 4}, i), plain(i) / 4);
  }
  EXPECT_EQ(rope_frequencies({}, kShape).attention_factor, 1.0);
}

TEST(RopeScaling, DynamicRaisesThetaBeyondTheFirstLengthOnly) {
  const RopeScaling dynamic{.type = RopeType::kDynamic, .factor = 3};
  for (const int64_t length : {1, 63, 64}) {
    EXPECT_EQ(rule_length(dynamic, kShape, length), 64);
    expect_equal(rope_frequencies(dynamic, kShape, length).inv_freq, rope_frequencies({}, kShape).inv_freq);
  }
  EXPECT_EQ(rule_length(dynamic, kShape, 65), 65);
  const double theta = 10000.0 * std::pow(3.0 * 160 / 64 - 2, 16.0 / 14);
  for (int64_t i = 0; i < 8; ++i) expect_near(frequency(dynamic, i, 160), plain(i, theta));
}

TEST(RopeScaling, YarnKeepsHighFrequenciesAndDividesLowOnes) {
  const RopeScaling yarn{.type = RopeType::kYarn, .factor = 8, .original_max_position_embeddings = 256};
  expect_near(frequency(yarn, 0), plain(0));
  expect_near(frequency(yarn, 7), plain(7) / 8);
  // Between the ends 256 / (2 pi 32) and 256 / (2 pi 1) turns: indices 0.2 -> 0 and 3.2 -> 4.
  for (int64_t i = 1; i < 4; ++i) {
    const double ramp = static_cast<double>(i) / 4;
    expect_near(frequency(yarn, i), plain(i) * (1 - ramp) + plain(i) / 8 * ramp);
  }
}

TEST(RopeScaling, YarnsRampEndsAreRoundedUnlessToldNotTo) {
  RopeScaling yarn{
      .type = RopeType::kYarn, .factor = 8, .original_max_position_embeddings = 256, .truncate = false};
  const auto index = [](double turns) {
    return 16 * std::log(256 / (turns * 2 * M_PI)) / (2 * std::log(10000.0));
  };
  const double ramp = (2 - index(32)) / (index(1) - index(32));
  expect_near(frequency(yarn, 2), plain(2) * (1 - ramp) + plain(2) / 8 * ramp);
  yarn.beta_slow = yarn.beta_fast;  // an empty ramp must not divide by zero
  EXPECT_TRUE(rope_frequencies(yarn, kShape).inv_freq.isfinite().all().item<bool>());
}

TEST(RopeScaling, AttentionFactorsFollowTheirRules) {
  const auto factor = [](const RopeScaling& scaling) {
    return rope_frequencies(scaling, kShape).attention_factor;
  };
  RopeScaling yarn{.type = RopeType::kYarn, .factor = 8, .original_max_position_embeddings = 256};
  EXPECT_DOUBLE_EQ(factor(yarn), 0.1 * std::log(8) + 1);
  yarn.mscale = 1;
  EXPECT_DOUBLE_EQ(factor(yarn), 0.1 * std::log(8) + 1) << "one mscale alone says nothing";
  yarn.mscale_all_dim = 0.5;
  EXPECT_DOUBLE_EQ(factor(yarn), (0.1 * std::log(8) + 1) / (0.05 * std::log(8) + 1));
  yarn.attention_factor = 0.7;
  EXPECT_DOUBLE_EQ(factor(yarn), 0.7);
  EXPECT_DOUBLE_EQ(factor({.type = RopeType::kYarn, .factor = 0.5, .original_max_position_embeddings = 256}),
                   1.0);
  RopeScaling longrope{.type = RopeType::kLongrope,
                       .factor = 4,
                       .original_max_position_embeddings = 16,
                       .short_factor = std::vector<double>(8, 1),
                       .long_factor = std::vector<double>(8, 2)};
  EXPECT_DOUBLE_EQ(factor(longrope), std::sqrt(1 + std::log(4) / std::log(16)));
  longrope.factor = 1;
  EXPECT_DOUBLE_EQ(factor(longrope), 1.0);
  EXPECT_EQ(factor({.type = RopeType::kLinear, .factor = 9, .attention_factor = 3.0}), 1.0);
}

TEST(RopeScaling, Llama3GoesByWavelength) {
  const RopeScaling llama{.type = RopeType::kLlama3,
                          .factor = 8,
                          .original_max_position_embeddings = 256,
                          .low_freq_factor = 1,
                          .high_freq_factor = 4};
  for (int64_t i = 0; i < 8; ++i) {
    const double wavelength = 2 * M_PI / plain(i);
    double wanted = plain(i);
    if (wavelength > 256) {
      wanted = plain(i) / 8;
    } else if (wavelength >= 64) {
      const double smooth = (256 / wavelength - 1) / 3;
      wanted = (1 - smooth) * plain(i) / 8 + smooth * plain(i);
    }
    expect_near(frequency(llama, i), wanted);
  }
}

TEST(RopeScaling, LongropeTakesTheSecondListBeyondTheOriginalLength) {
  const RopeScaling longrope{.type = RopeType::kLongrope,
                             .factor = 4,
                             .original_max_position_embeddings = 16,
                             .short_factor = {1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7},
                             .long_factor = {1, 2, 3, 4, 5, 6, 7, 8}};
  expect_near(frequency(longrope, 3, 16), plain(3) / 1.3);
  expect_near(frequency(longrope, 3, 17), plain(3) / 4);
  EXPECT_EQ(rule_length(longrope, kShape, 1), rule_length(longrope, kShape, 16));
  EXPECT_EQ(rule_length(longrope, kShape, 17), rule_length(longrope, kShape, 1000));
  EXPECT_NE(rule_length(longrope, kShape, 16), rule_length(longrope, kShape, 17));
}

TEST(RopeScaling, OnlyTwoRulesDependOnTheLength) {
  for (const RopeType type : rope_types()) {
    const bool wanted = type == RopeType::kDynamic || type == RopeType::kLongrope;
    EXPECT_EQ(depends_on_length({.type = type}), wanted) << rope_type_name(type);
    EXPECT_EQ(rule_length({.type = type, .original_max_position_embeddings = 5}, kShape, 99) == 0, !wanted);
  }
}

TEST(RopeScaling, RefusesShapesThatCannotBe) {
  EXPECT_THROW(rope_frequencies({}, {.head_dim = 7}), ConfigError);
  EXPECT_THROW(rope_frequencies({}, {.head_dim = 0}), ConfigError);
  EXPECT_THROW(rope_frequencies({.type = RopeType::kLongrope, .short_factor = {1, 2}}, kShape), ConfigError);
}

}  // namespace
}  // namespace apus::ops
