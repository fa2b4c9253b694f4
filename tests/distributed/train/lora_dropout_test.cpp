// numbers.md points 1 and 5 with lora_dropout: a mask is a function of seed, epoch, a row's place in it and
// position, so no split of a step's rows changes a loss, a gradient norm or a weight, and recompute changes
// no bit.
#include <gtest/gtest.h>

#include <algorithm>

#include "apus/data/loader.h"
#include "apus/data/packing.h"
#include "tests/support/partition_checks.h"

namespace apus::testing {
namespace {

constexpr int64_t kSteps = 7;  // three steps an epoch: the third epoch begins

using StepSource = std::function<std::vector<data::Batch>(int64_t step)>;

std::unique_ptr<models::Qwen2> model_with_dropout(const TinyRun& run, double dropout) {
  auto model = frozen_tiny_model(run);
  peft::LoraConfig config{.r = 4, .lora_alpha = 8, .lora_dropout = dropout};
  config.targets.all_linear = true;
  peft::apply_lora(*model, config, "default", {.seed = 5});
  return model;
}

/// Runs the dataset's steps, or those that `source` makes, on this rank.
TinyResult run_steps(const TinyRun& run, double dropout, comm::Communicator& dp,
                     const StepSource& source = {}) {
  const auto model = model_with_dropout(run, dropout);
  parallel::ShardedModel engine(*model, dp, tiny_engine_options(run));
  TinyResult result;
  result.before = copies(engine.gather_masters());
  SystemClock clock;
  NullLogger logger;
  train::TrainerContext context{.clock = &clock, .logger = &logger};
  const auto note = [&](const train::StepReport& report) {
    result.losses.push_back(report.loss);
    result.grad_norms.push_back(report.grad_norm);
  };
  context.callbacks.on_step = note;
  const auto objective = std::make_shared<train::SftObjective>(
      train::SftObjectiveOptions{.adapters = {"default"}, .dropout_seed = 11});
  train::Trainer trainer(engine, objective, tiny_options(run), context);
  if (source) {
    for (int64_t step = 0; step < run.steps; ++step) note(trainer.step(source(step), run.learning_rate));
  } else {
    trainer.run(tiny_rows(Job::kLoraSft, run.rows), nullptr);
  }
  result.after = copies(engine.gather_masters());
  for (const auto& state : engine.optimizer_states()) result.exp_avg_sq.push_back(state.exp_avg_sq.clone());
  return result;
}

TinyResult run_on(int world, const TinyRun& run, double dropout = 0.1) {
  TinyResult result;
  run_ranks(world, [&](std::shared_ptr<comm::Communicator> dp) {
    TinyResult own = run_steps(run, dropout, *dp);
    if (dp->rank() == 0) result = std::move(own);
  });
  return result;
}

TinyRun lora_run() {
  return {.job = Job::kLoraSft, .policy = parallel::Zero2(), .steps = kSteps};
}

void expect_equal(const TinyResult& found, const TinyResult& wanted, const TinyRun& run,
                  const std::string& what) {
  expect_same_numbers(found, wanted, run.job, what);
  expect_same_weights(found, wanted, run, reference_layout(run), what);
}

TEST(LoraDropout, NoSplitOfTheRowsChangesTheRun) {
  const TinyResult wanted = run_on(1, lora_run());
  EXPECT_NE(wanted.losses.back(), run_on(1, lora_run(), 0.0).losses.back()) << "something is dropped";
  struct Split {
    int world;
    int64_t micro;
    int64_t accumulation;
    data::BatchLayout layout;
  };
  using enum data::BatchLayout;
  for (const Split& split :
       {Split{1, 12, 1, kPadded}, {1, 4, 3, kPacked}, {2, 3, 2, kPadded}, {4, 1, 3, kPacked}}) {
    TinyRun run = lora_run();
    run.micro_batch_rows = split.micro;
    run.accumulation = split.accumulation;
    run.layout = split.layout;
    expect_equal(run_on(split.world, run), wanted, run, describe(split.world, run));
  }
}

TEST(LoraDropout, RecomputeDrawsTheSameBits) {
  TinyRun run = lora_run();
  run.micro_batch_rows = 3;
  run.accumulation = 4;
  const TinyResult wanted = run_on(1, run);
  run.recompute = parallel::Recompute::kBlock;
  const TinyResult found = run_on(1, run);
  EXPECT_EQ(found.losses, wanted.losses);
  EXPECT_EQ(found.grad_norms, wanted.grad_norms);
  for (size_t i = 0; i < wanted.after.size(); ++i)
    EXPECT_TRUE(found.after[i].tensor.equal(wanted.after[i].tensor)) << wanted.after[i].name;
  run.recompute = parallel::Recompute::kPartial;  // another order of additions, the same masks
  expect_equal(run_on(1, run), wanted, run, "partial recompute");
}

TEST(LoraDropout, ARowInAPackDrawsWhatItDrawsAlone) {
  const auto rows = tiny_rows(Job::kLoraSft, 36);
  const auto packs = std::make_shared<data::PackedDataset>(rows, data::PackingOptions{.packing_length = 40});
  const auto loader_of = [&](int world, int rank) {
    return std::make_unique<data::Loader>(
        packs, data::Sampler({.rows = packs->size()}),
        data::StepPlan(
            {.rows = packs->size(), .micro_batch_rows = 1, .world = world, .accumulation = 4 / world}),
        data::LoaderOptions{.rank = rank, .workers = 0, .collate = {.layout = data::BatchLayout::kPacked}});
  };
  const TinyRun run = lora_run();
  const auto alone = comm::GlooCommunicator::create(comm::make_hash_store(), {});
  const auto listed = loader_of(1, 0);
  const TinyResult wanted = run_steps(run, 0.1, *alone, [&](int64_t) {
    std::vector<data::Batch> singles;
    for (const data::Batch& pack : listed->next().micro_batches) {
      for (size_t i = 0; i < pack.ordinals.size(); ++i) {
        singles.push_back(rows->collate(std::vector<int64_t>{pack.ordinals[i]}, {}));
        singles.back().places = {pack.places[i]};
        singles.back().epoch = pack.epoch;
      }
    }
    return singles;
  });
  for (const int world : {1, 2}) {
    run_ranks(world, [&](std::shared_ptr<comm::Communicator> dp) {
      const auto loader = loader_of(world, dp->rank());
      const TinyResult found =
          run_steps(run, 0.1, *dp, [&](int64_t) { return loader->next().micro_batches; });
      if (dp->rank() == 0) expect_equal(found, wanted, run, detail::concat("packs, world ", world));
    });
  }
}

}  // namespace
}  // namespace apus::testing
