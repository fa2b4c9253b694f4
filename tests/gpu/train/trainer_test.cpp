// Whole runs on a GPU against the same on the CPU, and what the host waits for.
#include "apus/train/trainer.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "apus/base/error.h"
#include "apus/comm/fake_communicator.h"
#include "tests/support/tensor_checks.h"
#include "tests/support/tiny_training.h"

namespace apus::train {
namespace {

using namespace apus::testing;

const at::Device kGpu(at::kCUDA, 0);

class TrainerOnGpu : public ::testing::TestWithParam<Job> {
 protected:
  void SetUp() override {
    if (!at::hasCUDA() || c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

TinyRun five_steps(Job job, std::optional<at::Device> device) {
  TinyRun run{.job = job, .micro_batch_rows = 2, .accumulation = 3, .rows = 30, .steps = 5};
  run.layout = data::BatchLayout::kPacked;
  run.adjust = [device](parallel::ShardedModelOptions& options) { options.device = device; };
  return run;
}

TEST_P(TrainerOnGpu, MatchesTheCpuForFiveSteps) {
  for (const data::BatchLayout layout : {data::BatchLayout::kPacked, data::BatchLayout::kPadded}) {
    TinyRun on_cpu = five_steps(GetParam(), std::nullopt), on_gpu = five_steps(GetParam(), kGpu);
    on_cpu.layout = on_gpu.layout = layout;
    const TinyResult wanted = train_tiny(on_cpu, comm::make_fake_communicator({}));
    const TinyResult found = train_tiny(on_gpu, comm::make_fake_communicator({}));
    ASSERT_EQ(found.losses.size(), 5U);
    for (size_t step = 0; step < 5; ++step) {
      EXPECT_NEAR(found.losses[step], wanted.losses[step], 1e-4) << "step " << step + 1;
      EXPECT_NEAR(found.grad_norms[step], wanted.grad_norms[step], 1e-3 * wanted.grad_norms[step]);
    }
    EXPECT_LT(found.losses.back(), found.losses.front());
    for (size_t i = 0; i < wanted.after.size(); ++i) {
      ASSERT_EQ(found.after[i].name, wanted.after[i].name);
      EXPECT_LT(rms_difference(found.after[i].tensor.cpu(), wanted.after[i].tensor), 5e-4)
          << wanted.after[i].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, TrainerOnGpu,
                         ::testing::Values(Job::kFullSft, Job::kLoraSft, Job::kLoraDpo, Job::kFullDpo));

/// A trainer over a tiny model on the GPU.
struct Bench {
  explicit Bench(Job job)
      : run(five_steps(job, kGpu)),
        mesh(comm::make_fake_communicator({}), run.policy.mesh()),
        tiny(run, mesh),
        trainer(*tiny.engine, tiny.objective(job), tiny_options(run), {.clock = &clock, .logger = &logger}) {}

  std::vector<data::Batch> batches(int64_t first) const {
    const auto rows = tiny_rows(run.job, 30);
    return {rows->collate(std::vector<int64_t>{first, first + 1}, {}),
            rows->collate(std::vector<int64_t>{first + 2}, {})};
  }

  TinyRun run;
  comm::DeviceMesh mesh;
  TinyEngine tiny;
  SystemClock clock;
  NullLogger logger;
  Trainer trainer;
};

using TrainerAhead = TrainerOnGpu;

TEST_F(TrainerAhead, ReportsComeOneStepLateAndAreThoseOfPlainSteps) {
  Bench plain(Job::kFullSft), ahead(Job::kFullSft);
  std::vector<StepReport> wanted, found;
  for (int64_t step = 0; step < 4; ++step) {
    wanted.push_back(plain.trainer.step(plain.batches(3 * step), 1e-3));
    const auto before = ahead.trainer.step_ahead(ahead.batches(3 * step), 1e-3);
    EXPECT_EQ(before.has_value(), step > 0);
    if (before) found.push_back(*before);
  }
  found.push_back(*ahead.trainer.settle());
  EXPECT_FALSE(ahead.trainer.settle().has_value());
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_EQ(found[step].step, static_cast<int64_t>(step) + 1);
    EXPECT_EQ(found[step].loss, wanted[step].loss);
    EXPECT_EQ(found[step].grad_norm, wanted[step].grad_norm);
    EXPECT_EQ(found[step].metrics, wanted[step].metrics);
    EXPECT_EQ(found[step].tokens, wanted[step].tokens);
  }
}

TEST_F(TrainerAhead, ALossThatIsNoNumberChangesNothingAndIsNamedBeforeTheNextUpdate) {
  Bench bench(Job::kFullSft);
  bench.trainer.step(bench.batches(0), 1e-3);
  const auto before = copies(bench.tiny.engine->gather_masters());
  auto broken = bench.batches(3);
  broken[1].target_weights_M =
      at::empty({broken[1].target_count()}, at::kFloat).fill_(std::numeric_limits<float>::quiet_NaN());
  bench.trainer.step_ahead(broken, 1e-3);
  try {
    bench.trainer.step_ahead(bench.batches(6), 1e-3);
    FAIL() << "a loss that is no number was not noticed";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("step 2: the loss is nan, from row 5:"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(bench.tiny.engine->updates(), 1);
  const auto after = bench.tiny.engine->gather_masters();
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(after[i].tensor.equal(before[i].tensor)) << after[i].name;
}

TEST_F(TrainerAhead, ARunReportsEveryStepOnceInOrderAndSavesWhatItSaysItSaves) {
  std::vector<int64_t> steps, saved;
  std::vector<data::LoaderCursor> cursors;
  Bench bench(Job::kLoraSft);
  TrainerOptions options = tiny_options(bench.run);
  options.max_steps = 7;
  options.save_steps = 3;
  Trainer trainer(*bench.tiny.engine, bench.tiny.objective(Job::kLoraSft), options,
                  {.clock = &bench.clock,
                   .logger = &bench.logger,
                   .callbacks = {.on_step = [&](const StepReport& report) { steps.push_back(report.step); },
                                 .on_save =
                                     [&](const TrainerState& state) {
                                       EXPECT_EQ(steps.back(), state.global_step);
                                       saved.push_back(state.global_step);
                                       cursors.push_back(state.cursor);
                                     }}});
  const RunSummary summary = trainer.run(tiny_rows(Job::kLoraSft, 30), nullptr);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(saved, (std::vector<int64_t>{3, 6, 7}));
  EXPECT_EQ(cursors[0], (data::LoaderCursor{0, 3}));  // five steps an epoch
  EXPECT_EQ(cursors[1], (data::LoaderCursor{1, 1}));
  EXPECT_EQ(cursors[2], (data::LoaderCursor{1, 2}));
  EXPECT_TRUE(summary.finished);
  EXPECT_EQ(bench.tiny.engine->updates(), 7);
}

TEST_F(TrainerAhead, AStopSavesTheStepThatWasQueued) {
  std::vector<int64_t> steps, saved;
  Trainer* running = nullptr;
  Bench bench(Job::kLoraSft);
  TrainerOptions options = tiny_options(bench.run);
  options.max_steps = 50;
  options.save_steps = 0;
  Trainer trainer(
      *bench.tiny.engine, bench.tiny.objective(Job::kLoraSft), options,
      {.clock = &bench.clock,
       .logger = &bench.logger,
       .callbacks = {.on_step =
                         [&](const StepReport& report) {
                           steps.push_back(report.step);
                           if (report.step == 2) running->request_stop();
                         },
                     .on_save = [&](const TrainerState& state) { saved.push_back(state.global_step); }}});
  running = &trainer;
  const RunSummary summary = trainer.run(tiny_rows(Job::kLoraSft, 30), nullptr);
  EXPECT_FALSE(summary.finished);
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3}));  // 3 was queued when 2 was reported
  EXPECT_EQ(saved, (std::vector<int64_t>{3}));
  EXPECT_EQ(bench.tiny.engine->updates(), 3);
}

}  // namespace
}  // namespace apus::train
