// fp16 under a scaled loss on a GPU, against fp32 there and the scaler's rules.
#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include "apus/comm/fake_communicator.h"
#include "tests/support/scripted_overflow.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

using namespace apus::testing;

const at::Device kGpu(at::kCUDA, 0);

class Fp16OnGpu : public ::testing::TestWithParam<Job> {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TinyRun gpu_run(Job job, at::ScalarType dtype) {
  TinyRun run{.job = job, .micro_batch_rows = 2, .accumulation = 3, .dtype = dtype, .rows = 30, .steps = 5};
  run.layout = data::BatchLayout::kPacked;
  run.adjust = [](parallel::ShardedModelOptions& options) { options.device = kGpu; };
  return run;
}

TEST_P(Fp16OnGpu, FiveStepsAreThoseOfFp32) {
  for (const data::BatchLayout layout : {data::BatchLayout::kPacked, data::BatchLayout::kPadded}) {
    TinyRun wide = gpu_run(GetParam(), at::kFloat), narrow = gpu_run(GetParam(), at::kHalf);
    wide.layout = narrow.layout = layout;
    const TinyResult wanted = train_tiny(wide, comm::make_fake_communicator({}));
    const TinyResult found = train_tiny(narrow, comm::make_fake_communicator({}));
    ASSERT_EQ(found.losses.size(), 5U);
    for (size_t step = 0; step < 5; ++step) {
      EXPECT_NEAR(found.losses[step], wanted.losses[step], 2e-2) << "step " << step + 1;
      EXPECT_NEAR(found.grad_norms[step], wanted.grad_norms[step], 5e-2 * wanted.grad_norms[step]);
    }
    EXPECT_LT(found.losses.back(), found.losses.front());
    for (const auto& parameter : found.after) EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat);
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, Fp16OnGpu,
                         ::testing::Values(Job::kFullSft, Job::kLoraSft, Job::kLoraDpo, Job::kFullDpo));

/// A run of full SFT under a scale, with overflows in some steps.
struct Scaled {
  Scaled(at::ScalarType dtype, const Fp16Options& fp16, std::set<int64_t> overflows)
      : run(gpu_run(Job::kFullSft, dtype)),
        mesh(comm::make_fake_communicator({}), run.policy.mesh()),
        tiny(run, mesh) {
    run.accumulation = 1;
    TrainerOptions options = tiny_options(run);
    options.fp16 = fp16;
    TrainerContext context{.clock = &clock, .logger = &logger};
    context.callbacks.on_step = [this](const StepReport& report) { reports.push_back(report); };
    Trainer trainer(*tiny.engine, std::make_shared<ScriptedOverflow>(std::move(overflows)), options, context);
    trainer.run(tiny_rows(run.job, 30), nullptr);
  }

  TinyRun run;
  comm::DeviceMesh mesh;
  TinyEngine tiny;
  SystemClock clock;
  CaptureLogger logger;
  std::vector<StepReport> reports;
};

using ScaledOnGpu = Fp16OnGpu;

TEST_F(ScaledOnGpu, AnOverflowIsSkippedOnTheDeviceAndLowersTheNextStepsScale) {
  const Fp16Options fp16{.enabled = true, .initial_scale_power = 8, .hysteresis = 1};
  const Scaled scaled(at::kHalf, fp16, {1, 3});
  ASSERT_EQ(scaled.reports.size(), 5U);
  const std::vector<double> scales{256, 256, 128, 128, 64};
  for (size_t step = 0; step < 5; ++step) {
    EXPECT_EQ(scaled.reports[step].skipped, step == 1 || step == 3) << step;
    EXPECT_EQ(scaled.reports[step].loss_scale, scales[step]) << step;
    EXPECT_EQ(scaled.reports[step].step, static_cast<int64_t>(step) + 1);
  }
  EXPECT_EQ(scaled.tiny.engine->settle_updates(), 3) << "t of the bias correction, on the device";
  EXPECT_EQ(scaled.logger.count("step skipped"), 2);
}

TEST_F(ScaledOnGpu, APowerOfTwoChangesNoNormInFp32) {
  const Scaled plain(at::kFloat, {}, {}), scaled(at::kFloat, {.enabled = true}, {});
  for (size_t step = 0; step < 5; ++step) {
    EXPECT_NEAR(scaled.reports[step].loss, plain.reports[step].loss, 1e-6);
    EXPECT_NEAR(scaled.reports[step].grad_norm, plain.reports[step].grad_norm, 1e-6);
  }
}

}  // namespace
}  // namespace apus::train
