// DeepSpeed's schedules; their values over whole runs are cases of tests/parity/optim.
#include "optim/schedule_warmup.h"

#include <gtest/gtest.h>

#include <string>

#include "apus/base/error.h"

namespace apus::optim {
namespace {

LrSchedule schedule(const std::string& type, const std::string& kwargs, int64_t warmup_steps = 0) {
  return LrSchedule({.type = type,
                     .learning_rate = 1e-3,
                     .total_steps = 100,
                     .warmup_steps = warmup_steps,
                     .kwargs = kwargs});
}

std::string refusal(const std::string& type, const std::string& kwargs) {
  try {
    schedule(type, kwargs);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(ScheduleWarmup, AStepTakesTheIterationBeforeIt) {
  const LrSchedule linear = schedule("WarmupLR", R"({"warmup_num_steps": 10, "warmup_type": "linear"})");
  EXPECT_EQ(linear.lr(0), 0.0);
  EXPECT_EQ(linear.lr(1), 0.0);
  EXPECT_DOUBLE_EQ(linear.lr(2), 1e-4);
  EXPECT_DOUBLE_EQ(linear.lr(10), 9e-4);
  EXPECT_DOUBLE_EQ(linear.lr(11), 1e-3);
  EXPECT_DOUBLE_EQ(linear.lr(99), 1e-3);
}

TEST(ScheduleWarmup, AutoIsTheRunsOwn) {
  const std::string automatic = R"({"warmup_min_lr": "auto", "warmup_max_lr": "auto",
      "warmup_num_steps": "auto", "total_num_steps": "auto"})";
  const LrSchedule left = schedule("WarmupDecayLR", automatic, 20);
  const LrSchedule said = schedule("WarmupDecayLR", R"({"warmup_min_lr": 0, "warmup_max_lr": 1e-3,
      "warmup_num_steps": 20, "total_num_steps": 100})");
  for (int64_t step = 0; step < 110; ++step) EXPECT_EQ(left.lr(step), said.lr(step)) << step;
  EXPECT_GT(schedule("WarmupDecayLR", automatic, 0).lr(5), 0.0) << "without warm-up: one step of it";
}

TEST(ScheduleWarmup, TheFloorOfTheCosineHolds) {
  const LrSchedule cosine = schedule("WarmupCosineLR", R"({"warmup_num_steps": 10, "cos_min_ratio": 0.1})");
  EXPECT_DOUBLE_EQ(cosine.lr(100), 1e-4);
  EXPECT_DOUBLE_EQ(cosine.lr(1000), 1e-4) << "it does not rise again";
}

TEST(ScheduleWarmup, FaultsAreNamed) {
  EXPECT_NE(
      refusal("WarmupLR", R"({"warmup_num_steps": 0})").find("warmup_num_steps is 0, expected 1 or more"),
      std::string::npos);
  EXPECT_NE(refusal("WarmupLR", R"({"warmup_num_steps": 1.5})").find("must be a whole number, got 1.5"),
            std::string::npos);
  EXPECT_NE(refusal("WarmupLR", R"({"last_batch_iteration": -2})").find("expected -1 or more"),
            std::string::npos);
  EXPECT_NE(refusal("WarmupCosineLR", R"({"warmup_min_ratio": "auto"})").find("must be a number"),
            std::string::npos);
  EXPECT_NE(refusal("WarmupLR", R"({"total_num_steps": 5})").find("WarmupLR takes no 'total_num_steps'"),
            std::string::npos);
}

}  // namespace
}  // namespace apus::optim
