// A scaled loss, and steps that are skipped; the public face is apus/train/trainer.h.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "apus/base/error.h"
#include "apus/optim/schedule.h"
#include "tests/support/scripted_overflow.h"
#include "tests/unit/train/support/sft_bench.h"

namespace apus::testing {
namespace {

/// A bench whose trainer scales the loss; one call of the objective is one step.
struct ScaledBench {
  explicit ScaledBench(const train::Fp16Options& fp16, int64_t steps = 6)
      : bench({.accumulation = 1, .steps = steps}) {
    bench.options.fp16 = fp16;
  }

  train::RunSummary run(std::set<int64_t> overflows, const train::TrainerState& state = {}) {
    auto trainer = bench.trainer();
    trainer.set_objective(std::make_shared<ScriptedOverflow>(std::move(overflows)));
    return trainer.run(rows, nullptr, state);
  }

  void expect_weights_of(ScaledBench& wanted) {
    const auto found = bench.engine.gather_masters(), others = wanted.bench.engine.gather_masters();
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(found[i].tensor.equal(others[i].tensor)) << found[i].name;
  }

  SftBench bench;
  std::shared_ptr<const data::Dataset> rows = tiny_rows(Job::kFullSft, 12);
};

constexpr train::Fp16Options kDynamic{.enabled = true};

std::vector<data::Batch> batch_of(const ScaledBench& scaled, int64_t row) {
  return {scaled.rows->collate(std::vector<int64_t>{row}, {})};
}

TEST(TrainerScaling, APowerOfTwoChangesNoBitInFp32) {
  ScaledBench plain({}), scaled(kDynamic);
  plain.run({});
  scaled.run({});
  ASSERT_EQ(scaled.bench.reports.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(scaled.bench.reports[i].loss, plain.bench.reports[i].loss) << i;
    EXPECT_EQ(scaled.bench.reports[i].grad_norm, plain.bench.reports[i].grad_norm) << i;
    EXPECT_EQ(scaled.bench.reports[i].loss_scale, 65536.0);
    EXPECT_EQ(plain.bench.reports[i].loss_scale, 1.0);
  }
  scaled.expect_weights_of(plain);
}

TEST(TrainerScaling, WithoutScalingNothingIsDivided_Pitfall10) {
  const TinyRun wide{.accumulation = 1, .steps = 1};
  TinyRun narrow = wide;
  narrow.dtype = at::kBFloat16;
  const auto norm = [](const TinyRun& run) {
    return train_tiny(run, comm::make_fake_communicator({})).grad_norms.at(0);
  };
  EXPECT_NEAR(norm(narrow), norm(wide), 2e-2 * norm(wide));
  ScaledBench unscaled({.enabled = false, .loss_scale = 512.0}), plain({});
  unscaled.run({});
  plain.run({});
  unscaled.expect_weights_of(plain);
}

TEST(TrainerScaling, ASkippedStepLeavesNothingBehind_Pitfall10) {
  ScaledBench skipping(kDynamic), never(kDynamic);
  auto found = skipping.bench.trainer(), wanted = never.bench.trainer();
  found.set_objective(std::make_shared<ScriptedOverflow>(std::set<int64_t>{1}));
  found.step(batch_of(skipping, 0), 1e-2);
  const auto before = copies(skipping.bench.engine.gather_masters());
  const train::StepReport skipped = found.step(batch_of(skipping, 1), 1e-2);
  EXPECT_TRUE(skipped.skipped);
  EXPECT_EQ(skipped.step, 2) << "counted as a step";
  EXPECT_TRUE(std::isfinite(skipped.loss));
  EXPECT_FALSE(std::isfinite(skipped.grad_norm));
  EXPECT_EQ(skipping.bench.engine.updates(), 1) << "not in the bias correction";
  const auto after = skipping.bench.engine.gather_masters();
  for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(after[i].tensor.equal(before[i].tensor));
  EXPECT_EQ(found.step(batch_of(skipping, 2), 1e-2).step, 3);
  wanted.step(batch_of(never, 0), 1e-2);
  wanted.step(batch_of(never, 2), 1e-2);
  skipping.expect_weights_of(never);
}

TEST(TrainerScaling, SkippedStepsTakeRowsAndStepsButNoPlaceInTheSchedule) {
  ScaledBench scaled({.enabled = true, .initial_scale_power = 10});
  const train::RunSummary summary = scaled.run({1, 2});
  EXPECT_EQ(summary.steps, 6);
  EXPECT_TRUE(summary.finished);
  EXPECT_EQ(scaled.bench.engine.updates(), 4);
  const optim::LrSchedule schedule(
      {.type = "cosine", .learning_rate = 1e-3, .total_steps = 6, .warmup_steps = 1});
  const std::vector<int64_t> places{0, 1, 1, 1, 2, 3};
  const std::vector<double> scales{1024, 1024, 1024, 512, 512, 512};
  ASSERT_EQ(scaled.bench.reports.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    const train::StepReport& report = scaled.bench.reports[i];
    EXPECT_EQ(report.step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(report.learning_rate, schedule.lr(places[i])) << i;
    EXPECT_EQ(report.loss_scale, scales[i]) << i;
    EXPECT_EQ(report.skipped, i == 1 || i == 2) << i;
  }
  EXPECT_EQ(scaled.bench.saved.cursor.step, 6) << "the rows of skipped steps are used up";
  EXPECT_EQ(scaled.bench.saved.loss_scaler->skipped, 2);
}

TEST(TrainerScaling, EachSkippedStepIsLoggedOnce) {
  ScaledBench scaled({.enabled = true, .initial_scale_power = 10});
  scaled.run({1, 2});
  const CaptureLogger& log = scaled.bench.logger;
  EXPECT_EQ(log.count("step skipped"), 2);
  EXPECT_TRUE(log.contains("step 2: overflow; loss scale 1024 stays (hysteresis 2 -> 1), step skipped"));
  EXPECT_TRUE(log.contains("step 3: overflow; loss scale 1024 -> 512, step skipped"));
  ASSERT_EQ(scaled.bench.lines.size(), 6u);
  EXPECT_FALSE(scaled.bench.lines[2].contains("grad_norm")) << "there is none to show";
  EXPECT_EQ(scaled.bench.lines[2].at("loss_scale"), 1024.0);
  EXPECT_TRUE(scaled.bench.lines[3].contains("grad_norm"));
  EXPECT_EQ(scaled.bench.lines[3].at("loss_scale"), 512.0);
}

TEST(TrainerScaling, AStaticScaleSkipsWithoutChangingIt) {
  ScaledBench scaled({.enabled = true, .loss_scale = 100.0});
  scaled.run({0, 1, 2});
  EXPECT_TRUE(scaled.bench.logger.contains("overflow; loss scale 100 is static, step skipped"));
  EXPECT_EQ(scaled.bench.reports.back().loss_scale, 100.0);
  EXPECT_EQ(scaled.bench.engine.updates(), 3);
}

TEST(TrainerScaling, AtTheMinimumTheRunEndsAndKeepsItsWeights) {
  ScaledBench scaled({.enabled = true, .initial_scale_power = 0, .hysteresis = 1});
  scaled.bench.options.save_steps = 1;
  try {
    scaled.run({2});
    ADD_FAILURE() << "did not throw";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(
        message.find("step 3: gradients overflow though the loss scale is already at fp16.min_loss_scale, 1"),
        std::string::npos)
        << message;
    EXPECT_NE(message.find("--bf16 true"), std::string::npos) << message;
  }
  EXPECT_EQ(scaled.bench.saved.global_step, 2);
  EXPECT_EQ(scaled.bench.engine.updates(), 2);
}

TEST(TrainerScaling, AResumedRunGoesOnWithScaleAndSchedule) {
  const train::Fp16Options fp16{.enabled = true, .initial_scale_power = 10, .loss_scale_window = 2};
  ScaledBench whole(fp16), first(fp16);
  whole.run({1, 2});
  first.bench.context.callbacks.on_save = [&](const train::TrainerState& state) {
    if (state.global_step == 3) first.bench.saved = state;
  };
  first.bench.options.save_steps = 3;
  first.run({1, 2});
  const nlohmann::json stored = train::to_json(first.bench.saved);
  EXPECT_EQ(stored.at("loss_scaler").at("skipped"), 2);
  ScaledBench second(fp16);
  second.run({}, train::trainer_state_from_json(stored, "trainer_state.json"));
  ASSERT_EQ(second.bench.reports.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(second.bench.reports[i].loss_scale, whole.bench.reports[3 + i].loss_scale) << i;
    EXPECT_EQ(second.bench.reports[i].learning_rate, whole.bench.reports[3 + i].learning_rate) << i;
  }
  EXPECT_EQ(second.bench.saved.loss_scaler, whole.bench.saved.loss_scaler);
}

TEST(TrainerScaling, ARunBeginsWithAFreshScaler) {
  ScaledBench scaled({.enabled = true, .initial_scale_power = 10, .hysteresis = 1}, 2);
  auto trainer = scaled.bench.trainer();
  trainer.set_objective(std::make_shared<ScriptedOverflow>(std::set<int64_t>{0}));
  trainer.run(scaled.rows, nullptr);
  EXPECT_EQ(trainer.loss_scaler()->scale(), 512.0);
  trainer.run(scaled.rows, nullptr);
  EXPECT_EQ(trainer.loss_scaler()->scale(), 1024.0);
  EXPECT_EQ(ScaledBench({}).bench.trainer().loss_scaler(), nullptr);
}

TEST(TrainerScaling, OptionsThatFitNothingAreRefused) {
  EXPECT_THROW(ScaledBench({.enabled = true, .hysteresis = 0}).bench.trainer(), ConfigError);
}

}  // namespace
}  // namespace apus::testing
