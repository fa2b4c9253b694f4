// fp16 and its scaled loss over several ranks.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/rank_threads.h"
#include "tests/support/scripted_overflow.h"
#include "tests/support/tiny_training.h"

namespace apus::testing {
namespace {

TinyRun fp16_run(Job job, const parallel::ShardPolicy& policy, int64_t accumulation) {
  TinyRun run{.job = job, .policy = policy, .accumulation = accumulation, .dtype = at::kHalf};
  run.rows = 24;
  run.steps = 4;
  return run;
}

/// Every rank's result; they are equal, so the first stands for all.
TinyResult train_on_ranks(int world, const TinyRun& run) {
  std::vector<TinyResult> results(static_cast<size_t>(world));
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> dp) {
    const auto rank = static_cast<size_t>(dp->rank());
    results[rank] = train_tiny(run, std::move(dp));
  });
  return results.front();
}

TEST(Fp16, EveryPolicyTrainsLikeFp32) {
  for (const Job job : {Job::kFullSft, Job::kLoraDpo}) {
    TinyRun wide = fp16_run(job, parallel::Ddp(), 6);
    wide.dtype = at::kFloat;
    const TinyResult wanted = train_on_ranks(2, wide);
    for (const parallel::ShardPolicy& policy :
         {parallel::ShardPolicy(parallel::Ddp()), parallel::ShardPolicy(parallel::Zero1()),
          parallel::ShardPolicy(parallel::Zero2()), parallel::ShardPolicy(parallel::Zero3())}) {
      const TinyResult found = train_on_ranks(2, fp16_run(job, policy, 6));
      ASSERT_EQ(found.losses.size(), wanted.losses.size());
      for (size_t step = 0; step < found.losses.size(); ++step) {
        EXPECT_NEAR(found.losses[step], wanted.losses[step], 2e-2 * wanted.losses[step])
            << job_name(job) << " " << policy.name << ", step " << step;
        EXPECT_NEAR(found.grad_norms[step], wanted.grad_norms[step], 5e-2 * wanted.grad_norms[step]);
      }
      for (const auto& parameter : found.after) EXPECT_EQ(parameter.tensor.scalar_type(), at::kFloat);
    }
  }
}

TEST(Fp16, HasTheSameBitsUnderEveryPolicyInDeterministicMode) {
  TinyRun run = fp16_run(Job::kFullSft, parallel::Ddp(), 3);
  run.deterministic = true;
  const TinyResult wanted = train_on_ranks(2, run);
  for (const parallel::ShardPolicy& policy :
       {parallel::ShardPolicy(parallel::Zero2()), parallel::ShardPolicy(parallel::Zero3())}) {
    run.policy = policy;
    const TinyResult found = train_on_ranks(2, run);
    for (size_t i = 0; i < found.after.size(); ++i)
      EXPECT_TRUE(found.after[i].tensor.equal(wanted.after[i].tensor)) << found.after[i].name;
  }
}

TEST(Fp16, AnOverflowOnOneRankIsSkippedByAll) {
  for (const bool deterministic : {false, true}) {
    for (const parallel::ShardPolicy& policy :
         {parallel::ShardPolicy(parallel::Ddp()), parallel::ShardPolicy(parallel::Zero2()),
          parallel::ShardPolicy(parallel::Zero3())}) {
      run_ranks(3, [&](std::shared_ptr<comm::Communicator> dp) {
        TinyRun run = fp16_run(Job::kFullSft, policy, 1);
        run.deterministic = deterministic;
        const int rank = dp->rank();
        const std::set<int64_t> script = rank == 1 ? std::set<int64_t>{2} : std::set<int64_t>{};
        const comm::DeviceMesh mesh(std::move(dp), run.policy.mesh());
        const TinyEngine tiny(run, mesh);
        SystemClock clock;
        CaptureLogger logger;
        train::TrainerOptions options = tiny_options(run);
        options.fp16 = {.enabled = true, .initial_scale_power = 8, .hysteresis = 1};
        train::TrainerContext context{.clock = &clock, .logger = &logger};
        std::vector<train::StepReport> reports;
        context.callbacks.on_step = [&](const train::StepReport& report) { reports.push_back(report); };
        train::Trainer trainer(*tiny.engine, std::make_shared<ScriptedOverflow>(script), options, context);
        trainer.run(tiny_rows(run.job, run.rows), nullptr);
        ASSERT_EQ(reports.size(), 4u) << policy.name;
        for (size_t step = 0; step < 4; ++step) {
          EXPECT_EQ(reports[step].skipped, step == 2) << policy.name << " rank " << rank;
          EXPECT_EQ(reports[step].loss_scale, step > 2 ? 128.0 : 256.0);
        }
        EXPECT_EQ(tiny.engine->updates(), 3);
        EXPECT_EQ(logger.count("step skipped"), rank == 0 ? 1 : 0);
      });
    }
  }
}

}  // namespace
}  // namespace apus::testing
