#include "apus/optim/schedule.h"

#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "apus/base/error.h"

namespace apus::optim {
namespace {

ScheduleOptions options_of(const std::string& type, const std::string& kwargs = "") {
  return {.type = type, .learning_rate = 2.0, .total_steps = 100, .warmup_steps = 20, .kwargs = kwargs};
}

double lr_of(const std::string& type, int64_t step, const std::string& kwargs = "") {
  return LrSchedule(options_of(type, kwargs)).lr(step);
}

/// The message with which the options are refused; "" if they are taken.
std::string refusal(const ScheduleOptions& options) {
  try {
    const LrSchedule schedule(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(LrSchedule, WarmsUpFromZeroToThePeak) {
  for (const std::string type : {"linear", "cosine", "constant_with_warmup", "polynomial", "inverse_sqrt"}) {
    EXPECT_EQ(lr_of(type, 0), 0.0) << type;
    EXPECT_DOUBLE_EQ(lr_of(type, 10), 1.0) << type;
    EXPECT_DOUBLE_EQ(lr_of(type, 20), 2.0) << type;
  }
}

TEST(LrSchedule, LinearReachesZeroAtTheEndAndStaysThere) {
  EXPECT_DOUBLE_EQ(lr_of("linear", 60), 1.0);
  EXPECT_GT(lr_of("linear", 99), 0.0);
  EXPECT_EQ(lr_of("linear", 100), 0.0);
  EXPECT_EQ(lr_of("linear", 150), 0.0);
}

TEST(LrSchedule, CosineIsHalfAWaveByDefault) {
  EXPECT_NEAR(lr_of("cosine", 60), 1.0, 1e-15);
  EXPECT_NEAR(lr_of("cosine", 100), 0.0, 1e-15);
  EXPECT_NEAR(lr_of("cosine", 60, R"({"num_cycles": 1})"), 0.0, 1e-15);
}

TEST(LrSchedule, ConstantIgnoresTheWarmUp) {
  EXPECT_EQ(lr_of("constant", 0), 2.0);
  EXPECT_EQ(lr_of("constant", 1000), 2.0);
}

TEST(LrSchedule, IsAPureFunctionOfTheStep) {
  const LrSchedule schedule(options_of("cosine"));
  const double before = schedule.lr(37);
  schedule.lr(90);
  EXPECT_EQ(schedule.lr(37), before);
}

TEST(LrSchedule, SurvivesRunsWithoutStepsAndWarmUpBeyondTheEnd) {
  for (const std::string& type : schedule_types()) {
    std::string kwargs;
    if (type.ends_with("min_lr")) kwargs = R"({"min_lr_rate": 0.1})";
    if (type == "warmup_stable_decay") kwargs = R"({"num_decay_steps": 0})";
    for (const int64_t warmup : {0, 7}) {
      const LrSchedule schedule({type, 1e-3, 0, warmup, kwargs});
      for (int64_t step = 0; step < 3; ++step) EXPECT_TRUE(std::isfinite(schedule.lr(step))) << type;
    }
  }
}

TEST(LrSchedule, NamesTheNearestTypeForAnUnknownOne) {
  const std::string message = refusal(options_of("cosin"));
  EXPECT_NE(message.find("unknown lr_scheduler_type 'cosin'"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'cosine'"), std::string::npos) << message;
}

TEST(LrSchedule, NamesTheNearestKeywordForAnUnknownOne) {
  const std::string message = refusal(options_of("cosine", R"({"num_cycle": 1})"));
  EXPECT_NE(message.find("cosine takes no 'num_cycle'"), std::string::npos) << message;
  EXPECT_NE(message.find("did you mean 'num_cycles'"), std::string::npos) << message;
  EXPECT_NE(refusal(options_of("linear", R"({"num_cycles": 1})")), "");
}

TEST(LrSchedule, RefusesKeywordsOfAWrongKind) {
  EXPECT_NE(refusal(options_of("cosine", R"({"num_cycles": "two"})")).find("must be a number, got \"two\""),
            std::string::npos);
  EXPECT_NE(refusal(options_of("cosine", "[1]")).find("must be a JSON object"), std::string::npos);
  EXPECT_NE(refusal(options_of("cosine", "{num_cycles: 1}")), "");
  EXPECT_NE(refusal(options_of("warmup_stable_decay", R"({"num_decay_steps": 9, "decay_type": "square"})"))
                .find("1-sqrt, cosine, linear"),
            std::string::npos);
}

TEST(LrSchedule, RefusesWhatHasNoMeaning) {
  EXPECT_NE(refusal(options_of("cosine_with_min_lr")).find("exactly one of min_lr and min_lr_rate"),
            std::string::npos);
  EXPECT_NE(refusal(options_of("cosine_with_min_lr", R"({"min_lr": 0.1, "min_lr_rate": 0.1})")), "");
  EXPECT_NE(refusal(options_of("warmup_stable_decay")).find("num_decay_steps"), std::string::npos);
  EXPECT_NE(refusal(options_of("polynomial", R"({"lr_end": 2.5})")).find("lr_end is 2.5"), std::string::npos);
  EXPECT_NE(refusal(options_of("inverse_sqrt", R"({"timescale": 0})")), "");
  EXPECT_NE(refusal({"linear", -1.0, 10, 0, ""}), "");
  EXPECT_NE(refusal({"linear", std::nan(""), 10, 0, ""}), "");
  EXPECT_NE(refusal({"linear", 1.0, -10, 0, ""}), "");
}

TEST(LrSchedule, WarmupStableDecayHoldsThePeakBetween) {
  const std::string kwargs = R"({"num_decay_steps": 30, "decay_type": "linear", "min_lr_ratio": 0.1})";
  EXPECT_DOUBLE_EQ(lr_of("warmup_stable_decay", 0, kwargs), 0.2) << "the floor lifts the warm-up";
  EXPECT_DOUBLE_EQ(lr_of("warmup_stable_decay", 69, kwargs), 2.0);
  EXPECT_DOUBLE_EQ(lr_of("warmup_stable_decay", 85, kwargs), 2.0 * (0.5 * 0.9 + 0.1));
  EXPECT_DOUBLE_EQ(lr_of("warmup_stable_decay", 100, kwargs), 0.2);
}

TEST(LrSchedule, OneMinusSquareRootCurvesStartFlatAndSteep) {
  const std::string kwargs = R"({"num_decay_steps": 40, "decay_type": "1-sqrt", "warmup_type": "1-sqrt"})";
  EXPECT_DOUBLE_EQ(lr_of("warmup_stable_decay", 15, kwargs), 2.0 * (1 - std::sqrt(0.25)));
  EXPECT_DOUBLE_EQ(lr_of("warmup_stable_decay", 70, kwargs), 2.0 * (1 - std::sqrt(0.25)));
}

TEST(WarmupSteps, ARatioIsRoundedUpInDouble) {
  EXPECT_EQ(resolve_warmup_steps(100, {.warmup_ratio = 0.07}), 8);  // 0.07 * 100 = 7.000000000000001
  EXPECT_EQ(resolve_warmup_steps(12, {.warmup_ratio = 0.1}), 2);
  EXPECT_EQ(resolve_warmup_steps(100, {}), 0);
}

TEST(WarmupSteps, StepsWinOverTheRatioAndMayBeAShareThemselves) {
  EXPECT_EQ(resolve_warmup_steps(100, {.warmup_ratio = 0.5, .warmup_steps = 2.7}), 2);
  EXPECT_EQ(resolve_warmup_steps(100, {.warmup_ratio = 0.5, .warmup_steps = 0.03}), 3);
}

TEST(WarmupSteps, RefusesNegativeAndBoundlessValues) {
  EXPECT_THROW(resolve_warmup_steps(10, {.warmup_ratio = -0.1}), ConfigError);
  EXPECT_THROW(resolve_warmup_steps(10, {.warmup_ratio = 1.1}), ConfigError);
  EXPECT_THROW(resolve_warmup_steps(10, {.warmup_steps = -1}), ConfigError);
  EXPECT_THROW(resolve_warmup_steps(10, {.warmup_steps = std::nan("")}), ConfigError);
  EXPECT_THROW(resolve_warmup_steps(10, {.warmup_steps = std::numeric_limits<double>::infinity()}),
               ConfigError);
}

}  // namespace
}  // namespace apus::optim
